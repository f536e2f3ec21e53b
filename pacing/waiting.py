"""Waits with a deadline, and waits during which something else is due."""

from __future__ import annotations

import asyncio
import math
import random
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

T = TypeVar("T")

BEHIND_SECONDS = 0.02
"""So long behind an event its document is on its way, and what no reader waits for may begin."""
TICK_SECONDS = 0.001
"""Timers may fire early by the resolution of their clock; without this pause a loop would spin."""

SHARED_PERIOD_SECONDS = 2.5
_EARLY_SECONDS = 0.05
"""How far a timer may be off and still belong to its shared wake-up."""


class SharedWakeUps:
    """Times at which a process wakes up for all timers that can wait.

    They are ``SHARED_PERIOD_SECONDS`` apart. ``phase_seconds`` is the part of this period at which
    they are, by a monotonic clock; it differs between processes.
    """

    def __init__(self, phase_seconds: float) -> None:
        self.phase_seconds = phase_seconds

    def pause(self, now: float, seconds: float) -> float:
        """Return the seconds from ``now`` to the last shared wake-up within ``seconds``.

        So a timer is early the first time, and exact from then on. The result may be longer than
        ``seconds`` by 0.05. A period that is not a multiple of ``SHARED_PERIOD_SECONDS`` is kept.
        """
        if seconds <= 0 or seconds % SHARED_PERIOD_SECONDS:
            return seconds
        until = now + seconds + _EARLY_SECONDS - self.phase_seconds
        at = math.floor(until / SHARED_PERIOD_SECONDS) * SHARED_PERIOD_SECONDS
        return at + self.phase_seconds - now


SHARED_WAKE_UPS = SharedWakeUps(random.uniform(0, SHARED_PERIOD_SECONDS))
"""Those of this process."""


def shared_pause(seconds: float) -> float:
    """Return ``SharedWakeUps.pause`` of this process and the running event loop."""
    return SHARED_WAKE_UPS.pause(now_seconds(), seconds)


def pause_until_mark(mark_seconds: float, remaining_seconds: float) -> float:
    """Return the pause of a task with ``remaining_seconds`` that marks progress meanwhile.

    The mark can wait for a shared wake-up, and the end of the task cannot.
    """
    if remaining_seconds <= mark_seconds:
        return remaining_seconds
    return min(shared_pause(mark_seconds), remaining_seconds)


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

    ``meanwhile`` is called every so many seconds until then. What it raises cancels ``work``, and
    is raised once that has ended.
    """
    loop, caller = asyncio.get_running_loop(), asyncio.current_task()
    assert caller is not None, "a coroutine runs in a task"
    before = caller.cancelling()
    failure: Exception | None = None
    timer: asyncio.TimerHandle

    # It is its own argument. A function that names itself would stay until a full collection, with
    # all that the caller handed over.
    def tick(itself: Callable[..., None]) -> None:
        nonlocal failure, timer
        try:
            meanwhile()
        except Exception as error:
            failure = error
            caller.cancel()
        else:
            timer = loop.call_later(every_seconds, itself, itself)

    timer = loop.call_later(every_seconds, tick, tick)
    try:
        # Not in a task of its own, which would begin a turn of the loop later.
        return await work
    except asyncio.CancelledError:
        # The caller may have been cancelled as well.
        if failure is not None and caller.uncancel() <= before:
            raise failure from None
        raise
    finally:
        timer.cancel()


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
