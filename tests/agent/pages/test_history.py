"""The history page of an agent: what its journal has, in order, with a cursor."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from agent.journal.file import FILE_NAME, JournalFile
from agent.journal.rows import JournalRow, RowKind, body_of
from agent.pages.history import JournalHistory
from agent.policy.state import Change, ChangeKind
from contract.errors import JournalError
from contract.observation import chip_subject
from contract.pages.history import HistoryRange

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from contract.pages.history import HistoryPage

NOW_MS = 1_800_000_000_000


def change(code: str, at_ms: int) -> Change:
    return Change(ChangeKind.BEGAN, chip_subject(3), code, "e", at_ms, "because")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JournalFile]:
    """Yield a journal with changes in rows 2, 4 and 6, and 7 lost rows between them."""
    file = JournalFile(tmp_path / FILE_NAME)
    gap = {"since_ms": NOW_MS, "reason": "the disk is full", "rows_lost": 7}
    bodies = {
        1: (RowKind.REPORTS, "[]"),
        2: (RowKind.CHANGES, body_of([change("80E01801", NOW_MS), change("80C98009", NOW_MS)])),
        3: (RowKind.SNAPSHOT, "{}"),
        4: (RowKind.CHANGES, body_of([change("80E18402", NOW_MS + 40)])),
        5: (RowKind.GAP, body_of(gap)),
        6: (RowKind.CHANGES, body_of([change("80E18404", NOW_MS + 60)])),
    }
    file.write([JournalRow(number, NOW_MS + 10 * number, *body) for number, body in bodies.items()])
    yield file
    file.close()


async def asked(tmp_path: Path, **asked: int | str) -> HistoryPage:
    history = JournalHistory(tmp_path / FILE_NAME, "node-1")
    return await history.page(HistoryRange(**asked))  # type: ignore[arg-type]


def shown(page: HistoryPage) -> list[tuple[int, str | int]]:
    """Return the numbers of a page's events, each with its code or its count of lost rows."""
    return [(one.number, one.event.code if one.event else one.lost) for one in page.events]


ALL = [(2, "80E01801"), (2, "80C98009"), (4, "80E18402"), (5, 7), (6, "80E18404")]


async def test_the_journal_is_shown_in_order(journal: JournalFile, tmp_path: Path) -> None:
    page = await asked(tmp_path)
    assert shown(page) == ALL
    assert (page.next, page.more) == (6, False)
    assert {one.node for one in page.events} == {"node-1"}
    assert page.events[0].received_at_ms == NOW_MS + 20
    (name,) = {one.journal for one in page.events}
    assert len(name) == 32


async def test_pages_join_without_loss(journal: JournalFile, tmp_path: Path) -> None:
    found, after, more = [], 0, True
    while more:
        page = await asked(tmp_path, after=after, limit=1)
        found += shown(page)
        after, more = page.next, page.more
    assert found == ALL


async def test_the_newest_part_and_what_came_since(journal: JournalFile, tmp_path: Path) -> None:
    assert shown(await asked(tmp_path, limit=2)) == ALL[3:]
    assert shown(await asked(tmp_path, since_ms=NOW_MS + 40)) == ALL[2:]
    assert shown(await asked(tmp_path, after=6)) == []
    assert (await asked(tmp_path, after=6)).next == 6


async def test_another_node_has_no_history_here(journal: JournalFile, tmp_path: Path) -> None:
    assert shown(await asked(tmp_path, node="node-2")) == []
    assert shown(await asked(tmp_path, node="node-1")) == ALL


async def test_a_row_that_is_damaged_counts_as_lost(journal: JournalFile, tmp_path: Path) -> None:
    journal.write([JournalRow(7, NOW_MS + 70, RowKind.CHANGES, "[{")])
    assert shown(await asked(tmp_path, after=6)) == [(7, 1)]


async def test_a_journal_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be read"):
        await asked(tmp_path)


def test_each_kind_is_found_by_an_index(journal: JournalFile, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        for kind in ("changes", "gap"):
            plan = connection.execute(
                f"EXPLAIN QUERY PLAN SELECT sequence FROM rows WHERE kind = '{kind}'"
                " AND sequence > 3 ORDER BY sequence LIMIT 5"
            ).fetchall()
            assert "USING INDEX" in plan[0][3] or "COVERING INDEX" in plan[0][3]
