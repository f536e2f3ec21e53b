"""Folders that the workers of a run share, each filled by the first worker that needs it."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def run_folder(base: Path) -> Path:
    """Return the folder for temporary files of a run; ``base`` is that of this process.

    With several workers the one lies in the other.
    """
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def once(base: Path, name: str, fill: Callable[[Path], object]) -> Path:
    """Return the folder ``name`` of the run, after ``fill`` has made its content, once.

    Where ``fill`` fails, the next worker tries it in a folder that may have a part of the content.
    """
    folder = run_folder(base) / name
    folder.mkdir(exist_ok=True)
    done = folder / "filled"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            fill(folder)
            done.touch()
    return folder
