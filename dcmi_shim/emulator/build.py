"""Compiles the emulator's C sources, each once, and links libraries and programs from them."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import EmulatorError
from dcmi_shim.emulator.functions import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Times in a damaged state file may lie anywhere; their differences wrap.
_COMPILE = (
    "-fwrapv",
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-Wall",
    "-Wextra",
)
_LINK_LIBRARY = ("-shared", "-pthread", "-Wl,-z,nodelete", "-Wl,-z,defs")
_LINK_PROGRAM = ("-pthread",)


class CompiledSources:
    """Compiled sources in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def link_library(
        self, target: Path, sources: Sequence[str], exported: Iterable[str], *flags: str
    ) -> None:
        """Link a library of ``sources`` that exports the names ``exported``, which may be patterns.

        Raises ``EmulatorError``, and ``OSError`` where it cannot be written.
        """
        symbols = self._directory / f"{target.name}.map"
        names = " ".join(f"{name};" for name in exported)
        symbols.write_text(f"{{ global: {names} local: *; }};\n", "ascii")
        script = f"-Wl,--version-script={symbols}"
        self._link(target, sources, 0o644, (*_LINK_LIBRARY, *flags, script))

    def link_program(self, target: Path, sources: Sequence[str]) -> None:
        """Link a program of ``sources``. Raises as ``link_library``."""
        self._link(target, sources, 0o755, _LINK_PROGRAM)

    def _link(self, target: Path, sources: Sequence[str], mode: int, flags: Sequence[str]) -> None:
        """Link beside ``target`` and rename, so that running programs keep the old one."""
        with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as scratch:
            built = Path(scratch) / target.name
            objects = [str(self._directory / Path(source).with_suffix(".o")) for source in sources]
            _run([*flags, "-o", str(built), *objects, "-ldl"], self._directory)
            built.chmod(mode)
            built.replace(target)


@contextlib.contextmanager
def compiled(*parts: Sequence[str]) -> Iterator[CompiledSources]:
    """Yield the sources of all ``parts``, compiled, until the end of the context.

    Raises ``EmulatorError`` without a compiler and when they do not compile.
    """
    with tempfile.TemporaryDirectory(prefix="vigil-emulator-") as scratch:
        directory = Path(scratch)
        sources = [*dict.fromkeys(str(SOURCES / source) for part in parts for source in part)]
        workers = min(os.cpu_count() or 1, len(sources))
        with ThreadPoolExecutor(workers) as compilers:
            shares = [[*_COMPILE, "-c", *sources[first::workers]] for first in range(workers)]
            list(compilers.map(lambda share: _run(share, directory), shares))
        yield CompiledSources(directory)


def _run(arguments: Sequence[str], directory: Path) -> None:
    compiler = shlex.split(os.environ.get("CC", "")) or ["gcc"]
    if shutil.which(compiler[0]) is None:
        raise EmulatorError(
            f"the emulator needs the C compiler {compiler[0]!r}, which is not on PATH; "
            "install gcc (for example: apt-get install gcc libc6-dev) or set CC"
        )
    command = [*compiler, *arguments]
    result = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, errors="replace", check=False
    )
    if result.returncode != 0:
        raise EmulatorError(
            f"the emulator does not compile: {shlex.join(command)}\n{result.stderr.strip()}"
        )
