"""The lock by which one of several aggregators that write to a directory leads.

It belongs to the process: the kernel gives it back when that ends, however it does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from typing_extensions import override

from stores.base import LeaderLock
from stores.directory import files

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES = 500


class DirectoryLock(LeaderLock):
    """A lock on a file below ``root``, which the kernel releases with the process."""

    def __init__(self, root: Path) -> None:
        self._path = root / files.LEADER_LOCK_NAME
        self._descriptor: int | None = None

    @override
    def take(self, holder: str) -> bool:
        # A second ``open`` would be refused its own lock: flock
        # belongs to the open file (flock(2)).
        if self._descriptor is not None:
            return True
        files.make(self._path.parent)
        files.close_locks(self._path.parent)
        # The directory of the store itself may be a link of the operator's.
        with files.opened_directory(self._path.parent, follow=True) as directory:
            descriptor = files.open_lock(directory, self._path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return False
            raise files.storage_error(error, f"lock {self._path}") from error
        self._descriptor = descriptor
        with contextlib.suppress(OSError):  # the holder is only for the log
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode(), 0)
        return True

    @override
    def holder(self) -> str:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                return file.read(_MAX_BYTES).decode(errors="replace")
        except OSError:
            return ""

    @override
    def release(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
