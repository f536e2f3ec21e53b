"""Blocking work that may never return, one piece after the other in a single thread.

A network share whose server is away answers nothing, for hours. The thread that asks is held for so
long; with one thread that is all it costs. The end of a program does not wait for that thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from contract.errors import StoreUnavailable
from pacing.abandonable_thread import finish
from pacing.cooperative import WorkBacklog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pacing.cooperative import Work

PATIENCE_SECONDS = 10.0
"""For one piece of work."""

T = TypeVar("T")
P = ParamSpec("P")


class OneThread:
    """Does the work on ``name``, as errors name it. The thread begins with the first piece."""

    def __init__(self, name: str) -> None:
        self._what = name
        self._pieces: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._began: float | None = None
        """Since when the thread is at work on one piece, by the steady clock."""

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what ``work`` returns or raises.

        Raises ``StoreUnavailable`` when a piece takes too long, this one or one before it. What has
        begun then still runs to its end, before anything that is handed over later.
        """
        result: Future[T] = Future()

        def piece() -> None:
            # The caller may have given up meanwhile; what has not begun is then not done at all.
            if result.set_running_or_notify_cancel():
                finish(result, partial(work, *args, **kwargs))

        self._start()
        self._pieces.put(piece)
        waiting = asyncio.wrap_future(result)
        try:
            await self._wait_for(waiting)
        finally:
            result.cancel()
            waiting.cancel()
        return waiting.result()

    async def run_in_pieces(self, work: Work[T], size: int) -> T:
        """Return the result of ``work``; other work is done after each piece of ``size``.

        Raises what ``work`` raises, and ``StoreUnavailable`` as ``run`` does, for each piece.
        """
        results: list[T] = []

        def collecting() -> Work[None]:
            results.append((yield from work))

        pieces = WorkBacklog(size)
        pieces.add(collecting())
        while pieces:
            await self.run(pieces.do_piece)
        return results[0]

    def close(self) -> None:
        """Let the thread end when everything that was handed over is done."""
        if self._thread is not None:
            self._pieces.put(None)
            self._thread = None

    async def _wait_for(self, result: asyncio.Future[T]) -> None:
        while not result.done():
            began = self._began
            now = time.monotonic()
            remaining_seconds = (
                PATIENCE_SECONDS if began is None else began + PATIENCE_SECONDS - now
            )
            if remaining_seconds <= 0:
                raise StoreUnavailable(
                    f"{self._what} does not answer within {PATIENCE_SECONDS:g} s: is it on a file "
                    "system whose server is away?"
                )
            await asyncio.wait({result}, timeout=remaining_seconds)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name=f"files of {self._what}", daemon=True
            )
            self._thread.start()

    def _work(self) -> None:
        while (piece := self._pieces.get()) is not None:
            self._began = time.monotonic()
            piece()
            self._began = None
