"""What is published is in the history of every store, each change once, whenever we are killed."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from aggregator.notify.history import ClusterHistory
from aggregator.notify.history_file import (
    FILE_NAME,
    HistoryFile,
    read_levels_at,
    read_published_levels,
)
from contract.pages.changes import FaultChange
from service.clock import Instant
from tests.aggregator.daemon import OUTPUTS, Daemon, entries
from tests.aggregator.nodes import T0, faulty, healthy, report, unhealthy
from tests.parts.deadlines import patience, until
from tests.parts.watching import Watching, watching

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stores.base import Store
    from tests.aggregator.conftest import Make

Row = tuple[str, str, str | None, str | None]


def rows(daemon: Daemon) -> list[Row]:
    page = daemon.ask("/api/v1/history?after=0")[1]
    published = [one["published"] for one in page["events"]]
    return [(one["node"], one["subject"], one.get("was"), one.get("level")) for one in published]


def began(node: str, chip: int) -> Row:
    return node, f"Ascend910-{chip}", None, "RestartNPU"


def ended(node: str, chip: int) -> Row:
    return node, f"Ascend910-{chip}", "RestartNPU", None


def shows(node: str, chip: int) -> Callable[[Watching], bool]:
    return lambda seen: (
        node in entries(seen) and unhealthy(entries(seen)[node]) == f"Ascend910-{chip}"
    )


async def has(daemon: Daemon, expected: list[Row]) -> None:
    """Wait for these rows, and that there are no others."""
    await until(lambda: len(rows(daemon)) >= len(expected), seconds=20)
    assert sorted(map(str, rows(daemon))) == sorted(map(str, expected))


@pytest.fixture
def kind() -> str:
    return "directory"


def held(daemon: Daemon) -> sqlite3.Connection:
    """Keep the history locked: the daemon cannot write anything meanwhile."""
    connection = sqlite3.connect(daemon.log.parent / FILE_NAME, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    return connection


async def test_each_change_is_there_once_over_kills(daemon: Daemon, store: Store) -> None:
    await store.put(report("n1", faulty(3)))
    await store.put(report("n2", faulty(4)))
    await store.put(report("n3", healthy()))
    await asyncio.to_thread(daemon.start)
    so_far = [began("n1", 3), began("n2", 4)]
    await has(daemon, so_far)
    with closing(held(daemon)):
        async with watching(store, OUTPUTS) as seen:
            await store.put(report("n1", faulty(5, T0 + 1)))
            await seen.until(shows("n1", 5))
        daemon.kill()  # it is published, and not in the history yet
    # While no aggregator runs one ends and one begins.
    await store.put(report("n2", healthy(T0 + 3)))
    await store.put(report("n3", faulty(7, T0 + 3)))
    await asyncio.to_thread(daemon.start)
    so_far += [ended("n1", 3), began("n1", 5), ended("n2", 4), began("n3", 7)]
    await has(daemon, so_far)
    daemon.kill()
    await asyncio.to_thread(daemon.start)
    await store.put(report("n3", healthy(T0 + 4)))
    await has(daemon, [*so_far, ended("n3", 7)])


async def test_faults_older_than_the_history_are_no_change(
    make: Make, address: tuple[str, Path | None], store: Store
) -> None:
    daemon, other = make(*address), make(*address)
    await store.put(report("n1", faulty(3)))
    await asyncio.to_thread(daemon.start)
    daemon.stop()
    other.start()  # its state directory is empty
    await store.put(report("n1", faulty(4, T0 + 1)))
    await has(other, [ended("n1", 3), began("n1", 4)])


def change(node: str, code: str, was: str | None, level: str | None) -> FaultChange:
    return FaultChange(node, 1, "Ascend910-3", code, was, level)


def test_a_file_knows_what_stands(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    assert read_published_levels(path) is None
    with closing(HistoryFile(path)) as file:
        assert read_published_levels(path) is None
        file.begin_levels({"n1": {("Ascend910-3", "A"): "x"}})
        file.begin_levels({"n2": {("Ascend910-3", "B"): "x"}})
        assert read_published_levels(path) == {"n1": {("Ascend910-3", "A"): "x"}}
        file.store_changes([change("n1", "A", "x", "y"), change("n1", "B", None, "x")])
        file.store_changes([change("n1", "A", "y", None)])
    assert read_published_levels(path) == {"n1": {("Ascend910-3", "B"): "x"}}


async def test_a_file_that_cannot_be_read_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / FILE_NAME
    history = ClusterHistory(tmp_path, {}, lambda: Instant(0, 0))
    path.unlink(missing_ok=True)
    path.mkdir()
    assert await history.published_levels() is None
    expected = f"history {path}: what was published before is not known: "
    assert any(record.getMessage().startswith(expected) for record in caplog.records)


def test_a_file_that_had_to_be_begun_anew_keeps_what_was_reported(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with closing(HistoryFile(path)) as file:
        file.store_changes([change("n1", "A", None, "x")])
    assert read_published_levels(path) == {"n1": {("Ascend910-3", "A"): "x"}}


def change_at(at_ms: int, code: str, was: str | None, level: str | None) -> FaultChange:
    return FaultChange("n1", at_ms, "Ascend910-3", code, was, level)


def test_what_was_published_at_a_time_is_what_is_published_without_later_changes(
    tmp_path: Path,
) -> None:
    path = tmp_path / FILE_NAME
    assert read_levels_at(path, 0) == {}
    file = HistoryFile(path)
    with closing(file):
        assert read_levels_at(path, 0) == {}
        file.begin_levels({"n1": {("Ascend910-3", "OLD"): "x"}, "n2": {("node", "status"): "y"}})
        file.store_changes(
            [
                change_at(10, "A", None, "low"),
                change_at(20, "A", "low", "high"),
                change_at(30, "OLD", "x", None),
                change_at(40, "A", "high", None),
                change_at(50, "A", None, "low"),
            ]
        )

    def of_chip(at_ms: int) -> dict[str, str]:
        levels = read_levels_at(path, at_ms)
        assert levels["n2"] == {("node", "status"): "y"}
        return {code: level for (_, code), level in levels["n1"].items()}

    assert of_chip(9) == {"OLD": "x"}
    assert of_chip(10) == {"OLD": "x", "A": "low"}
    assert of_chip(29) == {"OLD": "x", "A": "high"}
    assert of_chip(30) == {"A": "high"}
    assert of_chip(40) == {}
    assert of_chip(50) == {"A": "low"}
    assert read_levels_at(path, 10, "n2") == {"n2": {("node", "status"): "y"}}
    assert set(read_levels_at(path, 10, "n1")) == {"n1"}
    assert read_levels_at(path, 10, "n3") == {}


@pytest.mark.slow
@pytest.mark.alone
def test_a_hundred_thousand_rows_are_read_back_within_a_second(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    file = HistoryFile(path)
    with closing(file):
        file.store_changes(
            FaultChange(f"n{number % 1000}", number, f"Ascend910-{number % 16}", "A", "old", "low")
            for number in range(100_000)
        )
    began = time.monotonic()
    levels = read_levels_at(path, 0)
    assert time.monotonic() - began < patience(1.0)
    assert levels["n1"]["Ascend910-1", "A"] == "old"


async def test_the_page_has_what_was_published_and_whether_that_was_recorded(
    daemon: Daemon, store: Store
) -> None:
    await store.put(report("n1", healthy()))
    await asyncio.to_thread(daemon.start)
    before = daemon.ask("/api/v1/published")[1]
    assert before["faults"] == []
    await store.put(report("n1", faulty(3, T0 + 1)))
    await has(daemon, [began("n1", 3)])
    now = daemon.ask("/api/v1/published")[1]
    assert (now["is_recorded"], now["recorded_since_ms"] <= before["at_ms"]) == (True, True)
    assert [(row["node"], row["subject"]) for row in now["faults"]] == [("n1", "Ascend910-3")]
    (names,) = [now["names"][row["code"]] for row in now["faults"]]
    assert names["name"]
    assert names["name_zh"]
    assert daemon.ask("/api/v1/published?node=n1")[1]["faults"] == now["faults"]
    assert daemon.ask("/api/v1/published?node=n2")[1]["faults"] == []
    then = daemon.ask(f"/api/v1/published?at_ms={before['at_ms']}")[1]
    assert (then["is_recorded"], then["faults"]) == (True, [])
    assert daemon.ask("/api/v1/published?at_ms=1")[1]["is_recorded"] is False
    assert daemon.ask("/api/v1/published?at_ms=yesterday")[0] == 400
