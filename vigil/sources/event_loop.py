"""An event loop in a thread of its own, for verbs that are not asynchronous themselves."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from contract.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class EventLoop:
    """Runs coroutines one after the other, and tasks beside them, until ``close``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], seconds: float, what: str) -> T:
        """Return the result of ``work``. Raises what it raises.

        ``StoreUnavailable`` names ``what`` when that takes longer than ``seconds``.
        """
        running = asyncio.run_coroutine_threadsafe(_limited(work, seconds, what), self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` until it ends, or until ``close``."""

        async def start() -> None:
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        asyncio.run_coroutine_threadsafe(start(), self._loop).result()

    def close(self, last: Coroutine[Any, Any, None], seconds: float) -> None:
        """End all tasks, run ``last`` for at most ``seconds``, and end the thread."""

        async def end() -> None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            async with asyncio.timeout(seconds):
                await last

        with suppress(Exception, CancelledError):
            asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _limited(work: Coroutine[Any, Any, T], seconds: float, what: str) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise StoreUnavailable(f"{what} gives no answer in {seconds:g} s") from None
