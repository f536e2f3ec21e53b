"""What a proof of delivery needs of a journal: episodes, acknowledged writes, and what is missing.

Reports, which are most of the rows, are left out. A snapshot is read only where its rows before it
may be incomplete: at the beginning, after a start and after a gap.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from agent.history_forwarding.batch import episode_event
from agent.journal.reader import refuse_unreadable
from agent.journal.rows import JournalGap, JournalRow, RowKind, changes_of, decoded, state_of
from agent.journal.unacknowledged import connect_existing
from agent.policy.transaction import level_of
from contract.errors import JournalError
from contract.pages.history import HistorySubject, history_event
from contract.pages.journal import DocumentWrite, HeldEpisode, JournalEntry, JournalPage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import Any

    from agent.policy.state import PolicyState
    from contract.pages.journal import JournalRange

MAX_ROWS = 5000
_KINDS = ", ".join(
    f"'{kind.value}'"
    for kind in (
        *(RowKind.START, RowKind.STOP, RowKind.GAP, RowKind.SNAPSHOT),
        *(RowKind.CHANGES, RowKind.PUBLICATION),
    )
)
_INCOMPLETE = frozenset({RowKind.START.value, RowKind.GAP.value})


def read_journal(path: Path, query: JournalRange) -> JournalPage:
    """Return a part of the journal at ``path``, also while an agent writes it. Blocking.

    Raises ``JournalError`` for a file that is not a journal, is of another release, or cannot be
    read.
    """
    try:
        with closing(connect_existing(path, "ro")) as connection:
            # One transaction for all reads: between them, rows may be deleted.
            connection.execute("BEGIN")
            refuse_unreadable(path, connection)
            return _Reading(connection).page(query)
    except (sqlite3.Error, OSError) as error:
        raise JournalError(f"{path} cannot be read: {error}") from None


class _Reading:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._node = ""

    def page(self, query: JournalRange) -> JournalPage:
        (journal,) = self._first("SELECT id FROM journal") or ("",)
        oldest = self._sequence("SELECT min(sequence) FROM rows")
        from_sequence = query.after + 1 if query.after is not None else self._begin(query.since_ms)
        limit = min(query.limit, MAX_ROWS)
        rows = self._connection.execute(
            # Snapshots are large, and most of them are not needed.
            "SELECT sequence, at_ms, kind, CASE kind WHEN 'snapshot' THEN '' ELSE body END"
            f" FROM rows WHERE sequence >= ? AND kind IN ({_KINDS}) ORDER BY sequence LIMIT ?",
            (from_sequence, limit + 1),
        ).fetchall()
        more, rows = len(rows) > limit, rows[:limit]
        # An answer begins with a snapshot: what holds then is known from it alone.
        is_needed = query.after is None or self._is_incomplete_before(from_sequence)
        entries = tuple(self._entries((JournalRow(*row) for row in rows), is_needed))
        if not self._node:
            self._node = self._newest_node()
        return JournalPage(
            node=self._node,
            journal=journal,
            at_ms=time.time_ns() // 1_000_000,
            pruned=oldest is not None and oldest > 1,
            entries=entries,
            next=rows[-1][0] if rows else query.after or 0,
            more=more,
        )

    def _begin(self, since_ms: int | None) -> int:
        """Return the sequence of the snapshot with which the answer begins."""
        newest = None
        if since_ms is not None:
            newest = self._sequence(
                "SELECT max(sequence) FROM rows WHERE kind = 'snapshot' AND at_ms <= ?", since_ms
            )
        if newest is None:
            newest = self._sequence("SELECT min(sequence) FROM rows WHERE kind = 'snapshot'")
        return newest or 0

    def _entries(self, rows: Iterable[JournalRow], is_needed: bool) -> Iterator[JournalEntry]:
        """Yield the entries of ``rows``, with the first snapshot if ``is_needed``."""
        for row in rows:
            if row.kind != RowKind.SNAPSHOT:
                is_needed = is_needed or row.kind in _INCOMPLETE
                yield _entry(row)
            elif is_needed:
                is_needed = False
                yield self._snapshot(row)

    def _is_incomplete_before(self, sequence: int) -> bool:
        """Return whether the next snapshot has more than the rows before it show."""
        row = self._first(
            "SELECT kind FROM rows WHERE sequence < ? AND kind IN ('start', 'gap', 'snapshot')"
            " ORDER BY sequence DESC LIMIT 1",
            sequence,
        )
        return row is not None and row[0] in _INCOMPLETE

    def _snapshot(self, row: JournalRow) -> JournalEntry:
        body = self._first("SELECT body FROM rows WHERE sequence = ?", row.sequence)
        assert body is not None
        try:
            state = state_of(msgspec.structs.replace(row, body=body[0]))
        except JournalError as error:
            return _lost(row, str(error))
        self._node = state.node
        return JournalEntry(row.sequence, row.at_ms, row.kind, held=tuple(_held(state)))

    def _newest_node(self) -> str:
        """Return the node of the newest snapshot that can be decoded; empty without one."""
        row = self._first(
            "SELECT sequence, at_ms, kind, body FROM rows WHERE kind = 'snapshot'"
            " ORDER BY sequence DESC LIMIT 1"
        )
        try:
            return "" if row is None else state_of(JournalRow(*row)).node
        except JournalError:
            return ""

    def _sequence(self, query: str, *parameters: int) -> int | None:
        row = self._first(query, *parameters)
        return None if row is None else row[0]

    def _first(self, query: str, *parameters: int) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._connection.execute(query, parameters).fetchone()
        return row


def _entry(row: JournalRow) -> JournalEntry:
    try:
        match row.kind:
            case RowKind.CHANGES:
                changes = tuple(
                    history_event(episode_event(row.sequence, place, change))
                    for place, change in enumerate(changes_of(row))
                )
                return JournalEntry(row.sequence, row.at_ms, row.kind, changes=changes)
            case RowKind.PUBLICATION:
                write = decoded(row, DocumentWrite)
                return JournalEntry(row.sequence, row.at_ms, row.kind, write=write)
            case RowKind.GAP:
                gap = decoded(row, JournalGap)
                if gap.rows_lost:
                    return _lost(row, gap.reason, gap.since_ms)
    except JournalError as error:
        return _lost(row, str(error))
    return JournalEntry(row.sequence, row.at_ms, row.kind)


def _lost(row: JournalRow, reason: str, since_ms: int | None = None) -> JournalEntry:
    since_ms = row.at_ms if since_ms is None else since_ms
    return JournalEntry(row.sequence, row.at_ms, row.kind, lost_since_ms=since_ms, reason=reason)


def _held(state: PolicyState) -> Iterator[HeldEpisode]:
    for subject, subject_state in state.subjects():
        named = HistorySubject(subject.kind, subject.id, subject.part)
        for code, fault in subject_state.faults.items():
            level = level_of(subject_state, code) or ""
            yield HeldEpisode(fault.episode, named, code, level, fault.first_seen_ms, fault.once)
