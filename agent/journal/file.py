"""The journal on disk: one SQLite file in WAL mode. Blocking; ``journal`` drives it.

Commits do not wait for the disk (``synchronous=OFF``): committed rows survive the death of this
process. ``sync_to_disk`` syncs what must survive a power cut. It has a connection of its own, so it
never delays a commit.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from agent.journal.rows import JournalGap, JournalRow, RowKind
from agent.journal.unacknowledged import SCHEMA as UNACKNOWLEDGED_SCHEMA
from agent.journal.unacknowledged import (
    connect_existing,
    delete_unacknowledged,
    identify,
    keep_acknowledged,
    rename,
)
from contract.errors import JournalError
from service.files.database import (
    ConnectionSettings,
    connect_writer,
    is_damaged,
    move_aside,
    open_database,
    transaction,
    used_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

log = logging.getLogger("agent.journal")

FILE_NAME = "journal.sqlite"
SCHEMA_VERSION = 2
"""Version 1 had other names for the members of a fault, before the first release."""

_SETTINGS = ConnectionSettings(
    busy_seconds=0.1,
    wal_bytes=1 << 20,
    cache_kib=512,
    # A checkpoint within a commit would let it wait for the disk; ``sync_to_disk`` makes them.
    autocheckpoint=False,
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (
    sequence INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS snapshots ON rows (sequence) WHERE kind = 'snapshot';
CREATE INDEX IF NOT EXISTS configurations ON rows (sequence) WHERE kind = 'configuration';
CREATE INDEX IF NOT EXISTS usages ON rows (sequence) WHERE kind = 'usage';
CREATE INDEX IF NOT EXISTS events ON rows (sequence) WHERE kind = 'events';
CREATE INDEX IF NOT EXISTS public_faults ON rows (sequence) WHERE kind = 'public-faults';
CREATE INDEX IF NOT EXISTS gaps ON rows (sequence) WHERE kind = 'gap';
CREATE INDEX IF NOT EXISTS fault_configurations ON rows (sequence)
    WHERE kind = 'fault-configuration';
"""

_IN_FORCE_AT_SNAPSHOT = (
    "SELECT max(sequence) FROM rows WHERE kind = 'fault-configuration' AND sequence <"
    " (SELECT max(sequence) FROM rows WHERE kind = 'snapshot')"
)
MAX_AGE_MS = 30 * 86_400_000
MAX_BYTES = 64 << 20
_MAX_ROWS = 500
"""Rows deleted at a time: a commit waits no longer than that."""
_NEVER = (1 << 63) - 1


class OutdatedJournal(JournalError):
    """The journal has an older schema, which nothing reads any more; ``gap`` is what is lost."""

    def __init__(self, version: int, gap: JournalGap) -> None:
        super().__init__(gap.reason)
        self.version = version
        self.gap = gap


def refuse_outdated(connection: sqlite3.Connection) -> None:
    """Raise ``OutdatedJournal`` for a file with an older schema."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if 0 < version < SCHEMA_VERSION:
        since_ms, rows = connection.execute("SELECT max(at_ms), count(*) FROM rows").fetchone()
        reason = f"its schema is version {version}, known is {SCHEMA_VERSION}"
        raise OutdatedJournal(version, JournalGap(since_ms or 0, reason, rows))


def moved_aside(path: Path, error: Exception, now_ms: int) -> bool:
    """Give a journal that can never be continued another name, and log it; return whether it is.

    ``error`` is why it cannot be used now: it is broken, or outdated, or will work later.
    """
    is_outdated = isinstance(error, OutdatedJournal)
    if not is_outdated and not is_damaged(error):
        return False
    with contextlib.suppress(OSError):
        aside = move_aside(path, now_ms)
        if is_outdated:
            log.warning(
                "journal %s: %s; moved to %s, and a new journal begins. Audits and the published "
                "documents have the faults",
                path,
                error,
                aside.name,
            )
        else:
            log.error("journal %s: broken (%s); moved to %s", path, error, aside.name)
        return True
    return False


class RestoredJournal(msgspec.Struct, frozen=True):
    """What a restart needs: the last snapshot, the policy's inputs since, the last sequence.

    ``events`` has the Kubernetes Events that waited when it was written; ``unacknowledged_changes``
    are the inputs and changes behind it. ``public_faults`` has the storage faults that were sent,
    and those that waited. ``fault_configurations``: the one in force at the snapshot, if there was
    one, and all since. ``gap``: the journal before this one was moved aside, with its rows.
    """

    snapshot: JournalRow | None = None
    inputs: tuple[JournalRow, ...] = ()
    configuration: JournalRow | None = None
    last_sequence: int = 0
    usage: JournalRow | None = None
    events: JournalRow | None = None
    unacknowledged_changes: tuple[JournalRow, ...] = ()
    fault_configurations: tuple[JournalRow, ...] = ()
    public_faults: JournalRow | None = None
    gap: JournalGap | None = None


class JournalFile:
    """The writing connection.

    Raises ``sqlite3.Error`` or ``OSError`` when the disk does not do what it should, and for a
    journal written by a newer version; ``OutdatedJournal`` for one with an older schema.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists():
            # Read-only, because the last connection that closes would make a checkpoint.
            with closing(connect_existing(path, "ro")) as connection:
                refuse_outdated(connection)
        self._connection = open_database(
            path,
            _SCHEMA + UNACKNOWLEDGED_SCHEMA,
            SCHEMA_VERSION,
            synchronous="OFF",
            settings=_SETTINGS,
        )
        try:
            identify(self._connection)
            self._inode = path.stat().st_ino
        except BaseException:
            self._connection.close()
            raise

    def write(self, rows: Iterable[JournalRow]) -> None:
        """Commit all ``rows`` or none."""
        with transaction(self._connection):
            self._connection.executemany(
                # A commit with an error may have been made all the same: its rows come again.
                "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)",
                ((row.sequence, row.at_ms, row.kind, row.body) for row in rows),
            )

    def rename(self) -> None:
        """Give the journal another name for the aggregator."""
        rename(self._connection)

    def is_in_place(self) -> bool:
        """Return whether the path still leads to the open file."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def prune(
        self, *, older_than_ms: int, max_bytes: int, acknowledged: int | None = None
    ) -> Pruned:
        """Delete rows as ``retention.prune`` does."""
        return prune(self._connection, older_than_ms, max_bytes, acknowledged)

    def close(self) -> None:
        """Close the connection; the last one to close moves the WAL into the file."""
        self._connection.close()


def sync_to_disk(path: Path) -> None:
    """Sync all commits so far, so that they survive a power cut. Takes as long as the disk does.

    Raises ``sqlite3.Error`` or ``OSError``.
    """
    connection = connect_writer(path, "FULL", _SETTINGS)
    with closing(connection):
        # Passive: it waits for no reader and blocks no writer.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def _restored_journal(connection: sqlite3.Connection) -> RestoredJournal:
    def rows(where: str, parameters: Sequence[object] = ()) -> tuple[JournalRow, ...]:
        matches = connection.execute(f"SELECT * FROM rows {where}", parameters)
        return tuple(JournalRow(*row) for row in matches)

    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchone():
        return RestoredJournal()
    refuse_outdated(connection)

    def newest(kind: RowKind) -> JournalRow | None:
        where = f"WHERE sequence = (SELECT max(sequence) FROM rows WHERE kind = '{kind}')"
        return next(iter(rows(where)), None)

    snapshot, events = newest(RowKind.SNAPSHOT), newest(RowKind.EVENTS)
    last = connection.execute("SELECT max(sequence) FROM rows").fetchone()[0] or 0
    return RestoredJournal(
        snapshot,
        rows(
            "WHERE sequence > ? AND kind IN ('reports', 'acknowledged') ORDER BY sequence",
            (snapshot.sequence if snapshot else 0,),
        ),
        newest(RowKind.CONFIGURATION),
        last,
        newest(RowKind.USAGE),
        events,
        rows(
            "WHERE sequence > ? AND kind IN ('reports', 'acknowledged', 'changes')"
            " ORDER BY sequence",
            (events.sequence if events else last,),
        ),
        rows(
            "WHERE kind = 'fault-configuration'"
            f" AND sequence >= coalesce(({_IN_FORCE_AT_SNAPSHOT}), 0) ORDER BY sequence"
        ),
        newest(RowKind.PUBLIC_FAULTS),
    )


def read_restored(path: Path) -> RestoredJournal:
    """Return the rows of the journal at ``path`` that a restart needs.

    On a full disk SQLite cannot create the index of a WAL, so that is tried in memory; where
    nothing at all may be written, a copy is read. Raises ``sqlite3.Error``, ``OSError``, or
    ``OutdatedJournal``.
    """
    if not path.exists():
        return RestoredJournal()
    for locking in ("NORMAL", "EXCLUSIVE"):
        with contextlib.suppress(sqlite3.OperationalError):
            return _read(path, locking)
    shared_memory = Path("/dev/shm")
    # In memory, because the disk accepts nothing.
    place = shared_memory if shared_memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="npu-vigil-", dir=place) as directory:
        copy = Path(directory) / path.name
        copyfile(path, copy)
        wal = path.with_name(path.name + "-wal")
        if wal.exists():
            copyfile(wal, copy.with_name(wal.name))
        return _read(copy, "NORMAL")


def _read(path: Path, locking: str) -> RestoredJournal:
    with closing(sqlite3.connect(path, timeout=1)) as connection:
        connection.execute(f"PRAGMA locking_mode={locking}")
        return _restored_journal(connection)


class Pruned(NamedTuple):
    """What ``prune`` did: ``unacknowledged`` rows of changes were deleted before an
    acknowledgement.
    """

    may_be_more: bool
    unacknowledged: int


def prune(
    connection: sqlite3.Connection, older_than_ms: int, max_bytes: int, acknowledged: int | None
) -> Pruned:
    """Delete some of the oldest rows if they are too old or the file is too large.

    The rows that a restart needs stay: the last snapshot and all since, the last configuration, the
    sent Events and storage faults. So do the rows that a replay from the oldest snapshot needs: the
    fault configuration and the chip allocation of that time.

    Changes behind ``acknowledged`` are still to be sent to an aggregator. They are deleted last,
    while the file is still too large. ``acknowledged`` is ``None`` where no aggregator reads them.
    """
    too_large = used_bytes(connection) > max_bytes
    if acknowledged is not None:
        keep_acknowledged(connection, acknowledged)
    deleted = connection.execute(
        "DELETE FROM rows WHERE sequence IN ("
        "  SELECT sequence FROM rows AS old"
        "  WHERE sequence < (SELECT max(sequence) FROM rows WHERE kind = 'snapshot')"
        # ``IS NOT``, because without such a row ``<>`` compares with NULL and selects nothing.
        "  AND sequence IS NOT (SELECT max(sequence) FROM rows WHERE kind = 'configuration')"
        "  AND sequence IS NOT (SELECT max(sequence) FROM rows WHERE kind = 'events')"
        "  AND sequence IS NOT (SELECT max(sequence) FROM rows WHERE kind = 'public-faults')"
        f"  AND NOT ({_true_at_a_snapshot('usage')})"
        f"  AND NOT ({_true_at_a_snapshot('fault-configuration')})"
        "  AND NOT (kind = 'changes' AND sequence > ?)"
        "  ORDER BY sequence LIMIT ?)"
        " AND (? OR at_ms < ?)",
        (_NEVER if acknowledged is None else acknowledged, _MAX_ROWS, too_large, older_than_ms),
    ).rowcount
    unacknowledged = 0
    if acknowledged is not None and deleted < _MAX_ROWS and used_bytes(connection) > max_bytes:
        unacknowledged = delete_unacknowledged(connection, acknowledged, _MAX_ROWS)
    return Pruned(_MAX_ROWS in (deleted, unacknowledged), unacknowledged)


def _true_at_a_snapshot(kind: str) -> str:
    """Return SQL: the row ``old`` is of ``kind``, and a snapshot comes before the next such row."""
    return (
        f"old.kind = '{kind}' AND"
        " (SELECT min(sequence) FROM rows WHERE kind = 'snapshot' AND sequence > old.sequence)"
        f" < coalesce((SELECT min(sequence) FROM rows WHERE kind = '{kind}'"
        f" AND sequence > old.sequence), {_NEVER})"
    )
