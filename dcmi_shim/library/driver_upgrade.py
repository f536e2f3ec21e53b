"""Which vendor library is installed now, and whether it is the one that is in use.

A driver is upgraded while the agent runs: its directory is deleted and created again, and a process
that has the library loaded continues with the deleted files. So the library is searched again
before each start of a process, and compared by the identity of its files with the one in use.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, TypeAlias

from contract.errors import DriverError, DriverNotFound
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dcmi_shim.library.discovery import FoundLibrary

    File: TypeAlias = tuple[str, int, int, int, int]
    """Path, device, inode, size and time of the last change (nanoseconds)."""

_log = logging.getLogger(__name__)
_MAX_FILES = 2000


class Installation(Record, frozen=True):
    """A library with the identity of its files and of the libraries beside it."""

    library: FoundLibrary
    files: tuple[File, ...]


class Installed:
    """The library in use. ``find`` finds the installed one; it is called in a thread.

    Without ``find`` the library is always expected at its present path.
    """

    def __init__(
        self, library: FoundLibrary, find: Callable[[], FoundLibrary] | None = None
    ) -> None:
        self._library = library
        self._find = find or (lambda: library)
        self._in_use: Installation | None = None
        self._seen: Installation | None = None
        self._is_missing = False

    @property
    def library(self) -> FoundLibrary:
        """The library that processes have loaded, or will load first."""
        return self._library if self._in_use is None else self._in_use.library

    @property
    def in_use(self) -> Installation | None:
        """The installation that processes have loaded.

        The same object until another one is adopted.
        """
        return self._in_use

    async def find(self) -> Installation:
        """Find the library that is installed now. Raises ``DriverNotFound``."""
        return await asyncio.to_thread(self._find_now)

    def adopt(self, installation: Installation) -> bool:
        """Record that processes have loaded ``installation``.

        Returns whether it replaces another one.
        """
        if installation == self._in_use:
            return False
        is_other, self._in_use = self._in_use is not None, installation
        if is_other:
            _log.warning("driver: the replaced library %s is in use", self.library.path)
            for warning in self.library.warnings:
                _log.warning("driver: %s", warning)
        return is_other

    async def is_in_use(self) -> bool:
        """Return whether the library that is installed now is the one in use."""
        try:
            return await self.find() == self._in_use
        except DriverError:
            return False

    async def is_replaced(self) -> bool:
        """Return whether another library than the one in use is installed completely, as far as is
        seen.

        It is complete when it is the same as at the call before. It is logged once that the one in
        use is not installed any more.
        """
        if self._in_use is None:
            return False
        # Forgotten first: after an error two further checks have to agree.
        before, self._seen = self._seen, None
        try:
            self._seen = await self.find()
        except DriverError as error:
            if not self._is_missing:
                reason = " ".join(str(error).split())
                _log.warning("driver: its files are gone; they are searched again: %s", reason)
            self._is_missing = True
            return False
        self._is_missing = False
        return self._seen == before and self._seen != self._in_use

    def _find_now(self) -> Installation:
        library = self._find()
        try:
            files = _files(library.path, library.search)
        except OSError as error:
            raise DriverNotFound(f"{library.path}: {error.strerror}") from error
        return Installation(library, files)


def _files(path: Path, search: tuple[Path, ...]) -> tuple[File, ...]:
    """Return the identity of the library and of the libraries in its directories."""
    paths = [str(path)]
    for directory in search:
        with os.scandir(directory) as entries:
            # In one order, since the result is compared and ``scandir`` has none.
            paths += sorted(entry.path for entry in entries if ".so" in entry.name)
    versions = []
    for name in paths[:_MAX_FILES]:
        try:
            status = os.stat(name)  # noqa: PTH116
        except FileNotFoundError:
            if name == paths[0]:
                raise
            continue  # a link to nothing is not a library
        versions.append((name, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(versions)
