"""SQLite files are opened with their schema, never by an older release, and written as a whole."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from service.files.database import is_damaged, open_database, transaction, used_bytes

if TYPE_CHECKING:
    from pathlib import Path

_SCHEMA = "CREATE TABLE IF NOT EXISTS words (word TEXT) STRICT"


def opened(path: Path, version: int = 1) -> sqlite3.Connection:
    return open_database(path, _SCHEMA, version, synchronous="NORMAL")


def words(connection: sqlite3.Connection) -> list[str]:
    return [word for (word,) in connection.execute("SELECT word FROM words ORDER BY word")]


def test_file_of_a_newer_release_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "words.sqlite"
    opened(path, version=2).close()
    with pytest.raises(sqlite3.NotSupportedError) as caught:
        opened(path)
    assert "newer release: its schema is version 2, known is 1" in str(caught.value)
    assert not is_damaged(caught.value)


def test_transaction_that_fails_changes_nothing(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "words.sqlite")) as connection:
        with transaction(connection):
            connection.execute("INSERT INTO words VALUES ('kept')")
        with pytest.raises(sqlite3.IntegrityError), transaction(connection):
            connection.executemany("INSERT INTO words VALUES (?)", [("lost",), (b"no text",)])
        assert words(connection) == ["kept"]
        with transaction(connection):
            connection.execute("INSERT INTO words VALUES ('next')")
        assert words(connection) == ["kept", "next"]


def test_free_pages_are_not_used_bytes(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "words.sqlite")) as connection:
        empty = used_bytes(connection)
        with transaction(connection):
            connection.executemany("INSERT INTO words VALUES (?)", [("x" * 1000,)] * 100)
        assert used_bytes(connection) > empty + 90_000
        with transaction(connection):
            connection.execute("DELETE FROM words")
        assert used_bytes(connection) < empty + 10_000


def test_directory_and_file_are_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "state" / "words.sqlite"
    opened(path).close()
    assert path.parent.stat().st_mode & 0o077 == 0
    assert path.stat().st_mode & 0o077 == 0
