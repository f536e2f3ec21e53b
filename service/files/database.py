"""SQLite files of the daemons: how one is opened and written, and what becomes of a broken one.

Everything here blocks.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from contract.record import Record
from service.files.private import private_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class ConnectionSettings(Record, frozen=True):
    """How a connection works: ``wal_bytes`` of the file's log are kept.

    Without ``autocheckpoint`` another connection makes the checkpoints, from the first commit on.
    """

    busy_seconds: float = 5.0
    wal_bytes: int = 4 << 20
    cache_kib: int = 256
    autocheckpoint: bool = True


_USUAL = ConnectionSettings()


def open_database(
    path: Path,
    schema: str,
    version: int,
    *,
    synchronous: str,
    settings: ConnectionSettings = _USUAL,
) -> sqlite3.Connection:
    """Open a file for writing, in WAL mode and with ``schema``, and make it where it is not there.

    Raises ``sqlite3.NotSupportedError`` for one of a later ``version``, ``sqlite3.Error`` and
    ``OSError``.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    private_database(path)
    connection = connect_writer(path, synchronous, settings)
    try:
        stored = connection.execute("PRAGMA user_version").fetchone()[0]
        if stored > version:
            raise sqlite3.NotSupportedError(newer(stored, version))
        connection.executescript(schema)
        connection.execute(f"PRAGMA user_version={version}")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_writer(
    path: Path, synchronous: str, settings: ConnectionSettings
) -> sqlite3.Connection:
    """Connect to a file in WAL mode. Raises ``sqlite3.Error``."""
    connection = sqlite3.connect(
        path, timeout=settings.busy_seconds, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        if not settings.autocheckpoint:
            connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute(f"PRAGMA journal_size_limit={settings.wal_bytes}")
        connection.execute(f"PRAGMA cache_size=-{settings.cache_kib}")
    except BaseException:
        connection.close()
        raise
    return connection


def newer(version: int, newest: int) -> str:
    """Return why a file of a later schema is not used."""
    return f"it was written by a newer release: its schema is version {version}, known is {newest}"


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit everything inside, or nothing where it raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return the size of the file without its free pages."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def is_damaged(error: Exception) -> bool:
    """Return whether the file itself is broken, so that trying again cannot help."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.DatabaseError) and code is not None and code & 0xFF in _DAMAGED


def move_aside(path: Path, now_ms: int) -> Path:
    """Give a broken file another name, so that a new one can begin. Raises ``OSError``.

    Only the newest broken one is kept: disks that break files break many.
    """
    for older in path.parent.glob(f"{path.name}.broken-*"):
        older.unlink()
    aside = path.with_name(f"{path.name}.broken-{now_ms}")
    path.rename(aside)
    for suffix in ("-wal", "-shm"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + suffix))
    return aside
