"""Retention of changes that an aggregator has not acknowledged, and how they are read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from agent.history_forwarding.batch import batch_of
from agent.journal.file import FILE_NAME, JournalFile, RestoredJournal
from agent.journal.rows import JournalRow, RowKind, body_of
from agent.journal.unacknowledged import read_behind, read_unacknowledged
from agent.policy.state import Change, ChangeKind, PolicyState
from agent.state_dir import first_sequence
from contract.observation import chip_subject

if TYPE_CHECKING:
    from pathlib import Path

    from agent.journal.unacknowledged import UnacknowledgedRows

NOW_MS = 1_800_000_000_000
CHANGE = Change(ChangeKind.BEGAN, chip_subject(3), "80E01801", "abc", NOW_MS, "because")
BIG = 1 << 30


def fill(path: Path, rows: int = 30, first: int = 1) -> JournalFile:
    """Write a journal of alternating reports and changes, followed by a snapshot; return it."""
    file = JournalFile(path)
    kinds = [RowKind.REPORTS, RowKind.CHANGES]
    body = body_of([CHANGE])
    numbers = range(first, first + rows)
    file.write([JournalRow(n, NOW_MS + n, kinds[n % 2 == 0], body) for n in numbers])
    file.write([JournalRow(first + rows, NOW_MS + first + rows, RowKind.SNAPSHOT, "{}")])
    return file


def rows_of(path: Path, after: int = 0, rows: int = 100, size: int = BIG) -> UnacknowledgedRows:
    found = read_unacknowledged(path, after, max_rows=rows, max_bytes=size)
    assert found is not None
    return found


def test_changes_are_read_in_slices_and_nothing_else_is(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with closing(fill(path)):
        first = rows_of(path, rows=4)
        assert [row.sequence for row in first.rows] == [2, 4, 6, 8]
        assert first.more
        assert [row.sequence for row in rows_of(path, 26).rows] == [28, 30]
        assert not rows_of(path, 26).more
        assert [row.sequence for row in rows_of(path, size=1).rows] == [2], "one at least"
        assert rows_of(path, 30).rows == ()
        assert read_behind(path, 20) == (5, NOW_MS + 22)
        assert read_behind(path, 30) == (0, None)


def test_a_journal_keeps_its_name_and_a_new_file_has_another(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with closing(fill(path)):
        name = rows_of(path).journal
    with closing(JournalFile(path)):
        assert rows_of(path).journal == name
    path.unlink()
    with closing(JournalFile(path)):
        assert rows_of(path).journal != name


def test_a_journal_of_an_earlier_release_is_reported_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    fill(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE journal")
        connection.execute("DROP INDEX changes")
    with closing(JournalFile(path)):
        assert len(rows_of(path).rows) == 15


def prune_all(
    file: JournalFile, older_than_ms: int, max_bytes: int, acknowledged: int | None
) -> int:
    """Delete all that may go; return how many rows of changes were lost."""
    lost, may_be_more = 0, True
    while may_be_more:
        pruned = file.prune(
            older_than_ms=older_than_ms, max_bytes=max_bytes, acknowledged=acknowledged
        )
        lost, may_be_more = lost + pruned.unacknowledged, pruned.may_be_more
    return lost


@pytest.mark.parametrize("acknowledged", [None, 0, 10, 30])
def test_age_deletes_no_changes_that_were_not_acknowledged(
    tmp_path: Path, acknowledged: int | None
) -> None:
    path = tmp_path / FILE_NAME
    with closing(fill(path)) as file:
        assert prune_all(file, NOW_MS + 1000, BIG, acknowledged) == 0
        kept = [row.sequence for row in rows_of(path).rows]
        assert kept == ([] if acknowledged is None else list(range(acknowledged + 2, 31, 2)))
        assert rows_of(path).acknowledged == (acknowledged or 0)


def test_size_takes_them_last_and_counts_them(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with closing(fill(path)) as file:
        assert prune_all(file, 0, 0, 10) == 10
        assert rows_of(path, 10).rows == ()
        file.write([JournalRow(32, NOW_MS, RowKind.CHANGES, body_of([CHANGE]))])
        found = rows_of(path, 10)
        assert (found.lost, found.lost_upto) == (10, 30)
        batch = batch_of("node-1", found, 10)
        assert batch is not None
        assert (batch.after, batch.upto, batch.lost, len(batch.events)) == (10, 32, 10, 1)
        # More is lost before that was acknowledged: it is one gap. Behind it another one begins.
        file.write([JournalRow(33, NOW_MS, RowKind.SNAPSHOT, "{}")])
        file.prune(older_than_ms=0, max_bytes=0, acknowledged=10)
        assert (rows_of(path, 10).lost, rows_of(path, 32).lost) == (11, 0)
        assert batch_of("node-1", rows_of(path, 10), 10) is not None
        file.write([JournalRow(n, NOW_MS, RowKind.CHANGES, "[]") for n in (34, 35)])
        file.write([JournalRow(36, NOW_MS, RowKind.SNAPSHOT, "{}")])
        file.prune(older_than_ms=0, max_bytes=0, acknowledged=32)
        assert rows_of(path, 32).lost == 2


def test_a_row_that_cannot_be_understood_is_reported_as_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / FILE_NAME
    with closing(JournalFile(path)) as file:
        file.write(
            [
                JournalRow(1, NOW_MS, RowKind.CHANGES, body_of([CHANGE, CHANGE])),
                JournalRow(2, NOW_MS, RowKind.CHANGES, '[{"kind":"became"}]'),
                JournalRow(3, NOW_MS, RowKind.CHANGES, body_of([CHANGE])),
            ]
        )
        batch = batch_of("node-1", rows_of(path), 0)
    assert batch is not None
    assert [(one.sequence, one.place) for one in batch.events] == [(1, 0), (1, 1), (3, 0)]
    assert batch.lost == 1
    assert "row 2 (changes) cannot be decoded" in caplog.text


def test_another_boot_goes_on_behind_rows_that_went_with_the_power() -> None:
    snapshot = JournalRow(900, NOW_MS, RowKind.SNAPSHOT, body_of(PolicyState("node-1", "boot-1")))
    assert first_sequence(RestoredJournal(), "boot-1") == 1
    assert first_sequence(RestoredJournal(snapshot, last_sequence=990), "boot-1") == 991
    assert first_sequence(RestoredJournal(snapshot, last_sequence=990), "boot-2") > 1_000_000
    assert first_sequence(RestoredJournal(None, last_sequence=5), "boot-1") > 1_000_000
