"""The file behind ``last_known.py``: rows by store, kind and place, in SQLite. Blocks.

Commits do not wait for the disk: they survive ``kill -9``, and a power cut may take the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from service.files.database import open_database, transaction

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

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
        return [LastKnownRow(*found) for found in self._connection.execute(query)]

    def write(self, rows: Iterable[LastKnownRow], most_bytes: int) -> int:
        """Write all rows or, with an error, none; return how many do not fit into
        ``most_bytes``.
        """
        connection, size, left_out = self._connection, self._bytes, 0
        with transaction(connection):
            for row in rows:
                where = (row.store, row.kind, row.place)
                found = connection.execute(
                    "SELECT length(body) FROM known WHERE store = ? AND kind = ? AND place = ?",
                    where,
                ).fetchone()
                grown = size + len(row.body) - (0 if found is None else found[0])
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
