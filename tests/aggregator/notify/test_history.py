"""Nodes send and aggregators store, over a real broker, in one process: whatever the disk does."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

import pytest
from aiohttp.test_utils import TestClient, TestServer

from agent.history_forwarding.forwarder import HistoryForwarder
from agent.journal.file import FILE_NAME as JOURNAL_NAME
from agent.journal.journal import Journal
from agent.journal.rows import RowKind, body_of
from agent.policy.state import Change, ChangeKind
from aggregator.api.routes import application
from aggregator.notify.history import ClusterHistory
from aggregator.notify.history_file import FILE_NAME, read_page
from contract.observation import chip_subject
from contract.pages.changes import FaultChange
from contract.pages.history import HistoryRange
from service.clock import system_clock
from service.pages.event_stream import Stream
from service.pages.fault_pages import HISTORY
from stores.address import open_store
from tests.parts.broker import Broker
from tests.parts.deadlines import patience, stays, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from aiohttp import web

    from stores.base import EventChannel

pytestmark = pytest.mark.server

NODE = "node-1"
NOW_MS = 1_800_000_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "broker").mkdir()
    with Broker(tmp_path / "broker") as running:
        yield running


class Parts:
    """Nodes and aggregators as tasks of this process, each with a connection of its own."""

    def __init__(self, broker: Broker, tmp_path: Path) -> None:
        self._broker = broker
        self._tmp_path = tmp_path
        self._closing = contextlib.AsyncExitStack()

    def _channel(self) -> EventChannel:
        store = open_store(self._broker.url)
        self._closing.push_async_callback(store.close)
        assert store.channel is not None
        return store.channel

    def _run(self, work: asyncio.Future[object]) -> None:
        async def end() -> None:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work

        self._closing.push_async_callback(end)

    def journal(self, directory: str = "node", max_bytes: int = 1 << 30) -> Journal:
        journal = Journal(
            self._tmp_path / directory,
            first_sequence=1,
            wall_clock=lambda: NOW_MS,
            on_recovered=lambda: None,
            max_bytes=max_bytes,
        )
        self._closing.push_async_callback(journal.close)
        return journal

    def forwarder(self, journal: Journal, directory: str = "node") -> HistoryForwarder:
        where = self._tmp_path / directory
        forwarder = HistoryForwarder(self._channel(), NODE, journal, where, lambda: NOW_MS)
        self._run(asyncio.ensure_future(forwarder.run()))
        return forwarder

    def history(self, name: str = "aggregator") -> ClusterHistory:
        history = ClusterHistory(self._tmp_path / name, {"mqtt": self._channel()}, system_clock)
        self._run(asyncio.ensure_future(history.run()))
        return history

    def kept(self, name: str = "aggregator") -> list[tuple[int, int]]:
        page = read_page(self._tmp_path / name / FILE_NAME, HistoryRange(after=0, limit=10_000))
        return [(one.event.sequence, one.event.place) for one in page.events if one.event]

    async def close(self) -> None:
        await self._closing.aclose()


@pytest.fixture
async def parts(broker: Broker, tmp_path: Path) -> AsyncIterator[Parts]:
    made = Parts(broker, tmp_path)
    yield made
    await made.close()


def happen(journal: Journal, rows: int, changes: int = 1) -> None:
    """Write so many rows of changes, each between rows that are not sent."""
    for _ in range(rows):
        made = [
            Change(ChangeKind.BEGAN, chip_subject(3), "80E01801", f"e{number}", NOW_MS, "because")
            for number in range(changes)
        ]
        journal.append([(RowKind.REPORTS, "[]"), (RowKind.CHANGES, body_of(made))], NOW_MS)


def counts(rows: int, changes: int = 1, first: int = 1) -> list[tuple[int, int]]:
    return [(2 * row, place) for row in range(first, first + rows) for place in range(changes)]


def pages_of(history: ClusterHistory) -> web.Application:
    """Return the pages of an aggregator of which only the history is asked for."""
    return application(MagicMock(**{"notifier.history": history, "stream": Stream("test")}))


async def test_a_long_journal_is_reported_in_slices_and_what_follows_at_once(parts: Parts) -> None:
    journal = parts.journal()
    happen(journal, 1500, changes=2)
    history, forwarder = parts.history(), parts.forwarder(journal)
    await until(lambda: parts.kept() == counts(1500, 2), "everything is there")
    await until(lambda: forwarder.status().behind == 0, "nothing is behind")
    assert history.status().events == 3000
    assert forwarder.status().since_ms is None
    assert journal.acknowledged == 3000
    begin = time.monotonic()
    happen(journal, 1)
    await until(lambda: len(parts.kept()) == 3001, "the next one is there")
    assert time.monotonic() - begin < patience(1.5)
    assert history.status().refused == 0


async def test_without_an_aggregator_it_reports_that_and_keeps_everything(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    journal = parts.journal()
    forwarder = parts.forwarder(journal)
    happen(journal, 5)
    await until(lambda: forwarder.status().trouble is not None, "it says that nobody answers")
    status = forwarder.status()
    assert (status.behind, status.since_ms, status.acknowledged) == (5, NOW_MS, None)
    assert "no aggregator answers" in str(status.trouble)
    parts.history()
    await until(lambda: parts.kept() == counts(5), "it is informed when one comes")
    await until(lambda: forwarder.status().trouble is None, "and says that, too")
    assert caplog.text.count("no aggregator answers") == 1


async def test_two_aggregators_both_end_up_with_everything(parts: Parts) -> None:
    journal = parts.journal()
    happen(journal, 300)
    parts.history("one")
    forwarder = parts.forwarder(journal)
    await until(lambda: parts.kept("one") == counts(300), "the first has everything")
    parts.history("two")
    rows = 300

    def has_begun() -> bool:
        nonlocal rows
        happen(journal, 1)
        rows += 1
        return bool(parts.kept("two"))

    # It has everything at the latest after the next change that comes when it listens.
    await until(has_begun, "the second one listens", step_seconds=0.5)
    await until(lambda: parts.kept("two") == counts(rows), "the second one, too")
    await until(lambda: parts.kept("one") == counts(rows), "and the first one still, once")
    happen(journal, 50)
    rows += 50
    await until(lambda: parts.kept("one") == parts.kept("two") == counts(rows), "both go on")
    await until(lambda: forwarder.status().behind == 0, "nothing is behind")


async def test_a_journal_that_is_replaced_is_reported_anew(parts: Parts, tmp_path: Path) -> None:
    journal = parts.journal()
    parts.history()
    parts.forwarder(journal)
    happen(journal, 3)
    await until(lambda: parts.kept() == counts(3), "the first one is there")
    for path in (tmp_path / "node").glob(f"{JOURNAL_NAME}*"):
        path.unlink()
    happen(journal, 2)
    await until(lambda: parts.kept() == [*counts(3), *counts(2, first=4)], "the new one, too")


async def test_a_history_that_cannot_be_written_acknowledges_nothing_and_loses_nothing(
    parts: Parts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "aggregator"
    place.write_text("in the way")
    history, journal = parts.history(), parts.journal()
    forwarder = parts.forwarder(journal)
    happen(journal, 3)
    await until(lambda: history.status().trouble is not None, "it is in trouble")
    await until(lambda: forwarder.status().behind == 3, "the node knows what is not kept")
    place.unlink()
    await until(lambda: history.status().trouble is None, "the trouble is over")
    await until(lambda: parts.kept() == counts(3), "everything is there")
    assert caplog.text.count("rows of journals stay at their nodes") == 1


async def test_a_broken_history_is_moved_aside_and_begun_again(
    parts: Parts, tmp_path: Path
) -> None:
    place = tmp_path / "aggregator"
    place.mkdir()
    (place / FILE_NAME).write_bytes(b"no database" * 1000)
    parts.history()
    journal = parts.journal()
    parts.forwarder(journal)
    happen(journal, 3)
    await until(lambda: any(place.glob(f"{FILE_NAME}.broken-*")), "it is moved aside")
    await until(lambda: parts.kept() == counts(3), "everything is there")


async def test_the_page_answers_with_a_cursor_and_refuses_nonsense(parts: Parts) -> None:
    history, journal = parts.history(), parts.journal()
    parts.forwarder(journal)
    happen(journal, 5)
    await until(lambda: parts.kept() == counts(5), "everything is there")

    async with TestClient(TestServer(pages_of(history))) as client:
        answer = await client.get(HISTORY.path, params={"node": NODE, "after": "0", "limit": "3"})
        first = await answer.json()
        assert [one["event"]["sequence"] for one in first["events"]] == [2, 4, 6]
        assert first["more"]
        answer = await client.get(HISTORY.path, params={"after": str(first["next"])})
        assert [one["number"] for one in (await answer.json())["events"]] == [4, 5]
        answer = await client.get(HISTORY.path, params={"limit": "0"})
        assert answer.status == 400
        assert await answer.json() == {"error": "limit is not a valid number from 1 to 10000"}


@pytest.mark.parametrize(
    "query",
    [
        {"since": "1"},
        {"limit": "10001"},
        {"after": "-1"},
        {"since_ms": "٣"},
        {"after": "9" * 4000},
        {"after": "0" * 30 + "9" * 30},
    ],
)
async def test_wrong_questions_are_refused(parts: Parts, query: dict[str, str]) -> None:
    async with TestClient(TestServer(pages_of(parts.history()))) as client:
        assert (await client.get(HISTORY.path, params=query)).status == 400


async def test_a_history_that_cannot_be_read_is_503(parts: Parts, tmp_path: Path) -> None:
    history = parts.history()
    path = tmp_path / "aggregator" / FILE_NAME
    await until(path.exists, "there is a file")

    def broken() -> bool:
        with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP TABLE events")
            connection.execute("CREATE TABLE events (number)")
            return True
        return False

    await until(broken, "the file is broken")

    async with TestClient(TestServer(pages_of(history))) as client:
        answer = await client.get(HISTORY.path)
        assert answer.status == 503
        assert "cannot be read" in (await answer.json())["error"]


async def test_published_changes_are_kept_while_the_disk_fails(
    parts: Parts, tmp_path: Path
) -> None:
    folder = tmp_path / "aggregator"
    folder.write_text("no directory")
    history = parts.history()
    await until(lambda: history.status().trouble is not None, "it is in trouble")
    changes = [
        FaultChange(NODE, NOW_MS + number, "Ascend910-3", "80E01801", None, "RestartNPU")
        for number in range(3)
    ]
    history.record(changes[:2])
    folder.unlink()
    history.record(changes[2:])
    await until(lambda: history.status().published == 3, "they are kept")
    page = read_page(folder / FILE_NAME, HistoryRange(node=NODE, since_ms=NOW_MS + 1))
    assert [one.published for one in page.events] == changes[1:]
    assert [one.received_at_ms for one in page.events] == [NOW_MS + 1, NOW_MS + 2]


async def test_published_changes_are_written_once_a_second_and_at_the_end(
    parts: Parts, tmp_path: Path
) -> None:
    history = parts.history()
    path = tmp_path / "aggregator" / FILE_NAME
    await until(path.exists, "it has begun")
    change = FaultChange(NODE, NOW_MS, "Ascend910-3", "80E01801", None, "RestartNPU")
    history.record([change])
    await stays(0.2, because="published changes are gathered for _GATHER_SECONDS, 1")
    assert history.status().published == 0
    history.record([change])
    await until(lambda: history.status().published == 2, "they are kept")
    history.record([change])
    await parts.close()
    assert len(read_page(path, HistoryRange(node=NODE)).events) == 3


async def test_more_than_memory_is_meant_for_is_counted(parts: Parts, tmp_path: Path) -> None:
    (tmp_path / "aggregator").write_text("no directory")
    history = parts.history()
    change = FaultChange(NODE, NOW_MS, "Ascend910-3", "80E01801", None, "RestartNPU")
    history.record([change] * 20_007)
    assert history.status().dropped == 7
