"""The journal page: what a proof of delivery needs, page by page, and what it refuses."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from agent.journal.file import FILE_NAME, JournalFile
from agent.journal.rows import JournalRow, RowKind, body_of
from agent.pages.journal import read_journal
from agent.policy.state import Change, ChangeKind, ChipState, Fault, PolicyState
from contract.errors import JournalError
from contract.observation import chip_subject
from contract.pages.journal import JournalRange

if TYPE_CHECKING:
    from pathlib import Path

    from contract.pages.journal import JournalEntry

NOW_MS = 1_800_000_000_000
FAULT = Fault("80E18402", "e1", "chip-faults", "SeparateNPU", "table", NOW_MS, 1)
STATE = PolicyState("node-1", "boot", chips={3: ChipState(faults={"80E18402": FAULT})})


def began(code: str) -> str:
    change = Change(ChangeKind.BEGAN, chip_subject(3), code, "e", NOW_MS, "because")
    return body_of([change])


def publication(through: int) -> str:
    return body_of({"document": "d", "store": "s", "revision": 1, "through": through})


ROWS = [
    (RowKind.START, body_of({"node": "node-1", "boot_id": "boot", "version": "1"})),
    (RowKind.SNAPSHOT, body_of(STATE)),
    (RowKind.REPORTS, "[]"),
    (RowKind.CHANGES, began("80E01801")),
    (RowKind.PUBLICATION, publication(4)),
    (RowKind.SNAPSHOT, body_of(STATE)),
    (RowKind.CHANGES, began("80C98009")),
    (RowKind.GAP, body_of({"since_ms": NOW_MS, "reason": "the disk is full", "rows_lost": 7})),
    (RowKind.SNAPSHOT, body_of(STATE)),
    (RowKind.STOP, "{}"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a journal with a row each 10 ms, the first one at ``NOW_MS`` + 10."""
    file = JournalFile(tmp_path / FILE_NAME)
    file.write(
        [JournalRow(number, NOW_MS + 10 * number, *row) for number, row in enumerate(ROWS, 1)]
    )
    file.close()
    return tmp_path / FILE_NAME


def kinds(entries: tuple[JournalEntry, ...]) -> list[tuple[int, str]]:
    return [(entry.sequence, entry.kind) for entry in entries]


WHOLE = [
    *((2, "snapshot"), (4, "changes"), (5, "publication"), (7, "changes")),
    *((8, "gap"), (9, "snapshot"), (10, "stop")),
]
"""Without reports, and without the snapshot that shows nothing new."""


def test_it_begins_with_a_snapshot_and_has_one_behind_each_gap(path: Path) -> None:
    page = read_journal(path, JournalRange())
    assert kinds(page.entries) == WHOLE
    assert (page.node, page.pruned, page.more, page.next) == ("node-1", False, False, 10)
    (held,) = page.entries[0].held
    assert (held.episode, held.subject.id, held.level) == ("e1", 3, "SeparateNPU")
    assert page.entries[1].changes[0].code == "80E01801"
    assert page.entries[2].write is not None
    assert page.entries[2].write.through == 4
    gap = page.entries[4]
    assert (gap.lost_since_ms, gap.reason) == (NOW_MS, "the disk is full")


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_join_without_loss(path: Path, limit: int) -> None:
    entries: list[tuple[int, str]] = []
    asked, more = JournalRange(limit=limit), True
    while more:
        page = read_journal(path, asked)
        entries += kinds(page.entries)
        asked, more = JournalRange(after=page.next, limit=limit), page.more
    assert entries == WHOLE


def test_a_time_chooses_the_snapshot_before_it(path: Path) -> None:
    page = read_journal(path, JournalRange(since_ms=NOW_MS + 65))
    assert kinds(page.entries)[0] == (6, "snapshot")
    # Before all of them it is the oldest.
    assert kinds(read_journal(path, JournalRange(since_ms=1)).entries) == WHOLE


def test_rows_that_were_deleted_or_cannot_be_decoded_are_stated(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM rows WHERE sequence = 1")
        connection.execute("UPDATE rows SET body = '{' WHERE sequence = 4")
        connection.commit()
    page = read_journal(path, JournalRange())
    assert page.pruned
    assert page.entries[1].lost_since_ms == NOW_MS + 40
    assert "row 4 (changes) cannot be decoded" in page.entries[1].reason


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("PRAGMA user_version = 1", "its schema is version 1"),
        ("PRAGMA user_version = 99", "version 99"),
        ("DROP TABLE rows", "is not a journal"),
    ],
)
def test_what_is_not_a_journal_of_this_release_is_refused(
    path: Path, statement: str, text: str
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
    with pytest.raises(JournalError, match=text):
        read_journal(path, JournalRange())
    path.write_bytes(b"no journal" * 1000)
    with pytest.raises(JournalError, match="cannot be read"):
        read_journal(path, JournalRange())
