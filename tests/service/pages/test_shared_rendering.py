"""A rendering that requests share."""

from __future__ import annotations

import asyncio

import pytest

from service.pages.shared_rendering import SharedRendering


@pytest.mark.looptime
async def test_requests_share_one_until_it_is_old_and_not_current() -> None:
    count, changes = 0, False

    async def render() -> int:
        nonlocal count
        count += 1
        await asyncio.sleep(0.1)
        return count

    shared = SharedRendering("numbers", render, lambda _: not changes)
    assert await asyncio.gather(*(shared.get() for _ in range(5))) == [1] * 5
    await asyncio.sleep(2)
    assert await shared.get() == 1, "nothing has changed"
    changes = True
    assert await shared.get() == 2
    await asyncio.sleep(0.9)
    assert await shared.get() == 2, "it is younger than a second"
    await asyncio.sleep(0.2)
    assert await shared.get() == 3


async def test_an_error_reaches_those_who_waited_and_none_later() -> None:
    calls = 0

    async def render() -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        if calls == 1:
            raise ValueError("once")
        return 7

    shared = SharedRendering("numbers", render)
    waited = await asyncio.gather(shared.get(), shared.get(), return_exceptions=True)
    assert [str(error) for error in waited] == ["once", "once"]
    assert await shared.get() == 7


async def test_a_request_that_leaves_ends_the_rendering_for_no_other() -> None:
    go = asyncio.Event()

    async def render() -> int:
        await go.wait()
        return 1

    shared = SharedRendering("numbers", render)
    first, second = asyncio.create_task(shared.get()), asyncio.create_task(shared.get())
    await asyncio.sleep(0)
    first.cancel()
    go.set()
    assert await second == 1
    with pytest.raises(asyncio.CancelledError):
        await first
