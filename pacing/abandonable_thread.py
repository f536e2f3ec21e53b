"""Blocking work that may never return, in a thread of its own that no task has to wait for.

The event loop's own threads are waited for at the end of a program; these are not.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class AbandonableThread(Generic[T]):
    """``work``, begun at once in a thread called ``name``."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._result: asyncio.Future[T] = self._loop.create_future()
        self._work = work
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def is_stuck(self) -> bool:
        """Whether it is still at work."""
        return not self._result.done()

    async def result(self, deadline_seconds: float) -> T:
        """Return what it returned or raised. Raises ``TimeoutError`` when it takes longer."""
        async with asyncio.timeout(deadline_seconds):
            return await asyncio.shield(self._result)

    def _run(self) -> None:
        try:
            result = self._work()
        except BaseException as error:
            self._call(self._result.set_exception, error)
        else:
            self._call(self._result.set_result, result)

    def _call(
        self, callback: Callable[[T], None] | Callable[[BaseException], None], what: object
    ) -> None:
        def call() -> None:
            if not self._result.cancelled():
                callback(what)  # type: ignore[arg-type]
                if not self._result.cancelled():
                    self._result.exception()

        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
            self._loop.call_soon_threadsafe(call)
