"""Keeps the last known state of stores in the state directory.

A broker without persistence or an unmounted directory may come back without its documents. With
this file the last state of nodes outlasts a restart of the aggregator: their documents, which of
them beat, what was published and the state of aggregator plugins. Rows are written behind, at most
twice a second and in a thread, so that no publication waits for them. Commits do not wait for the
disk: they survive ``kill -9``, and a power cut may take the last one. The file of one process has
what that process has read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import msgspec

from contract.plural import plural
from pacing.backoff import Backoff
from service.files.database import is_damaged, move_aside, open_database, transaction
from service.tasks import in_thread
from stores.base import Document

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from aggregator.liveness.lost_nodes import ObservedHeartbeat
    from service.clock import Clock

FILE_NAME = "last-known.sqlite"
SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS known (
    store TEXT NOT NULL,
    kind TEXT NOT NULL,
    place TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (store, kind, place)
) STRICT
"""


class LastKnownRow(NamedTuple):
    """One row; an empty body removes it."""

    store: str
    kind: str
    place: str
    body: bytes


class KnownFile:
    """The open file. All methods raise ``sqlite3.Error`` and ``OSError``."""

    def __init__(self, path: Path) -> None:
        self._connection = open_database(path, _SCHEMA, SCHEMA_VERSION, synchronous="NORMAL")
        try:
            query = "SELECT coalesce(sum(length(body)), 0) FROM known"
            self._bytes: int = self._connection.execute(query).fetchone()[0]
        except BaseException:
            self._connection.close()
            raise

    def rows(self) -> list[LastKnownRow]:
        """Return all rows."""
        query = "SELECT store, kind, place, body FROM known ORDER BY store, kind, place"
        return [LastKnownRow(*row) for row in self._connection.execute(query)]

    def write(self, rows: Iterable[LastKnownRow], most_bytes: int) -> int:
        """Write all rows or, with an error, none; return how many do not fit into
        ``most_bytes``.
        """
        connection, size, left_out = self._connection, self._bytes, 0
        # All or nothing: a row of completeness must not be stored without the rows before it.
        with transaction(connection):
            for row in rows:
                where = (row.store, row.kind, row.place)
                stored = connection.execute(
                    "SELECT length(body) FROM known WHERE store = ? AND kind = ? AND place = ?",
                    where,
                ).fetchone()
                grown = size + len(row.body) - (0 if stored is None else stored[0])
                # Removals always go: they make room.
                if row.body and grown > most_bytes:
                    left_out += 1
                    continue
                size = grown
                if row.body:
                    connection.execute("INSERT OR REPLACE INTO known VALUES (?, ?, ?, ?)", row)
                else:
                    connection.execute(
                        "DELETE FROM known WHERE store = ? AND kind = ? AND place = ?", where
                    )
        self._bytes = size
        return left_out

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


_log = logging.getLogger(__name__)

# Written behind, within about a second (decision 21): a storm is one commit.
_GATHER_SECONDS = 0.5
_MAX_BYTES = 256 << 20
_TROUBLE = (sqlite3.Error, OSError)

DOCUMENT, BEAT, COMPLETE = "document", "beat", "complete"


class KnownBeat(msgspec.Struct, frozen=True):
    """The heartbeat of a node. Times are not kept: a heartbeat that is missing is silence from now
    on.
    """

    holder: str
    interval_ms: int


class LastKnownStore(msgspec.Struct):
    """What an earlier run has read of one store.

    ``is_complete``: that run had listed the store and written all of it, so a node without a row
    had been ended.
    """

    documents: dict[tuple[str, str], Document] = {}
    beats: dict[str, KnownBeat] = {}
    is_complete: bool = False


_document = msgspec.msgpack.Decoder(Document)
_beat = msgspec.msgpack.Decoder(KnownBeat)


class LastKnown:
    """The rows of all stores in a file below ``directory``."""

    def __init__(self, directory: Path, clock: Clock, most_bytes: int = _MAX_BYTES) -> None:
        self.trouble: str | None = None
        """Why nothing can be written now."""
        self._path = directory / FILE_NAME
        self._clock = clock
        self._most_bytes = most_bytes
        self._file: KnownFile | None = None
        self._waiting: dict[tuple[str, str, str], msgspec.Struct | None] = {}
        self._versions: dict[tuple[str, str], str] = {}
        self._came = asyncio.Event()

    def load(self) -> dict[str, LastKnownStore]:
        """Return what an earlier run has read, by store URL. Blocks.

        A file or row that cannot be read is logged and ignored.
        """
        stores: dict[str, LastKnownStore] = {}
        try:
            rows = self._open().rows()
        except _TROUBLE as error:
            self._fail(error)
            self._close_after(error)
            return stores
        unreadable = 0
        for row in rows:
            store = stores.setdefault(row.store, LastKnownStore({}, {}))
            try:
                self._restore_row(store, row)
            except (msgspec.MsgspecError, UnicodeError):
                unreadable += 1
        if unreadable:
            _log.error("%s: %s cannot be read: ignored", self._path, plural(unreadable, "row"))
        return stores

    def _restore_row(self, store: LastKnownStore, row: LastKnownRow) -> None:
        if row.kind == DOCUMENT:
            document = _document.decode(row.body)
            store.documents[document.namespace, document.name] = document
            self._versions[row.store, row.place] = document.version
        elif row.kind == BEAT:
            store.beats[row.place] = _beat.decode(row.body)
        elif row.kind == COMPLETE:
            store.is_complete = True

    def record(self, store: str, namespace: str, name: str, document: Document | None) -> None:
        """Record a document of the store as it is now; ``None``: it is gone."""
        place = f"{namespace}/{name}"
        if document is None:
            self._versions.pop((store, place), None)
        # The same version is written already; a broker has no versions, so there each document is.
        elif document.version and self._versions.get((store, place)) == document.version:
            return
        else:
            self._versions[store, place] = document.version
        self._queue(store, DOCUMENT, place, document)

    def record_beat(self, store: str, node: str, heartbeat: ObservedHeartbeat | None) -> None:
        """Record the heartbeat of a node; ``None``: it is gone."""
        beat = None if heartbeat is None else KnownBeat(heartbeat.holder, heartbeat.interval_ms)
        self._queue(store, BEAT, node, beat)

    def record_listed(self, store: str) -> None:
        """Record that the store was listed: all rows before this one are all of it."""
        self._queue(store, COMPLETE, "", KnownBeat("", 0))

    def _queue(self, store: str, kind: str, place: str, value: msgspec.Struct | None) -> None:
        self._waiting[store, kind, place] = value
        self._came.set()

    async def run(self) -> NoReturn:
        """Write behind until cancelled, then write what is left and close the file."""
        # A disk that is full is tried again, at most every 30 s.
        backoff = Backoff(_GATHER_SECONDS, 30.0)
        try:
            while True:
                await self._came.wait()
                await asyncio.sleep(_GATHER_SECONDS)
                self._came.clear()
                if await self._flush():
                    backoff.reset()
                else:
                    await asyncio.sleep(backoff.next_seconds())
                    self._came.set()
        finally:
            if self._waiting:
                # Not in a thread: the loop ends, and this is the last chance to keep the rows.
                self._write(dict(self._waiting))
            self._close()

    async def _flush(self) -> bool:
        taken, self._waiting = self._waiting, {}
        is_written = await in_thread(partial(self._write, taken))
        if not is_written:
            # Newer rows win over those that could not be written.
            self._waiting = taken | self._waiting
        return is_written

    def _write(self, taken: dict[tuple[str, str, str], msgspec.Struct | None]) -> bool:
        """Write rows in a thread; return whether that was done."""
        rows = (
            LastKnownRow(*key, b"" if value is None else msgspec.msgpack.encode(value))
            for key, value in taken.items()
        )
        try:
            left_out = self._open().write(rows, self._most_bytes)
            if left_out:
                # With a document missing, absence in this file proves nothing any more.
                incomplete = {LastKnownRow(store, COMPLETE, "", b"") for store, _, _ in taken}
                self._open().write(incomplete, self._most_bytes)
        except _TROUBLE as error:
            self._fail(error)
            self._close_after(error)
            return False
        trouble = None
        if left_out:
            trouble = f"no room for {plural(left_out, 'document')} in {self._most_bytes} bytes"
        if trouble is not None and self.trouble is None:
            _log.error("%s: %s; their last state is not saved", self._path, trouble)
        elif trouble is None and self.trouble is not None:
            _log.info("%s is written again", self._path)
        self.trouble = trouble
        return True

    def _open(self) -> KnownFile:
        if self._file is None:
            self._file = KnownFile(self._path)
        return self._file

    def _fail(self, error: Exception) -> None:
        if self.trouble is None:
            _log.error(
                "%s: %s; what a store forgets while the aggregator does not run is not known",
                self._path,
                error,
            )
        self.trouble = str(error)

    def _close_after(self, error: Exception) -> None:
        self._close()
        if is_damaged(error):
            with contextlib.suppress(OSError):
                aside = move_aside(self._path, self._clock().wall_ms)
                _log.error("%s: is broken; moved to %s", self._path, aside.name)

    def _close(self) -> None:
        with contextlib.suppress(*_TROUBLE):
            if self._file is not None:
                self._file.close()
        self._file = None
