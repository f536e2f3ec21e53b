"""The host's clock: steps, and the loss of its synchronisation."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from collectors.base import AgentOptions
from collectors.boot import boot_id
from collectors.host_clock import ClockSection, HostClockCollector, is_synchronised, offset_seconds
from contract.codes.host_codes import CLOCK_STEP, CLOCK_UNSYNCHRONISED, HOST_CLOCK
from contract.observation import Observation, host_subject
from tests.collectors.scripted import RecordedReports, ScriptedDriver, virtual_ms
from tests.parts.collector_context import SavedInMemory, collector_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ANSWERED = "node 0 answered"
STEP = f"host 0 Clock once {CLOCK_STEP}"
LOST = f"host 0 Clock present {CLOCK_UNSYNCHRONISED}"
FOUND = f"host 0 Clock absent {CLOCK_UNSYNCHRONISED}"


class Host:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.offset = 1_700_000_000.0
        self.synchronised: bool | None = False

    def collector(self) -> HostClockCollector:
        return HostClockCollector(
            ClockSection(),
            AgentOptions(),
            offset=lambda: self.offset,
            synchronised=lambda: self.synchronised,
        )


@contextlib.asynccontextmanager
async def running(
    host: Host, memory: SavedInMemory | None = None, *, lost: bool = False
) -> AsyncIterator[RecordedReports]:
    """Run the collector; yield its reports."""
    recorded = RecordedReports()
    tracked = {(host_subject(HOST_CLOCK, 0), CLOCK_UNSYNCHRONISED): 1} if lost else {}
    around = collector_context(
        recorded, virtual_ms, ScriptedDriver(), saved_state=memory, tracked=tracked
    )
    task = asyncio.create_task(host.collector().run(around))
    await asyncio.sleep(1)
    try:
        yield recorded
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def texts(recorded: RecordedReports) -> list[str]:
    reports = (one for _, batch in recorded.batches for one in batch)
    return [one.text for one in reports if isinstance(one, Observation)]


@pytest.mark.looptime
async def test_steps_in_both_directions_have_their_size() -> None:
    host = Host()
    async with running(host) as recorded:
        for step in (9.9, 10.0, -3600.5, -9.0, 0.0):
            host.offset += step
            await asyncio.sleep(60)
    assert recorded.words() == [ANSWERED, STEP, STEP]
    assert texts(recorded) == [
        "the clock was set forward by 10.0 s",
        "the clock was set back by 3600.5 s",
    ]


@pytest.mark.looptime
async def test_a_step_between_two_readings() -> None:
    host, memory = Host(), SavedInMemory()
    async with running(host, memory):
        pass
    host.offset -= 60
    async with running(host, memory) as recorded:
        await asyncio.sleep(120)
    assert recorded.words() == [ANSWERED, STEP]
    assert memory.content is not None
    memory.content = memory.content.replace(boot_id().encode(), b"another")
    host.offset -= 60
    async with running(host, memory) as recorded:
        pass
    assert recorded.words() == [ANSWERED], "another boot has another offset"
    async with running(host, SavedInMemory(b"{")) as recorded:
        pass
    assert recorded.words() == [ANSWERED]


@pytest.mark.looptime
async def test_only_what_was_synchronised_can_lose_it() -> None:
    host, memory = Host(), SavedInMemory()
    async with running(host, memory) as recorded:
        await asyncio.sleep(60)
        assert recorded.words() == [ANSWERED]
        host.synchronised = True
        await asyncio.sleep(60)
    host.synchronised = None
    async with running(host, memory) as recorded:
        host.synchronised = False
        await asyncio.sleep(60)
        assert recorded.words() == [ANSWERED, LOST]
    async with running(host, memory, lost=True) as recorded:
        assert recorded.words() == [ANSWERED]
        host.synchronised = True
        await asyncio.sleep(60)
    assert recorded.words() == [ANSWERED, FOUND]


def test_the_clocks_of_this_machine() -> None:
    before = offset_seconds()
    time.sleep(0.01)
    assert abs(offset_seconds() - before) < 0.005
    assert is_synchronised() in (True, False, None)
