"""The emulator's compiled sources, made once for a run of the tests and shared by its workers.

They are kept below ``build`` for later runs, and for the other parts of ``make test``, until a
source or the compiler changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dcmi_shim.emulator import install
from dcmi_shim.emulator.functions import SOURCES
from tests.parts.once import run_folder
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_KEPT = ROOT / "build" / "emulator-objects"


def objects_folder(base: Path) -> Path:
    """Return the folder of the objects; ``base`` is that for temporary files of this process."""
    return run_folder(base) / "emulator-objects"


def compile_once(patch: pytest.MonkeyPatch, base: Path) -> None:
    """Let ``install`` of this process link objects that are compiled once, without any warning.

    ``base`` is the folder for temporary files of this process; with several workers it lies in
    that of the run. Where a test chooses another compiler (``CC``), it compiles as in production.
    """
    folder = objects_folder(base)
    folder.mkdir(exist_ok=True)
    compiler = os.environ.get("CC")
    compiled = install.compiled

    @contextlib.contextmanager
    def shared(*parts: Sequence[str]) -> Iterator[install.CompiledSources]:
        if os.environ.get("CC") != compiler:
            with compiled(*parts) as own:
                yield own
            return
        wanted = {Path(source).with_suffix(".o").name for part in parts for source in part}
        # The scripts of the linker lie there, too, so one process links at a time.
        with _locked(folder):
            if not _has(folder, wanted):
                with _kept_objects(shlex.split(compiler or "gcc")) as kept:
                    if not _has(kept, wanted):
                        with pytest.MonkeyPatch.context() as strict:
                            strict.setenv("CC", f"{compiler or 'gcc'} -Werror")
                            with compiled(*parts) as made:
                                _copy_objects(made._directory, kept)
                    _copy_objects(kept, folder)
            yield _LinkedOnce(folder)

    patch.setattr(install, "compiled", shared)


class _LinkedOnce(install.CompiledSources):
    """Links each library and program once for a run; a further driver gets a copy."""

    def _link(self, target: Path, sources: Sequence[str], mode: int, flags: Sequence[str]) -> None:
        if target.exists():  # the product replaces what programs may have loaded
            super()._link(target, sources, mode, flags)
            return
        script = self._directory / f"{target.name}.map"
        exported = script.read_text("ascii") if script.exists() else ""
        key = hashlib.sha256(repr((target.name, sources, flags, exported)).encode()).hexdigest()
        linked = self._directory / key
        if not linked.exists():
            super()._link(linked, sources, mode, flags)
        shutil.copy(linked, target)


@contextlib.contextmanager
def _kept_objects(compiler: Sequence[str]) -> Iterator[Path]:
    """Yield the folder of kept objects, which has none where a source or the compiler changed."""
    # Without the compiler, the product reports that it lacks.
    version = b""
    if shutil.which(compiler[0]) is not None:
        version = subprocess.run([*compiler, "--version"], capture_output=True, check=False).stdout
    sources = sorted([*SOURCES.glob("*.[ch]"), Path(install.__file__), Path(__file__)])
    content = b"".join([*map(os.fsencode, compiler), version, *(s.read_bytes() for s in sources)])
    key = hashlib.sha256(content).hexdigest()
    _KEPT.mkdir(parents=True, exist_ok=True)
    with _locked(_KEPT):
        made_of = _KEPT / "made-of"
        if not made_of.exists() or made_of.read_text() != key:
            for old in _KEPT.glob("*.o"):
                old.unlink()
            made_of.write_text(key)
        yield _KEPT


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _has(folder: Path, names: Iterable[str]) -> bool:
    return all((folder / name).exists() for name in names)


def _copy_objects(source: Path, target: Path) -> None:
    for path in source.glob("*.o"):
        # Renamed, because a run that is killed must leave no half of an object.
        shutil.copy(path, target / f"{path.name}.part")
        (target / f"{path.name}.part").rename(target / path.name)
