"""Waits with a deadline, and waits during which something else is due."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

T = TypeVar("T")

TICK_SECONDS = 0.001
"""Timers may fire early by the resolution of their clock; without this pause a loop would spin."""


def now_seconds() -> float:
    """Return the time of the running event loop: seconds of a monotonic clock."""
    return asyncio.get_running_loop().time()


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for ``event``, at most ``seconds``; return whether it is set. ``None``: no limit."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def await_with_ticks(
    work: Coroutine[Any, Any, T], every_seconds: float, meanwhile: Callable[[], None]
) -> T:
    """Return the result of ``work``. Raises its errors.

    ``meanwhile`` is called every so many seconds until then. What it raises ends the wait, and
    ``work`` is cancelled, as it is when the caller is.
    """
    task = asyncio.create_task(work)
    try:
        while True:
            await asyncio.wait((task,), timeout=every_seconds)
            if task.done():
                return task.result()
            meanwhile()
    finally:
        task.cancel()


async def gather_results(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of ``work``, all of which runs at the same time.

    Raises the first error, once the rest was cancelled and has ended. Where ``work`` fails in the
    turn of the loop in which the caller is cancelled, ``asyncio.gather`` raises the error alone: a
    caller that tries again after an error would never end. This raises the cancellation then.
    """
    caller = asyncio.current_task()
    assert caller is not None, "a coroutine runs in a task"
    before = caller.cancelling()
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    except Exception:
        if caller.cancelling() > before:
            raise asyncio.CancelledError from None
        raise
    finally:
        for task in tasks:
            task.cancel()
        # Those that were cancelled end before the caller may start them again.
        await asyncio.gather(*tasks, return_exceptions=True)
