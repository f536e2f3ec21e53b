"""The history of the node, from its journal."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from agent.history_forwarding.batch import episode_event
from agent.journal.rows import JournalGap, JournalRow, RowKind, changes_of, decoded
from agent.journal.unacknowledged import connect_existing
from agent.pages.journal import read_journal
from contract.errors import JournalError
from contract.pages.history import HistoryPage, HistoryRow, history_event

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from contract.pages.history import HistoryRange
    from contract.pages.journal import JournalPage, JournalRange

_MAX_ROWS = 1000
"""An answer is decoded in a thread beside the loop that publishes: it has no more than this."""
_NEVER_MS = 1 << 62


class JournalHistory:
    """Reads the changes of ``node`` from the journal at ``path``."""

    def __init__(self, path: Path, node: str) -> None:
        self._path = path
        self._node = node

    async def page(self, query: HistoryRange) -> HistoryPage:
        """Return a part of the history. Raises ``JournalError`` while it cannot be read.

        ``number`` is the journal's row: changes that came together share it, and stay together. So
        an answer may have more entries than ``limit`` rows.
        """
        if query.node not in (None, self._node):
            return HistoryPage((), query.after or 0, more=False)
        try:
            return await asyncio.to_thread(self._read, query)
        except (sqlite3.Error, OSError) as error:
            raise JournalError(f"{self._path} cannot be read: {error}") from error

    async def journal(self, query: JournalRange) -> JournalPage:
        """Return what a proof of delivery needs. Raises ``JournalError`` while it cannot be
        read.
        """
        return await asyncio.to_thread(read_journal, self._path, query)

    def _read(self, query: HistoryRange) -> HistoryPage:
        limit = min(query.limit, _MAX_ROWS)
        is_newest = query.after is None and query.since_ms is None
        after, since_ms = query.after or 0, query.since_ms or -_NEVER_MS
        rows: list[JournalRow] = []
        with closing(connect_existing(self._path)) as connection:
            # One transaction for all reads: between them, rows may be deleted or the journal
            # renamed.
            connection.execute("BEGIN")
            (journal,) = connection.execute("SELECT id FROM journal").fetchone() or ("",)
            for kind in (RowKind.CHANGES, RowKind.GAP):
                rows += (
                    JournalRow(*values)
                    for values in connection.execute(
                        # The kind is not a parameter, so that its index is used.
                        "SELECT sequence, at_ms, kind, body FROM rows"
                        f" WHERE kind = '{kind.value}' AND sequence > ? AND at_ms >= ?"
                        f" ORDER BY sequence {'DESC' if is_newest else ''} LIMIT ?",
                        (after, since_ms, limit + 1),
                    )
                )
        rows.sort(key=lambda row: row.sequence)
        more = len(rows) > limit and not is_newest
        rows = rows[-limit:] if is_newest else rows[:limit]
        entries = tuple(entry for row in rows for entry in history_rows(row, self._node, journal))
        return HistoryPage(entries, rows[-1].sequence if rows else after, more)


def history_rows(row: JournalRow, node: str, journal: str) -> Iterator[HistoryRow]:
    """Yield the entries for people in a row of the journal; one that cannot be decoded is lost."""

    def lost(rows: int) -> HistoryRow:
        return HistoryRow(row.sequence, node, journal, row.at_ms, lost=rows)

    try:
        if row.kind == RowKind.GAP:
            if rows := decoded(row, JournalGap).rows_lost:
                yield lost(rows)
        elif row.kind == RowKind.CHANGES:
            for place, change in enumerate(changes_of(row)):
                event = episode_event(row.sequence, place, change)
                yield HistoryRow(row.sequence, node, journal, row.at_ms, history_event(event))
    except JournalError:
        yield lost(1)
