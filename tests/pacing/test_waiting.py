"""A wait for an event ends with it or with its time; a long wait lets something else be done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pacing.waiting import await_with_ticks, gather_results, wait_for_event

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
