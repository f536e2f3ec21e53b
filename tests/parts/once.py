"""Folders that the workers of a run share, each filled by the first worker that needs it."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

RUN_FOLDER = "VIGIL_TEST_RUN_FOLDER"
"""The variable with the folder that the processes of ``make unit`` share."""


def run_folder(base: Path) -> Path:
    """Return the folder for temporary files of a run; ``base`` is that of this process.

    With several workers the one lies in the other.
    """
    if RUN_FOLDER in os.environ:
        return Path(os.environ[RUN_FOLDER])
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def once(base: Path, name: str, fill: Callable[[Path], object]) -> Path:
    """Return the folder ``name`` of the run, which ``fill`` has made and filled, once.

    Where ``fill`` fails, what it has made is removed: the next worker begins anew.
    """
    folder = run_folder(base) / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            try:
                fill(folder)
            except BaseException:  # the time of a test may be over, too
                shutil.rmtree(folder)
                raise
    return folder
