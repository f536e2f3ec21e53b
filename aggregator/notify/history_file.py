"""The history of faults, as nodes sent it and as it was published, in one SQLite file.

Blocking; ``history`` calls it in a thread. Every commit waits for the disk (``synchronous=FULL``):
what a node was acknowledged survives a power cut. Positions, one for each journal of a node, change
together with their events, so no event is ever there twice.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from contract.documents.episodes import EpisodeEvent
from contract.pages.changes import FaultChange
from contract.pages.history import HistoryPage, HistoryRow, history_event
from service.files.database import move_aside, open_database, transaction, used_bytes
from stores.base import HistoryAck, HistoryBatch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from contract.pages.history import HistoryRange

FILE_NAME = "history.sqlite"
SCHEMA_VERSION = 2
MAX_AGE_MS = 90 * 86_400_000
MAX_BYTES = 256 << 20
_PRUNE_ROWS = 2_000
_MAX_JOURNALS_PER_NODE = 8
_BUSY_SECONDS = 5.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    node TEXT NOT NULL,
    journal TEXT NOT NULL,
    received_at_ms INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS nodes ON events (node, number);
CREATE INDEX IF NOT EXISTS times ON events (received_at_ms);
CREATE TABLE IF NOT EXISTS runs (
    job TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spans (
    began_ms INTEGER PRIMARY KEY,
    until_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS positions (
    node TEXT NOT NULL,
    journal TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    lost_after INTEGER NOT NULL,
    received_at_ms INTEGER NOT NULL,
    PRIMARY KEY (node, journal)
) STRICT, WITHOUT ROWID;
"""

_STANDING = """
CREATE TABLE standing (
    node TEXT NOT NULL,
    subject TEXT NOT NULL,
    code TEXT NOT NULL,
    level TEXT NOT NULL,
    PRIMARY KEY (node, subject, code)
) STRICT, WITHOUT ROWID;
"""
"""The levels that are published now; the table is missing until they are known."""

PublishedLevels: TypeAlias = dict[str, dict[tuple[str, str], str]]
"""Node to subject and code to level."""


def move_older_aside(path: Path, now_ms: int) -> Path | None:
    """Move a file of an earlier schema aside; return its new path, ``None`` where it stays.

    Raises ``sqlite3.Error`` or ``OSError``. A file that is broken or of a later schema stays.
    """
    if not path.exists():
        return None
    with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    # A file of version 0 has no tables yet: its process ended while it made the file.
    return move_aside(path, now_ms) if 0 < version < SCHEMA_VERSION else None


class StoredBatches(msgspec.Struct, frozen=True):
    """The result of storing batches: an acknowledgement for each journal, and how many rows are
    new.
    """

    acks: tuple[HistoryAck, ...]
    events: int = 0
    lost: int = 0
    refused: int = 0


class HistoryFile:
    """The writing connection. Raises ``sqlite3.Error`` or ``OSError`` when the disk fails."""

    def __init__(self, path: Path) -> None:
        self._connection = open_database(path, _SCHEMA, SCHEMA_VERSION, synchronous="FULL")

    def store_batches(self, batches: Iterable[HistoryBatch], now_ms: int) -> StoredBatches:
        """Store what of ``batches`` is next; all of it or, with an error, nothing.

        A batch that begins behind what is stored of its journal changes nothing; of one that begins
        before it only the new rows are stored.
        """
        acks: dict[tuple[str, str], HistoryAck] = {}
        events = lost = refused = 0
        with transaction(self._connection):
            for batch in batches:
                stored, lost_after = self._position(batch)
                key = batch.node, batch.journal
                # The newest answer of a journal is the last one: acknowledgements keep their order.
                acks.pop(key, None)
                acks[key] = HistoryAck(batch.node, batch.journal, max(stored, batch.upto))
                if batch.after > stored:
                    acks[key] = HistoryAck(batch.node, batch.journal, stored)
                    refused += 1
                elif batch.upto > stored:
                    new = [event for event in batch.events if event.sequence > stored]
                    # A node reports a lost part with each batch behind it until that is
                    # acknowledged.
                    gap = batch.lost if lost_after < batch.after else 0
                    self._keep(batch, new, gap, now_ms)
                    events += len(new)
                    lost += gap
        return StoredBatches(tuple(acks.values()), events, lost, refused)

    def begin_levels(self, levels: PublishedLevels) -> None:
        """Set the levels that are published now, without an event; unless the history has them."""
        if _has_table(self._connection, "standing"):
            return
        with transaction(self._connection):
            self._connection.execute(_STANDING)
            self._stand(
                (node, *key, level)
                for node, faults in levels.items()
                for key, level in faults.items()
            )

    def store_changes(self, changes: Iterable[FaultChange]) -> None:
        """Store published changes; all of them or, with an error, none."""
        changes = tuple(changes)
        with transaction(self._connection):
            self._connection.executemany(
                "INSERT INTO events (node, journal, received_at_ms, lost, body)"
                " VALUES (?, '', ?, 0, ?)",
                (
                    (change.node, change.at_ms, msgspec.json.encode(change).decode())
                    for change in changes
                ),
            )
            # A missing table is a history without levels, which differs from one in which nothing
            # stands.
            if not _has_table(self._connection, "standing"):
                self._connection.execute(_STANDING)  # the file before this one was broken
            for change in changes:
                if change.level is None:
                    self._connection.execute(
                        "DELETE FROM standing WHERE node = ? AND subject = ? AND code = ?",
                        (change.node, change.subject, change.code),
                    )
                else:
                    self._stand([(change.node, change.subject, change.code, change.level)])

    def store_runs(self, runs: Mapping[str, str | None]) -> None:
        """Store the runs of jobs, by uid; ``None`` deletes that of a job."""
        gone = [(uid,) for uid, text in runs.items() if text is None]
        rows = [(uid, text) for uid, text in runs.items() if text is not None]
        with transaction(self._connection):
            self._connection.executemany("DELETE FROM runs WHERE job = ?", gone)
            self._connection.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?)", rows)

    def extend_span(self, began_ms: int, until_ms: int) -> None:
        """Store that this process, which began then, has recorded everything until ``until_ms``."""
        with transaction(self._connection):
            self._connection.execute(
                "INSERT INTO spans VALUES (?, ?)"
                " ON CONFLICT DO UPDATE SET until_ms = max(until_ms, excluded.until_ms)",
                (began_ms, until_ms),
            )
            self._connection.execute(
                "DELETE FROM spans WHERE until_ms < ?", (until_ms - MAX_AGE_MS,)
            )

    def _stand(self, rows: Iterable[tuple[str, str, str, str]]) -> None:
        self._connection.executemany("INSERT OR REPLACE INTO standing VALUES (?, ?, ?, ?)", rows)

    def _position(self, batch: HistoryBatch) -> tuple[int, int]:
        """Return up to which sequence a journal is stored, and behind which one rows of it were
        last lost.
        """
        row = self._connection.execute(
            "SELECT sequence, lost_after FROM positions WHERE node = ? AND journal = ?",
            (batch.node, batch.journal),
        ).fetchone()
        return (0, -1) if row is None else (row[0], row[1])

    def _keep(self, batch: HistoryBatch, new: list[EpisodeEvent], lost: int, now_ms: int) -> None:
        node, journal = batch.node, batch.journal
        insert = (
            "INSERT INTO events (node, journal, received_at_ms, lost, body) VALUES (?, ?, ?, ?, ?)"
        )
        if lost:
            self._connection.execute(insert, (node, journal, now_ms, lost, "null"))
        self._connection.executemany(
            insert,
            ((node, journal, now_ms, 0, msgspec.json.encode(event).decode()) for event in new),
        )
        self._connection.execute(
            "INSERT INTO positions VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " sequence = excluded.sequence, received_at_ms = excluded.received_at_ms,"
            " lost_after = max(lost_after, excluded.lost_after)",
            (node, journal, batch.upto, batch.after if lost else -1, now_ms),
        )
        # Of journals that were replaced since long nothing comes any more.
        self._connection.execute(
            "DELETE FROM positions WHERE node = ? AND journal NOT IN (SELECT journal FROM positions"
            " WHERE node = ? ORDER BY received_at_ms DESC, journal = ? DESC LIMIT ?)",
            (node, node, journal, _MAX_JOURNALS_PER_NODE),
        )

    def prune(self, now_ms: int, *, max_bytes: int = MAX_BYTES) -> bool:
        """Delete some of the oldest events if they are too old or the file is too large.

        Positions stay. Return whether there may be more to delete.
        """
        too_large = used_bytes(self._connection) > max_bytes
        deleted = self._connection.execute(
            "DELETE FROM events WHERE number IN"
            " (SELECT number FROM events ORDER BY number LIMIT ?) AND (? OR received_at_ms < ?)",
            (_PRUNE_ROWS, too_large, now_ms - MAX_AGE_MS),
        ).rowcount
        return deleted == _PRUNE_ROWS

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def read_page(path: Path, query: HistoryRange) -> HistoryPage:
    """Read a part of the history. Raises ``sqlite3.Error`` or ``OSError``."""
    if not path.exists():
        return HistoryPage((), query.after or 0, more=False)
    where = ["number > ?"]
    parameters: list[object] = [-1 if query.after is None else query.after]
    if query.node is not None:
        where.append("node = ?")
        parameters.append(query.node)
    if query.since_ms is not None:
        where.append("received_at_ms >= ?")
        parameters.append(query.since_ms)
    newest = query.after is None and query.since_ms is None
    with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
        if not _has_table(connection, "events"):
            return HistoryPage((), query.after or 0, more=False)
        rows = connection.execute(
            "SELECT number, node, journal, received_at_ms, lost, body FROM events"
            f" WHERE {' AND '.join(where)} ORDER BY number {'DESC' if newest else ''} LIMIT ?",
            (*parameters, query.limit + 1),
        ).fetchall()
    more = len(rows) > query.limit and not newest
    rows = rows[: query.limit]
    if newest:
        rows.reverse()
    entries = tuple(_entry(*row) for row in rows)
    return HistoryPage(entries, entries[-1].number if entries else query.after or 0, more)


def read_changes(path: Path, nodes: Collection[str], since_ms: int) -> list[FaultChange]:
    """Return how the published state of nodes changed, the oldest first.

    Raises ``sqlite3.Error`` or ``OSError``.
    """
    changes: list[FaultChange] = []
    for rows in _rows(path, "events", _CHANGES, [(node, since_ms) for node in sorted(nodes)]):
        changes += [_change.decode(body) for (body,) in rows]
    return changes


def read_runs(path: Path) -> dict[str, str]:
    """Return the stored runs of jobs, by uid. Raises ``sqlite3.Error`` or ``OSError``."""
    (rows,) = _rows(path, "runs", "SELECT job, body FROM runs", [()])
    return dict(rows)


def read_spans(path: Path) -> list[tuple[int, int]]:
    """Return from when until when processes have recorded everything, in their order.

    A part of which events were deleted, as the file was too large, is not in them. Raises
    ``sqlite3.Error`` or ``OSError``.
    """
    (spans,) = _rows(path, "spans", "SELECT began_ms, until_ms FROM spans ORDER BY began_ms", [()])
    (first,) = _rows(path, "events", _FIRST, [()])
    newest_ms = max((until for _, until in spans), default=0)
    from_ms = max([newest_ms - MAX_AGE_MS, *(at_ms for (at_ms,) in first)])
    return [(max(began, from_ms), until) for began, until in spans if until > from_ms]


_CHANGES = (
    "SELECT body FROM events"
    " WHERE node = ? AND journal = '' AND received_at_ms >= ? ORDER BY number"
)
_FIRST = (
    "SELECT received_at_ms FROM events"
    " WHERE number = (SELECT min(number) FROM events) AND number > 1"
)
"""The oldest event that is left, where one before it was deleted."""


def _rows(
    path: Path, table: str, query: str, parameters: Sequence[tuple[str | int, ...]]
) -> list[list[Any]]:
    """Return the rows for each of ``parameters``; none where there is no such table yet."""
    if not path.exists():
        return [[] for _ in parameters]
    with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
        if not _has_table(connection, table):
            return [[] for _ in parameters]
        return [connection.execute(query, values).fetchall() for values in parameters]


def read_published_levels(path: Path) -> PublishedLevels | None:
    """Return the levels that the history has as published; ``None`` where it has none.

    Raises ``sqlite3.Error`` or ``OSError``.
    """
    if not path.exists():
        return None
    levels: PublishedLevels = {}
    with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
        if not _has_table(connection, "standing"):
            return None
        rows = connection.execute("SELECT node, subject, code, level FROM standing")
        for node, subject, code, level in rows:
            levels.setdefault(node, {})[subject, code] = level
    return levels


def read_levels_at(path: Path, at_ms: int, node: str | None = None) -> PublishedLevels:
    """Return the levels that were published at a time, of ``node`` or of all nodes.

    They are those that are published now, without each later change, the newest first. Raises
    ``sqlite3.Error`` or ``OSError``.
    """
    levels: PublishedLevels = {}
    if not path.exists():
        return levels
    with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
        # Both reads see one state of the file.
        connection.execute("BEGIN")
        if not _has_table(connection, "standing"):
            return levels
        of_node, parameters = ("", ()) if node is None else ("node = ? AND ", (node,))
        standing = connection.execute(
            f"SELECT node, subject, code, level FROM standing WHERE {of_node}TRUE", parameters
        )
        for name, subject, code, level in standing:
            levels.setdefault(name, {})[subject, code] = level
        for (body,) in connection.execute(
            f"SELECT body FROM events WHERE {of_node}journal = '' AND received_at_ms > ?"
            " ORDER BY number DESC",
            (*parameters, at_ms),
        ):
            change = _change.decode(body)
            faults = levels.setdefault(change.node, {})
            if change.was is None:
                faults.pop((change.subject, change.code), None)
            else:
                faults[change.subject, change.code] = change.was
    return levels


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    row = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    return row is not None


def _entry(number: int, node: str, journal: str, at_ms: int, lost: int, body: str) -> HistoryRow:
    if journal:
        event = _event.decode(body)
        shown = None if event is None else history_event(event)
        return HistoryRow(number, node, journal, at_ms, shown, lost)
    return HistoryRow(number, node, journal, at_ms, published=_change.decode(body))


_event = msgspec.json.Decoder(EpisodeEvent | None)
_change = msgspec.json.Decoder(FaultChange)
