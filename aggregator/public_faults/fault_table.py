"""The table of codes and resources in force: from the ConfigMap, else from the file, else the
shipped one.

``docs/spec/clusterd.md#4.5``. A bad text leaves the last good table in force (defect B21).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

import aiofiles

from contract.errors import DocumentError, Problem
from contract.operator_rules.public_fault_table import (
    MAX_BYTES,
    TABLE_KEY,
    PublicFaultTable,
    read_public_fault_table,
    shipped_table,
)
from service.log.ongoing_failure import OngoingFailure, OngoingFailures
from stores.base import Changed, Deleted, DocumentsListed, Selection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stores.base import WatchEvent

_log = logging.getLogger(__name__)

NAMESPACE, NAME = "cluster-system", "npu-vigil-public-faults"
CONFIG_MAP = Selection(namespace=NAMESPACE, name=NAME)
FILE, SHIPPED = "file", "shipped"
# Polled: inotify shows no change of a file that is replaced on the host of a bind mount.
_POLL_SECONDS = 1.0
_NO_FILE = (0, 0, 0)


class FaultTables:
    """The good tables by place: a store's number stands for its ConfigMap."""

    def __init__(self) -> None:
        self.problems: dict[str, tuple[Problem, ...]] = {}
        """What is wrong, by place."""
        self.unreadable: OngoingFailures[str] = OngoingFailures(
            _log,
            "codes of public faults from %s stay as they were: %s",
            "codes of public faults from %s are good again",
        )
        """Why the text that is there is not in force, by place."""
        self._good: dict[str, PublicFaultTable] = {}

    @property
    def place(self) -> str:
        """The place of the table in force."""
        # A ConfigMap before the file: the first store by its place name, and the file last.
        return min(self._good, key=lambda place: (place == FILE, place), default=SHIPPED)

    @property
    def in_force(self) -> PublicFaultTable:
        """The table in force."""
        return self._good.get(self.place) or shipped_table()

    def observe_config_map(self, source: int, event: WatchEvent) -> None:
        """Apply an event of the ConfigMap in the store with this number."""
        place = f"{NAMESPACE}/{NAME} of store {source}"
        match event:
            case DocumentsListed(documents):
                data = next((document.data for document in documents), None)
                self.put(place, None if data is None else data.get(TABLE_KEY))
            case Changed(document):
                self.put(place, document.data.get(TABLE_KEY))
            case Deleted():
                self.put(place, None)

    def put(self, place: str, text: str | None) -> None:
        """Set the text at ``place``; ``None``: there is none."""
        # Without the text its table goes; one that is wrong leaves the last good one (defect B21).
        if text is None:
            self._good.pop(place, None)
            self.problems.pop(place, None)
            self.unreadable.forget(place)
            return
        try:
            table, problems = read_public_fault_table(text, place)
        except DocumentError as error:
            self.unreadable.record_failure(place, str(error))
            return
        self.unreadable.end(place)
        if problems and self.problems.get(place) != problems:
            _log.warning(
                "codes of public faults from %s: %s", place, "; ".join(map(str, problems[:10]))
            )
        self.problems[place] = problems
        self._good[place] = table


async def follow_table(path: Path, configure: Callable[[str | None], object]) -> NoReturn:
    """Pass the text of the file to ``configure``, first at once, then whenever it changes; ``None``
    without a file.

    In upstream's installation the file lies in a directory of the host, and is replaced or written
    in place, so it is polled. A text that cannot be read is logged, and the last one stays in
    force.
    """
    seen: tuple[int, int, int] | None = None
    trouble = OngoingFailure(_log, "%s cannot be read: %s", "%s can be read again", path)
    while True:
        try:
            stamp = await asyncio.to_thread(_look, path)
            if stamp != seen:
                text = None if stamp == _NO_FILE else await _read(path)
                configure(text)
                seen = stamp
            trouble.end()
        except FileNotFoundError:
            pass  # it went after the look
        # The file exists and cannot be read: the last text stays in force.
        except OSError as error:
            trouble.record_failure(str(error.strerror))
        await asyncio.sleep(_POLL_SECONDS)


def _look(path: Path) -> tuple[int, int, int]:
    """Return the stamp of the file, which differs after a change."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return _NO_FILE
    # Time, size and inode: a file that is replaced within one tick of the clock has another inode.
    return status.st_mtime_ns, status.st_size, status.st_ino


async def _read(path: Path) -> str:
    """Return the text of the file; at most one byte more than is accepted."""
    async with aiofiles.open(path, "rb") as file:
        # One byte more shows that the file is too large, without reading all of it.
        return (await file.read(MAX_BYTES + 1)).decode("utf-8", "replace")
