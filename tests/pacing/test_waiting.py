"""A wait for an event ends with it, or with its time."""

from __future__ import annotations

import asyncio

import pytest

from pacing.waiting import is_set_within


async def test_a_wait_ends_with_the_event_or_with_its_time() -> None:
    event = asyncio.Event()
    assert not await is_set_within(event, 0.001)
    asyncio.get_running_loop().call_soon(event.set)
    assert await is_set_within(event, None)
    assert await is_set_within(event, 0.0)


async def test_a_wait_that_is_cancelled_is_no_end_of_its_time() -> None:
    waiting = asyncio.create_task(is_set_within(asyncio.Event(), 60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
