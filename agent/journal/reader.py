"""Reads a whole journal, also while an agent writes it: read-only, and a few rows at a time.

Each page is a transaction of its own, so a long replay never blocks the checkpoint of a running
agent's WAL.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING
from urllib.parse import quote

from agent.journal.file import SCHEMA_VERSION, OutdatedJournal, refuse_outdated
from agent.journal.rows import JournalRow
from contract.errors import JournalError
from service.files.database import newer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PAGE_ROWS = 256
_BUSY_SECONDS = 5.0


def read_rows(path: Path) -> Iterator[JournalRow]:
    """Yield all rows that the journal has now, oldest first.

    Raises ``JournalError`` for a file that is not a journal, is broken, or may not be read.
    """
    try:
        with contextlib.closing(_connect(path)) as connection:
            yield from _pages(path, connection)
    except (sqlite3.Error, OSError) as error:
        raise JournalError(
            f"{path} cannot be read: {error}. If an agent of another user has it open, copy it "
            "and the -wal file beside it, and read the copy"
        ) from None


def _connect(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise JournalError(f"{path} is missing or no file: --journal names an agent's journal")
    # Without a WAL no process has it open. Then SQLite needs no files beside it, which would stay.
    has_wal = path.with_name(path.name + "-wal").exists()
    address = f"file:{quote(str(path))}?mode=ro{'' if has_wal else '&immutable=1'}"
    return sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS)


def refuse_unreadable(path: Path, connection: sqlite3.Connection) -> None:
    """Raise ``JournalError`` for a file that is not a journal, or of another release."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise JournalError(f"{path}: {newer(version, SCHEMA_VERSION)}")
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchone():
        raise JournalError(f"{path} is not a journal of an agent: it has no rows")
    try:
        refuse_outdated(connection)
    except OutdatedJournal as error:
        raise JournalError(f"{path}: {error}") from None


def _pages(path: Path, connection: sqlite3.Connection) -> Iterator[JournalRow]:
    refuse_unreadable(path, connection)
    last = connection.execute("SELECT max(sequence) FROM rows").fetchone()[0] or 0
    after = -1
    while page := connection.execute(
        "SELECT sequence, at_ms, kind, body FROM rows WHERE sequence > ? AND sequence <= ?"
        " ORDER BY sequence LIMIT ?",
        (after, last, _PAGE_ROWS),
    ).fetchall():
        for values in page:
            yield JournalRow(*values)
        after = page[-1][0]
