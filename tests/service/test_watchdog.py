"""Silence of a task with a pace is a stall, and so is working for too long; waiting is not."""

from __future__ import annotations

import asyncio

import pytest

from service.watchdog import STANDSTILL_SECONDS, Watchdog


class Clock:
    """Time that stands still."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_task_that_is_silent_for_too_long_is_named() -> None:
    clock = Clock()
    stalls = Watchdog(clock)
    goes_on = stalls.register("goes on", 10)
    stalls.register("stands still", 10)
    stalls.register("has time", 100)
    for clock.seconds in (6.0, 12.0):
        goes_on()
    assert stalls.stalled() == {"stands still": 12.0}


def test_working_for_too_long_is_a_stall_and_waiting_is_none() -> None:
    clock = Clock()
    stalls = Watchdog(clock)
    with stalls.busy("merge"):
        clock.seconds = 30
        with stalls.busy("write"):
            clock.seconds = 61
            assert stalls.stalled() == {"merge": 61.0}
    clock.seconds = 1000
    assert stalls.stalled() == {}


@pytest.mark.looptime
@pytest.mark.parametrize("first", ["watch", "a task"])
async def test_while_the_whole_process_stands_still_no_task_stalls(first: str) -> None:
    loop = asyncio.get_running_loop()
    stood_still = 0.0
    resumed: list[float] = []

    def now() -> float:
        return loop.time() + stood_still

    stalls = Watchdog(now, now)
    goes_on, _ = stalls.register("goes on", 10), stalls.register("stands still", 25)
    watch = asyncio.create_task(stalls.watch(lambda: resumed.append(loop.time())))
    for _ in range(20):
        await asyncio.sleep(1.01)
        goes_on()
    assert stalls.stalled() == {}
    stood_still = 70.0
    if first == "a task":
        assert stalls.stalled() == {}
    await asyncio.sleep(2.5)
    assert len(resumed) == 1
    assert stalls.stalled() == {}
    goes_on()
    # The time before and after it counts.
    await asyncio.sleep(9)
    assert set(stalls.stalled()) == {"stands still"}
    await asyncio.sleep(2.5)
    assert set(stalls.stalled()) == {"goes on", "stands still"}
    assert len(resumed) == 1
    watch.cancel()


@pytest.mark.looptime
async def test_a_busy_machine_is_no_standstill_and_a_suspended_host_is_one() -> None:
    loop = asyncio.get_running_loop()
    late = suspended = 0.0
    resumed: list[float] = []
    # The steady clock stands still while the host is suspended.
    stalls = Watchdog(lambda: loop.time() + late, lambda: loop.time() + late + suspended)
    stalls.register("storage", 2)
    watch = asyncio.create_task(stalls.watch(lambda: resumed.append(loop.time())))
    await asyncio.sleep(1)
    late = STANDSTILL_SECONDS - 3
    assert set(stalls.stalled()) == {"storage"}
    await asyncio.sleep(3)
    assert not resumed
    suspended = 70.0
    await asyncio.sleep(2)
    assert len(resumed) == 1
    watch.cancel()
