"""Changes of directories as the Linux kernel reports them, without polling (inotify(7))."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

_CLOSE_WRITE = 0x8
_MOVED_FROM = 0x40
_MOVED_TO = 0x80
_CREATE = 0x100
_DELETE = 0x200
_DELETE_SELF = 0x400
_MOVE_SELF = 0x800
_UNMOUNT = 0x2000
_QUEUE_OVERFLOW = 0x4000
_IGNORED = 0x8000
_ONLY_DIRECTORIES = 0x1000000
_IS_DIRECTORY = 0x40000000

_FILES = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_GONE = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED
_HEADER = struct.Struct("iIII")
_READ_BYTES = 64 * 1024

_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """Names of files that changed in the watched directories.

    Made for rename-into-place and for editors: a file that is still being written is not reported.
    """

    def __init__(self) -> None:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise _os_error("inotify_init1")
        self._directories: dict[int, Path] = {}
        self._wake = asyncio.Event()

    def add(self, directory: Path) -> None:
        """Watch ``directory`` too. Raises ``OSError``."""
        mask = _FILES | _DELETE_SELF | _MOVE_SELF | _ONLY_DIRECTORIES
        watch = _libc.inotify_add_watch(self._descriptor, os.fsencode(directory), mask)
        if watch < 0:
            raise _os_error(str(directory))
        self._directories[watch] = directory

    async def changes(self) -> tuple[set[tuple[Path, str]], bool]:
        """Wait for changes, or for ``wake``, and take them."""
        await self._wait()
        return self.taken()

    def wake(self) -> None:
        """End the wait for changes, now or when it begins next."""
        self._wake.set()

    def taken(self) -> tuple[set[tuple[Path, str]], bool]:
        """Take the changes that the kernel has reported: ``(directory, file name)`` pairs.

        The second value is true where more happened than the names show: a directory came or went,
        or the kernel's queue was too short. Then everything is to be read again.
        """
        files: set[tuple[Path, str]] = set()
        everything = False
        while True:
            try:
                buffer = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                return files, everything
            offset = 0
            while offset < len(buffer):
                watch, mask, _, length = _HEADER.unpack_from(buffer, offset)
                name = buffer[offset + _HEADER.size : offset + _HEADER.size + length]
                offset += _HEADER.size + length
                directory = self._directories.get(watch)
                if mask & (_QUEUE_OVERFLOW | _GONE | _IS_DIRECTORY) or directory is None:
                    everything = True
                    # The kernel keeps the watch of a directory that was
                    # moved; the others have ended (inotify(7)).
                    if mask & (_GONE & ~_MOVE_SELF):
                        self._directories.pop(watch, None)
                else:
                    # The kernel fills names up with NUL bytes to align the next event (inotify(7)).
                    file = os.fsdecode(name.rstrip(b"\0"))
                    # Unlike a file that was made, a link is complete at once.
                    if not mask & _CREATE or (directory / file).is_symlink():
                        files.add((directory, file))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    async def _wait(self) -> None:
        # Only for as long as a task waits: a reader left in place would keep the loop busy.
        loop = asyncio.get_running_loop()
        loop.add_reader(self._descriptor, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            loop.remove_reader(self._descriptor)
            self._wake.clear()


def _os_error(action: str) -> OSError:
    number = ctypes.get_errno()
    text = os.strerror(number)
    if number == errno.ENOSPC:
        text = "no inotify watch is left; raise fs.inotify.max_user_watches"
    elif number == errno.EMFILE:
        text = "no inotify instance is left; raise fs.inotify.max_user_instances"
    return OSError(number, text, action)
