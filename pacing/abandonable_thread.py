"""Blocking work that may never return, in a thread of its own that no task has to wait for.

The event loop's own threads are waited for at the end of a program; these are not.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class AbandonableThread(Generic[T]):
    """``work``, begun at once in a thread called ``name``."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self._result: Future[T] = Future()
        # A task that gives up waiting cannot cancel it any more.
        self._result.set_running_or_notify_cancel()
        threading.Thread(target=finish, args=(self._result, work), name=name, daemon=True).start()

    @property
    def is_stuck(self) -> bool:
        """Whether it is still at work."""
        return not self._result.done()

    async def result(self, deadline_seconds: float) -> T:
        """Return what it returned or raised. Raises ``TimeoutError`` when it takes longer."""
        async with asyncio.timeout(deadline_seconds):
            return await asyncio.wrap_future(self._result)


def finish(result: Future[T], work: Callable[[], T]) -> None:
    """Do ``work`` in this thread; put its value or error into ``result``, which is running."""
    try:
        value = work()
    # All of them: a result that is never set would hold the waiting task until its deadline.
    except BaseException as error:
        result.set_exception(error)
    else:
        result.set_result(value)
