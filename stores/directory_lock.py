"""The lock by which one of several aggregators that write to a directory leads.

It belongs to the process: the kernel gives it back when that ends, however it does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from stores.directory_files import LEADER_LOCK_NAME, LOCK_MODE, close_locks, storage_error

if TYPE_CHECKING:
    from pathlib import Path

_LONGEST_BYTES = 500


class DirectoryLock:
    """See ``LeaderLock``."""

    def __init__(self, root: Path) -> None:
        self._path = root / LEADER_LOCK_NAME
        self._descriptor: int | None = None

    def take(self, holder: str) -> bool:
        """See ``LeaderLock``."""
        if self._descriptor is not None:
            return True
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            close_locks(self._path.parent)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, LOCK_MODE)
        except OSError as error:
            raise storage_error(error, f"open {self._path}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return False
            raise storage_error(error, f"lock {self._path}") from error
        self._descriptor = descriptor
        with contextlib.suppress(OSError):  # who it is, is for people
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode(), 0)
        return True

    def holder(self) -> str:
        """See ``LeaderLock``."""
        try:
            with self._path.open("rb") as file:
                return file.read(_LONGEST_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def release(self) -> None:
        """See ``LeaderLock``."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
