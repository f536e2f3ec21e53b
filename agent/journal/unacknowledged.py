"""Which changes of a journal an aggregator has not acknowledged. Blocking, on a given connection.

The journal's own name is stored with them: a new file is another journal, whose sequences have
nothing to do with those of the old one.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from agent.journal.rows import JournalRow, RowKind
from service.files.database import transaction

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = """
CREATE INDEX IF NOT EXISTS changes ON rows (sequence) WHERE kind = 'changes';
CREATE TABLE IF NOT EXISTS journal (
    id TEXT NOT NULL,
    acknowledged INTEGER NOT NULL DEFAULT 0,
    lost_upto INTEGER NOT NULL DEFAULT 0,
    lost_rows INTEGER NOT NULL DEFAULT 0
) STRICT;
"""
"""``acknowledged`` is the last acknowledged sequence, or an earlier one.

``lost_rows`` changes up to ``lost_upto`` were deleted before they were acknowledged.
"""

_BUSY_SECONDS = 0.5


class UnacknowledgedRows(msgspec.Struct, frozen=True):
    """Some rows behind a sequence, the oldest first, of the journal named ``journal``.

    ``acknowledged`` is the last acknowledged sequence that the file contains. ``lost`` changes
    behind that sequence, all at or before ``lost_upto``, are gone. ``more``: there are others
    behind ``rows``.
    """

    journal: str
    acknowledged: int
    rows: tuple[JournalRow, ...]
    lost: int
    lost_upto: int
    more: bool


def identify(connection: sqlite3.Connection) -> None:
    """Give a new journal its name."""
    connection.execute(
        "INSERT INTO journal (id) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM journal)",
        (os.urandom(16).hex(),),
    )


def rename(connection: sqlite3.Connection) -> None:
    """Give the journal another name, for which nothing was acknowledged."""
    name = os.urandom(16).hex()
    connection.execute(
        "UPDATE journal SET id = ?, acknowledged = 0, lost_upto = 0, lost_rows = 0", (name,)
    )


def keep_acknowledged(connection: sqlite3.Connection, acknowledged: int) -> None:
    """Store the sequence up to which the journal was acknowledged."""
    connection.execute(
        "UPDATE journal SET acknowledged = ? WHERE acknowledged IS NOT ?",
        (acknowledged, acknowledged),
    )


def delete_unacknowledged(connection: sqlite3.Connection, acknowledged: int, limit: int) -> int:
    """Delete the oldest changes behind ``acknowledged`` that no restart needs; return how many."""
    with transaction(connection):
        condition = (
            "kind = 'changes' AND sequence > ?"
            " AND sequence < (SELECT max(sequence) FROM rows WHERE kind = 'snapshot')"
        )
        sequences = connection.execute(
            f"SELECT sequence FROM rows WHERE {condition} ORDER BY sequence LIMIT ?",
            (acknowledged, limit),
        ).fetchall()
        if sequences:
            upto, count = sequences[-1][0], len(sequences)
            connection.execute(
                f"DELETE FROM rows WHERE {condition} AND sequence <= ?", (acknowledged, upto)
            )
            connection.execute(
                "UPDATE journal SET lost_upto = ?,"
                " lost_rows = CASE WHEN lost_upto > ? THEN lost_rows ELSE 0 END + ?",
                (upto, acknowledged, count),
            )
    return len(sequences)


def read_unacknowledged(
    path: Path, after: int, *, max_rows: int, max_bytes: int
) -> UnacknowledgedRows | None:
    """Return the next rows of changes behind ``after``: at most ``max_rows``, but at least one.

    ``None`` while there is no journal. Raises ``sqlite3.Error`` or ``OSError``.
    """
    with closing(connect_existing(path)) as connection:
        # One transaction for both reads: the rows must be those of the journal with this name.
        connection.execute("BEGIN")
        name_row = connection.execute(
            "SELECT id, acknowledged, lost_upto, lost_rows FROM journal"
        ).fetchone()
        if name_row is None:
            return None
        journal, acknowledged, lost_upto, lost_rows = name_row
        rows: list[JournalRow] = []
        size = 0
        more = False
        for sequence, at_ms, body in connection.execute(
            "SELECT sequence, at_ms, body FROM rows WHERE kind = 'changes' AND sequence > ?"
            " ORDER BY sequence LIMIT ?",
            (after, max_rows + 1),
        ):
            size += len(body)
            if len(rows) >= max_rows or (rows and size > max_bytes):
                more = True
                break
            rows.append(JournalRow(sequence, at_ms, RowKind.CHANGES, body))
    lost = lost_rows if lost_upto > after else 0
    return UnacknowledgedRows(
        journal, acknowledged, tuple(rows), lost, lost_upto if lost else after, more
    )


def read_behind(path: Path, acknowledged: int) -> tuple[int, int | None]:
    """Return how many rows of changes are behind ``acknowledged``, and the time of the oldest (ms).

    Raises ``sqlite3.Error`` or ``OSError``.
    """
    with closing(connect_existing(path)) as connection:
        rows, first = connection.execute(
            "SELECT count(*), min(sequence) FROM rows WHERE kind = 'changes' AND sequence > ?",
            (acknowledged,),
        ).fetchone()
        if not rows:
            return 0, None
        since = connection.execute("SELECT at_ms FROM rows WHERE sequence = ?", (first,)).fetchone()
    return rows, since[0]


def connect_existing(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """Open the journal; only its own thread makes the file. Raises ``sqlite3.Error``."""
    address = f"file:{quote(str(path))}?mode={mode}"
    return sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
