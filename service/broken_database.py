"""SQLite files that are broken: which error shows it, and how a new one can begin."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


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
