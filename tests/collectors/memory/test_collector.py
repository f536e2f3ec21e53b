"""Memory of the host: pressure, and kills that the kernel's log does not contain."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from collectors.memory.collector import MemoryCollector, MemorySection
from collectors.memory.pressure import (
    OomKills,
    Pressure,
    PressureLimits,
    oom_kills,
    stalled_percent,
)
from contract.codes.host_codes import HOST_MEMORY, KERNEL_LOG, MEMORY_PRESSURE, OOM_KILL
from contract.observation import Assertion, Gap, Observation, host_subject
from tests.collectors.scripted import beside_others
from tests.parts.collector_context import SavedInMemory
from tests.parts.deadlines import time_passes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from collectors.base import CollectorContext

PRESSURE = """\
some avg10=31.00 avg60=30.10 avg300=9.00 total=1234
full avg10=30.00 avg60={:.2f} avg300=8.00 total=1000
"""
ANSWERED = "node 0 answered"
SHORT = f"host 0 Host Memory present {MEMORY_PRESSURE}"
ENOUGH = f"host 0 Host Memory absent {MEMORY_PRESSURE}"
KILL = f"host 0 Host Memory once {OOM_KILL}"
KILLED = Observation(KERNEL_LOG, host_subject(HOST_MEMORY, 0), OOM_KILL, Assertion.ONCE, 1)


def test_figures_are_read_from_the_text_of_the_kernel() -> None:
    assert stalled_percent(PRESSURE.format(12.5)) == 12.5
    assert stalled_percent("some avg10=0.00 avg60=1.00 avg300=0.00 total=0\n") is None
    assert stalled_percent("") is None
    assert oom_kills("nr_free_pages 1\noom_kill 7\nnuma 2\n") == 7
    assert oom_kills("nr_free_pages 1\n") is None


def test_stalls_have_a_hysteresis() -> None:
    pressure = Pressure(PressureLimits(20, 10), PressureLimits(3, 5), is_short=False)
    seen = []
    for percent in (19.9, 20.0, 10.0, 9.9, 15.0):
        pressure.observe_stalls(percent)
        seen.append(pressure.is_short)
    assert seen == [False, True, True, False, False]


def test_little_memory_counts_at_the_second_look() -> None:
    pressure = Pressure(PressureLimits(20, 10), PressureLimits(3, 5), is_short=False)
    seen = []
    for percent in (2.0, 4.0, 2.0, 2.9, 4.9, 5.0, 2.0):
        pressure.observe_available(percent)
        seen.append(pressure.is_short)
    assert seen == [False, False, False, True, True, False, False]
    again = Pressure(PressureLimits(20, 10), PressureLimits(3, 5), is_short=True)
    again.observe_available(4.0)
    assert again.is_short, "a restart changes nothing"


def test_kills_that_the_log_contains_are_not_reported_twice() -> None:
    kills, seen = OomKills(None), []
    for total, counted in ((5, 0), (6, 1), (7, 0), (7, 1), (7, 0)):
        for _ in range(counted):
            kills.count_logged_kill()
        seen.append((kills.pop_unlogged_kills(total), kills.is_suspicious))
    # The first is history; the third is logged a moment after it was counted.
    assert seen == [(0, False), (0, False), (0, True), (0, False), (0, False)]


def test_kills_that_the_log_does_not_contain() -> None:
    kills = OomKills(5)
    assert [kills.pop_unlogged_kills(total) for total in (7, 8, 8, 8)] == [0, 2, 1, 0]
    kills.count_logged_kill()
    assert [kills.pop_unlogged_kills(total) for total in (8, 8)] == [0, 0], (
        "logged, but not counted"
    )


class Kernel:
    """What a kernel counts, below a directory."""

    def __init__(self, place: Path) -> None:
        self.proc = place
        (place / "pressure").mkdir()
        self.stalls(0)
        self.kills(3)

    def stalls(self, percent: float) -> None:
        (self.proc / "pressure/memory").write_text(PRESSURE.format(percent))

    def kills(self, count: int) -> None:
        (self.proc / "vmstat").write_text(f"nr_free_pages 1\noom_kill {count}\n")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    """Return a kernel without memory pressure."""
    return Kernel(tmp_path)


def collector_of(kernel: Kernel, **percent: float) -> Callable[[CollectorContext], MemoryCollector]:
    """Return what makes a collector of this kernel's memory."""
    return partial(MemoryCollector, MemorySection(**percent), proc=kernel.proc)  # type: ignore[arg-type]


@pytest.mark.looptime
async def test_pressure_comes_and_goes(kernel: Kernel) -> None:
    async with beside_others(collector_of(kernel)) as (recorded, _):
        kernel.stalls(50)
        await asyncio.sleep(60)
        kernel.stalls(15)
        await asyncio.sleep(60)
        kernel.stalls(1)
        await asyncio.sleep(60)
    assert recorded.words() == [ANSWERED, SHORT, ENOUGH]


@pytest.mark.looptime
async def test_tracked_pressure_ends_when_memory_is_available(kernel: Kernel) -> None:
    tracked = {(host_subject(HOST_MEMORY, 0), MEMORY_PRESSURE): 1}
    async with beside_others(collector_of(kernel), tracked=tracked) as (recorded, _):
        await time_passes(0.1)
    assert recorded.words() == [ANSWERED, ENOUGH]


@pytest.mark.looptime
async def test_kills_are_counted_where_the_log_is_silent(kernel: Kernel) -> None:
    memory = SavedInMemory()
    async with beside_others(collector_of(kernel), memory) as (recorded, push):
        kernel.kills(4)
        push([KILLED])
        await asyncio.sleep(130)
        assert recorded.words() == [ANSWERED]
        kernel.kills(6)
        push([Gap(KERNEL_LOG, 1, "lost")])
        await asyncio.sleep(1)
        assert recorded.words() == [ANSWERED], "the log may be late"
        await asyncio.sleep(2)
        assert recorded.words() == [ANSWERED, KILL]
    kernel.kills(7)
    async with beside_others(collector_of(kernel), memory) as (recorded, _):
        await asyncio.sleep(3)
    assert recorded.words() == [ANSWERED, KILL], "while nobody looked"


@pytest.mark.looptime
async def test_kills_since_another_boot(kernel: Kernel) -> None:
    memory = SavedInMemory(b'{"boot":"another","accounted":900}')
    async with beside_others(collector_of(kernel), memory) as (recorded, _):
        await asyncio.sleep(3)
    assert recorded.words() == [ANSWERED, KILL]


@pytest.mark.looptime
async def test_a_kernel_without_pressure_is_asked_what_is_available(kernel: Kernel) -> None:
    (kernel.proc / "pressure/memory").unlink()
    async with beside_others(
        collector_of(kernel, available_percent=100.0, available_cleared_percent=100.0)
    ) as (recorded, _):
        await asyncio.sleep(61)
    assert recorded.words() == [ANSWERED, SHORT]
    async with beside_others(collector_of(kernel)) as (recorded, _):
        await asyncio.sleep(61)
    assert recorded.words() == [ANSWERED], "this machine has enough"


@pytest.mark.looptime
async def test_a_kernel_without_figures_is_blindness(kernel: Kernel) -> None:
    (kernel.proc / "vmstat").unlink()
    async with beside_others(collector_of(kernel), SavedInMemory(b"{")) as (recorded, _):
        await asyncio.sleep(120)
        (blind,) = recorded.words()
        assert "vmstat" in blind
        kernel.kills(0)
        await asyncio.sleep(60)
    assert recorded.words()[1:] == [ANSWERED]
