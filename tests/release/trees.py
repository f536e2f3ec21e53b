"""Copies of the source tree, and builds of them as another user on another day."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.parts.tree import ROOT, files

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "0.1.0"
COMMIT = "c0ffee" + "0" * 34
EPOCH = 1_790_000_000
_LATER = """
import time
_time = time.time
time.time = lambda: _time() + {seconds}
"""
_BUILD = """
from pathlib import Path
from release.build import Source, build_chart, build_python
source = Source(Path({tree!r}), {version!r}, {commit!r}, {epoch})
build_python(source, Path({output!r}))
build_chart(source, Path({output!r}))
"""


def copy_tree(target: Path) -> Path:
    """Copy the files of the repository but for tests and documents that no archive has."""
    for name in files():
        if name.partition("/")[0] not in ("tests", "benchmarks", ".ci"):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


def build(tree: Path, output: Path, *, umask: int = 0o022, later_seconds: int = 0) -> None:
    """Build wheel, sdist, chart and SBOM of ``tree`` into ``output``.

    ``later_seconds`` moves Python's clock: there is not a way to set the machine's for one process.
    """
    output.mkdir()
    clock = output.with_name(f"{output.name}-clock")
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(_LATER.format(seconds=later_seconds))
    code = _BUILD.format(
        tree=str(tree),
        version=VERSION,
        commit=COMMIT,
        epoch=EPOCH,
        output=str(output),
    )
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{clock}:{tree}"},
        umask=umask,
        check=True,
    )
