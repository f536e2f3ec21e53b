"""The history on a real file: each change once, however often it is sent and over which store."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.notify.history_file import FILE_NAME, MAX_AGE_MS, HistoryFile, read_page
from contract.pages.history import HistoryRange
from stores.base import HistoryAck
from tests.aggregator.notify.history_batches import NOW_MS, batch
from tests.parts.deadlines import let_time_pass

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Iterator[HistoryFile]:
    with closing(HistoryFile(tmp_path / FILE_NAME)) as opened:
        yield opened


def kept(tmp_path: Path, **asked: object) -> list[str]:
    page = read_page(tmp_path / FILE_NAME, HistoryRange(limit=10_000, **asked))  # type: ignore[arg-type]
    return [
        f"lost {one.lost}" if one.event is None else f"{one.node} {one.event.sequence}"
        for one in page.events
    ]


def test_the_next_batch_is_stored_and_a_later_one_is_requested_again(
    file: HistoryFile, tmp_path: Path
) -> None:
    taken = file.store_batches([batch(0, 2), batch(3, 5), batch(0, 3)], NOW_MS)
    assert (taken.events, taken.refused) == (3, 1)
    assert taken.acks == (HistoryAck("node-1", "j", 3),)
    assert file.store_batches([batch(5, 6)], NOW_MS).acks == (HistoryAck("node-1", "j", 3),)
    assert file.store_batches([batch(0, 0)], NOW_MS).acks == (HistoryAck("node-1", "j", 3),), (
        "a question"
    )
    assert kept(tmp_path) == ["node-1 1", "node-1 2", "node-1 3"]


def test_a_batch_that_overlaps_counts_from_where_it_is_new(
    file: HistoryFile, tmp_path: Path
) -> None:
    file.store_batches([batch(0, 3)], NOW_MS)
    assert file.store_batches([batch(1, 5)], NOW_MS).events == 2
    assert file.store_batches([batch(0, 4)], NOW_MS).acks == (HistoryAck("node-1", "j", 5),)
    assert kept(tmp_path) == [f"node-1 {number}" for number in range(1, 6)]


def test_a_new_journal_begins_anew_and_the_old_one_is_not_reported_twice(
    file: HistoryFile, tmp_path: Path
) -> None:
    file.store_batches([batch(0, 2)], NOW_MS)
    assert file.store_batches([batch(0, 1, journal="new")], NOW_MS).acks == (
        HistoryAck("node-1", "new", 1),
    )
    assert file.store_batches([batch(0, 3)], NOW_MS).events == 1
    assert kept(tmp_path) == ["node-1 1", "node-1 2", "node-1 1", "node-1 3"]


def test_lost_rows_are_one_row_and_counted_once(file: HistoryFile, tmp_path: Path) -> None:
    file.store_batches([batch(0, 2)], NOW_MS)
    taken = file.store_batches([batch(2, 8, lost=4)], NOW_MS)
    assert (taken.events, taken.lost) == (2, 4)
    # Its acknowledgement was lost: it is sent again, with what came since.
    assert file.store_batches([batch(2, 9, lost=4)], NOW_MS).lost == 0
    assert kept(tmp_path) == ["node-1 1", "node-1 2", "lost 4", "node-1 7", "node-1 8", "node-1 9"]


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12))
def test_any_order_of_batches_keeps_a_beginning_of_the_journal(
    tmp_path_factory: pytest.TempPathFactory, ranges: list[tuple[int, int]]
) -> None:
    directory = tmp_path_factory.mktemp("history")
    with closing(HistoryFile(directory / FILE_NAME)) as file:
        for low, high in ranges:
            after, upto = min(low, high), max(low, high)
            (ack,) = file.store_batches([batch(after, upto)], NOW_MS).acks
            assert kept(directory) == [f"node-1 {n}" for n in range(1, ack.sequence + 1)]


def test_pages_follow_each_other(file: HistoryFile, tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    file.store_batches([batch(0, 5)], NOW_MS)
    file.store_batches([batch(0, 5, node="node-2")], NOW_MS + 10)
    first = read_page(path, HistoryRange(after=0, limit=4))
    second = read_page(path, HistoryRange(after=first.next, limit=6))
    assert (first.more, second.more) == (True, False)
    assert [one.number for one in (*first.events, *second.events)] == list(range(1, 11))
    newest = read_page(path, HistoryRange(limit=2))
    assert [one.event and one.event.sequence for one in newest.events] == [4, 5]
    assert kept(tmp_path, node="node-2", since_ms=NOW_MS + 10) == [
        f"node-2 {number}" for number in range(1, 6)
    ]
    assert kept(tmp_path, since_ms=NOW_MS + 11) == []
    assert read_page(path, HistoryRange(after=10)).next == 10


def test_size_and_age_are_bounded_and_positions_stay(file: HistoryFile, tmp_path: Path) -> None:
    file.store_batches([batch(0, 2_000)], NOW_MS)
    file.store_batches([batch(2_000, 4_000)], NOW_MS + 1_000)
    while file.prune(NOW_MS + MAX_AGE_MS + 1):
        pass
    assert len(kept(tmp_path)) == 2_000
    while file.prune(NOW_MS, max_bytes=10_000):
        pass
    assert kept(tmp_path) == []
    assert file.store_batches([batch(4_000, 4_001)], NOW_MS).events == 1


def test_positions_of_replaced_journals_are_bounded(file: HistoryFile, tmp_path: Path) -> None:
    for number in range(30):
        file.store_batches([batch(0, 1, journal=f"j{number}")], NOW_MS + number)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        assert connection.execute("SELECT count(*) FROM positions").fetchone() == (8,)


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    HistoryFile(tmp_path / FILE_NAME).close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("PRAGMA user_version=9")
    with pytest.raises(sqlite3.NotSupportedError, match="newer release"):
        HistoryFile(tmp_path / FILE_NAME)


_WRITER = """
import sys
from pathlib import Path
from aggregator.notify.history_file import HistoryFile
from tests.aggregator.notify.history_batches import batch
file = HistoryFile(Path(sys.argv[1]))
for number in range(1_000_000):
    (ack,) = file.store_batches([batch(number, number + 1)], 0).acks
    print(ack.sequence, flush=True)
"""


@pytest.mark.slow
def test_acknowledged_batches_survive_the_death_of_the_process(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        answered = [int(writer.stdout.readline()) for _ in range(20)]
        let_time_pass(0.05)
        writer.send_signal(signal.SIGKILL)
        answered += [int(line) for line in writer.stdout if line.endswith("\n")]
    sequences = [int(one.split()[1]) for one in kept(tmp_path)]
    assert sequences == list(range(1, len(sequences) + 1))
    assert len(sequences) >= answered[-1]
