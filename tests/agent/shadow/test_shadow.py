"""The shadow on a store that comes and goes, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

import pytest
from msgspec.structs import replace

from agent.pages import status
from agent.publishing.publisher import DesiredDocument
from agent.shadow.comparison import MISSING_MS, ComparisonResult
from agent.shadow.difference import DocumentDifference, Fact
from agent.shadow.difference_log import DifferenceLog
from agent.shadow.reasons import Background
from agent.shadow.shadow import Shadow
from contract.pages.agent_status import (
    ChipStatus,
    DriverStatus,
    Field,
    HeartbeatStatus,
    WriteResult,
)
from tests.agent.shadow.documents import rich_tree, written
from tests.parts.tasks import beside
from tests.replay.cluster import RecordedCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.pages.agent_status import ReportedDifference
    from stores.base import Document, Store

pytestmark = pytest.mark.looptime(resolution=2**-20)
BEGIN_MS = 1_800_000_000_000
RIGHT = written(rich_tree())
MILDER = rich_tree()
MILDER["SwitchInfoCfg"]["FaultLevel"] = "NotHandle"
DRIVER = DriverStatus("/", "l", None, None, None, None, None, 0, (), ())


class Bench:
    """A shadow with the desired document ``wanted``, and its reports."""

    def __init__(self) -> None:
        self.cluster = RecordedCluster()
        self.wanted: Document | None = RIGHT
        self.first: list[Document | None] = []
        self.written: list[tuple[str, bool]] = []
        self.reported: list[ReportedDifference] = []
        loop = asyncio.get_running_loop()
        self.namespace = RIGHT.namespace
        self.name = RIGHT.name
        self.background = Background(lambda code: True, lambda device: False)
        self.shadow = Shadow(
            cast("Store", self.cluster),
            self,
            lambda: BEGIN_MS + round(loop.time() * 1000),
            lambda: None,
        )

    def lingers(self) -> bool:
        return False

    def on_first_read(self, existing: Document | None) -> None:
        self.first.append(existing)

    def record_owner_write(self, foreign: Document, may_be_edited: bool) -> None:
        self.written.append((foreign.data["ManuallySeparateNPU"], may_be_edited))

    def on_reported(self, difference: ReportedDifference) -> None:
        self.reported.append(difference)

    def desired(self) -> DesiredDocument | None:
        document = self.wanted
        if document is None:
            return None
        return DesiredDocument(1, document, lambda stamp: document, 300.0)

    def not_ready(self) -> tuple[str, ...]:
        chips = [ChipStatus(0, "Ascend910-0", None, None, True, "", 0, (), ())]
        return status.not_ready((), chips, DRIVER, HEARTBEAT, self.shadow.status())


HEARTBEAT = HeartbeatStatus("a_1", 5.0, "unknown", None, 0, 0, None, None, None)


@contextlib.asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[Bench]:
    async with beside(bench.shadow.run()):
        yield bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with running(Bench()) as bench:
        yield bench


def counts(bench: Bench) -> dict[str, int]:
    return {result: count for result, count in bench.shadow.status().writes.items() if count}


async def test_an_outage_is_no_fault_of_the_plugin(bench: Bench) -> None:
    bench.cluster.change(RIGHT)
    await asyncio.sleep(1)
    assert counts(bench) == {"same": 1}
    assert bench.not_ready() == ()
    bench.cluster.do("stop")
    await asyncio.sleep(1)
    assert bench.not_ready() == (f"{RIGHT.name} cannot be watched: connection refused",)
    bench.wanted = written(MILDER)
    bench.shadow.wake()
    await asyncio.sleep(600)
    assert counts(bench) == {"same": 1}
    bench.cluster.do("start")
    await asyncio.sleep(1)
    assert bench.not_ready() == ()
    assert counts(bench) == {"same": 1}, "what is seen again is no write"
    await asyncio.sleep(MISSING_MS / 1000)
    assert counts(bench) == {"same": 1, "not_written": 1}
    (reported,) = bench.reported
    assert reported.place == "FaultLevel of the switches"
    bench.cluster.change(written(MILDER))
    await asyncio.sleep(1)
    assert bench.shadow.status().reported[0].over_at_ms is not None


async def test_an_operators_edit_is_distinguished_from_a_write_of_the_plugin(bench: Bench) -> None:
    bench.cluster.change(RIGHT)
    await asyncio.sleep(1)
    names = {"ManuallySeparateNPU": "Ascend910-3"}
    bench.cluster.change(replace(RIGHT, data=RIGHT.data | names))
    await asyncio.sleep(1)
    tree = rich_tree(1_800_000_009)
    bench.cluster.change(written(tree))
    await asyncio.sleep(1)
    bench.cluster.do("stop")
    bench.cluster.change(RIGHT)
    bench.cluster.do("start")
    await asyncio.sleep(1)
    both = RIGHT.data["ManuallySeparateNPU"]
    assert bench.first == [None]
    assert bench.written == [(both, False), ("Ascend910-3", True), (both, False), (both, True)]


async def test_watch_event_without_a_write_is_not_judged(bench: Bench) -> None:
    bench.cluster.change(RIGHT)
    await asyncio.sleep(1)
    bench.cluster.change(replace(RIGHT, annotations={"somebody": "else"}))
    await asyncio.sleep(1)
    assert counts(bench) == {"same": 1}


async def test_it_waits_while_too_little_is_known() -> None:
    bench = Bench()
    bench.wanted = None
    async with running(bench):
        bench.cluster.change(written(MILDER))
        bench.cluster.change(RIGHT)
        await asyncio.sleep(60)
        assert counts(bench) == {}
        bench.wanted = RIGHT
        bench.shadow.wake()
        await asyncio.sleep(1)
        assert counts(bench) == {"same": 1}, "what is there now"


async def test_nothing_is_compared_without_a_desired_document(bench: Bench) -> None:
    bench.cluster.change(RIGHT)
    await asyncio.sleep(1)
    bench.wanted = None
    bench.shadow.wake()
    await asyncio.sleep(1)
    bench.cluster.change(written(MILDER))
    await asyncio.sleep(60)
    assert counts(bench) == {"same": 1}
    bench.wanted = RIGHT
    bench.shadow.wake()
    await asyncio.sleep(10)
    assert counts(bench) == {"same": 1, "different": 1}


def test_difference_log_is_bounded_and_drops_ended_ones_first() -> None:
    ledger = DifferenceLog(lambda difference, theirs: None)

    def wrong(chip: int) -> DocumentDifference:
        return DocumentDifference(Fact(Field.FREE, f"Ascend910-{chip}"), None, "listed")

    standing = wrong(1_000)
    for chip in range(500):
        ledger.record(ComparisonResult(WriteResult.DIFFERENT, chip, (wrong(chip), standing)), chip)
    reported = ledger.status("document", None).reported
    assert len(reported) == 200
    assert {one.device for one in reported if one.over_at_ms is None} == {
        "Ascend910-499",
        "Ascend910-1000",
    }
    (oldest,) = (one for one in reported if one.device == "Ascend910-1000")
    assert (oldest.since_ms, oldest.seen) == (0, 500)


def test_more_fields_of_a_device_that_differs_already_are_reported_once() -> None:
    ledger = DifferenceLog(lambda difference, theirs: "K04")
    level = DocumentDifference(
        Fact(Field.FAULT_LEVEL, "Ascend910-3", "CardUnhealthy"), None, "RestartNPU"
    )
    named = DocumentDifference(Fact(Field.MANUALLY_SEPARATED, "Ascend910-3"), "listed", None)

    def reported(*found: DocumentDifference) -> list[tuple[str, ...]]:
        new = ledger.record(ComparisonResult(WriteResult.DIFFERENT, 1, found), 1)
        return [(one.place, *one.also) for one in new]

    assert reported(level) == [(level.fact.place,)]
    assert reported(level) == []
    assert reported(level, named) == [(level.fact.place, named.fact.place)]
    assert reported(level) == reported(level, named) == []
