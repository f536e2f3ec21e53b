"""Work in a thread is over before whoever waited for it goes on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from service.tasks import in_thread
from tests.parts.deadlines import patience, stays, time_passes


async def test_result_and_error_of_the_thread_are_passed_on() -> None:
    assert await in_thread(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)


async def test_cancelled_wait_ends_after_the_thread() -> None:
    may_end, ended = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait(patience(10))
        ended.set()

    waiting = asyncio.create_task(in_thread(work))
    await time_passes(0.05)
    waiting.cancel()
    await stays(0.05, because="a cancelled task ends with the next turn of the loop")
    assert not waiting.done(), "the thread is still at work"
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()
