"""A wait for an event ends with it or with its time; a long wait lets something else be done."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import weakref
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pacing.waiting import (
    SHARED_PERIOD_SECONDS,
    SharedWakeUps,
    await_with_ticks,
    gather_results,
    wait_for_event,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable


async def test_a_wait_ends_with_the_event_or_with_its_time() -> None:
    event = asyncio.Event()
    assert not await wait_for_event(event, 0.001)
    asyncio.get_running_loop().call_soon(event.set)
    assert await wait_for_event(event, None)
    assert await wait_for_event(event, 0.0)


async def test_a_wait_that_is_cancelled_is_no_end_of_its_time() -> None:
    waiting = asyncio.create_task(wait_for_event(asyncio.Event(), 60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.looptime
async def test_something_else_is_done_each_period_until_the_result_is_there() -> None:
    done: list[float] = []
    loop = asyncio.get_running_loop()
    result = await await_with_ticks(
        asyncio.sleep(35, "done"), 10.0, lambda: done.append(loop.time())
    )
    assert result == "done"
    assert done == [10, 20, 30]


@pytest.mark.looptime
async def test_what_is_done_meanwhile_is_released_without_garbage_collection() -> None:
    released = weakref.ref(meanwhile := lambda: None)
    gc.disable()
    try:
        await await_with_ticks(asyncio.sleep(25), 10.0, meanwhile)
        del meanwhile
        assert released() is None
    finally:
        gc.enable()


@pytest.mark.looptime
async def test_error_of_the_work_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("work")

    with pytest.raises(ValueError, match="work"):
        await await_with_ticks(fail(), 10.0, lambda: None)


@pytest.mark.looptime
async def test_work_is_cancelled_by_an_error_meanwhile_and_with_its_caller() -> None:
    cancelled: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    def give_up() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await await_with_ticks(work("given up"), 1.0, give_up)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await await_with_ticks(work("too late"), 10.0, lambda: None)
    await asyncio.sleep(0)
    assert cancelled == ["given up", "too late"]


@pytest.mark.looptime
async def test_results_come_in_the_order_of_the_work() -> None:
    assert await gather_results(asyncio.sleep(3 - n, n) for n in range(3)) == [0, 1, 2]


@pytest.mark.looptime
async def test_an_error_ends_the_rest_first() -> None:
    ended: list[str] = []

    async def last() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append("last")

    with pytest.raises(KeyError):
        await gather_results([last(), _failing(asyncio.sleep(0))])
    assert ended == ["last"]


@pytest.mark.looptime
@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_ends_who_tries_again_after_an_error(turns: int) -> None:
    error = asyncio.get_running_loop().create_future()

    async def try_again() -> None:
        while True:
            try:
                await gather_results([_failing(error), asyncio.sleep(60)])
            except KeyError:
                await asyncio.sleep(60)

    trying = asyncio.create_task(try_again())
    for _ in range(3):
        await asyncio.sleep(0)
    error.set_result(None)
    for _ in range(turns):
        await asyncio.sleep(0)
    trying.cancel()
    await asyncio.wait([trying], timeout=30)
    assert trying.cancelled()


async def _failing(work: Awaitable[object]) -> None:
    await work
    raise KeyError


def _wake_ups(phase: float, started: float, seconds: float) -> set[float]:
    """Return when an agent wakes up for timers of these periods, each started at its own time."""
    shared, times = SharedWakeUps(phase), set[float]()
    for place, period in enumerate((2.5, 5.0, 5.0, 10.0, 10.0, 30.0)):
        # Each wakes up a little late, and the clock of a timer may be early by a millisecond.
        now = started + 0.3 * place
        while (now := now + shared.pause(now, period) - 0.001) < started + seconds:
            times.add(round(now, 1))
    return times


def test_timers_that_can_wait_share_their_wake_ups() -> None:
    times = sorted(_wake_ups(1.2, 100.0, 60.0))
    assert len(times) == 60 / SHARED_PERIOD_SECONDS
    assert {round(after - before, 1) for before, after in itertools.pairwise(times)} == {
        SHARED_PERIOD_SECONDS
    }


@pytest.mark.parametrize("phase", [0.0, 0.02, 0.05, 0.06, 1.2, 2.49])
def test_a_shared_pause_is_early_once_and_late_by_no_more_than_a_timer(phase: float) -> None:
    shared = SharedWakeUps(phase)
    pause = shared.pause(100.0, 10.0)
    assert 10.05 - SHARED_PERIOD_SECONDS < pause <= 10.05
    assert shared.pause(100.0 + pause + 0.02, 10.0) == pytest.approx(9.98)
    assert shared.pause(100.0 + pause - 0.02, 10.0) == pytest.approx(10.02)
    assert shared.pause(100.0, 4.0) == 4.0, "no multiple of the shared period"
    assert shared.pause(100.0, 0.0) == 0.0


def test_a_thousand_agents_do_not_wake_up_in_one_second() -> None:
    draw = random.Random(0)
    seconds = Counter[int]()
    for _ in range(1000):
        # All are started in one second, as by a change of their DaemonSet.
        phase = draw.uniform(0, SHARED_PERIOD_SECONDS)
        seconds.update(map(int, _wake_ups(phase, 100.0 + draw.random(), 61.0)))
    whole = [seconds[second] for second in range(102, 160)]
    assert max(whole) < 2 * sum(whole) / len(whole)
