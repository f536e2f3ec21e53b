"""A wait for an event ends with it or with its time; a long wait lets something else be done."""

from __future__ import annotations

import asyncio

import pytest

from pacing.waiting import await_with_ticks, wait_for_event


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
