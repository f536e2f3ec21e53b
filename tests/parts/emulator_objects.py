"""The emulator's compiled sources, made once for a run of the tests and shared by its workers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dcmi_shim.emulator import install
from tests.parts.once import run_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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
        wanted = [folder / Path(source).with_suffix(".o").name for part in parts for source in part]
        # The scripts of the linker lie there, too, so one process links at a time.
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not all(one.exists() for one in wanted):
                with pytest.MonkeyPatch.context() as strict:
                    strict.setenv("CC", f"{compiler or 'gcc'} -Werror")
                    with compiled(*parts) as made:
                        shutil.copytree(made._directory, folder, dirs_exist_ok=True)
            yield install.CompiledSources(folder)

    patch.setattr(install, "compiled", shared)
