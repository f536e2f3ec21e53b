"""Lets the tasks that write documents wait for their turn at one store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aggregator.publish.rate_limited_queue import RateLimitedQueue, WriteKind

if TYPE_CHECKING:
    from service.clock import Clock


class WriteQueue:
    """A ``RateLimitedQueue`` whose documents are awaited, each by one task."""

    def __init__(self, writes_per_second: int, clock: Clock) -> None:
        self._clock = clock
        self._pace = RateLimitedQueue(writes_per_second)
        self._turns: dict[str, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def write(self, name: str, what: WriteKind = WriteKind.CHANGE) -> None:
        """Wait until a document may be written."""
        try:
            await self._ask(name, what)
        finally:
            self._withdraw(name)

    async def touch(self, name: str, changed: asyncio.Event) -> bool:
        """Wait until a document may be touched, or has ``changed``; return whether it may be
        touched.
        """
        turn = self._ask(name, WriteKind.TOUCH)
        if turn.done():
            return True
        change = asyncio.ensure_future(changed.wait())
        try:
            await asyncio.wait((turn, change), return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
            self._withdraw(name)
        return turn.done() and not turn.cancelled()

    def _ask(self, name: str, what: WriteKind) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        now_ms = self._clock().steady_ms
        turn = self._turns[name] = loop.create_future()
        self._pace.ask(name, now_ms, what)
        self._grant()
        return turn

    def _withdraw(self, name: str) -> None:
        turn = self._turns.pop(name, None)
        if turn is not None:
            turn.cancel()
            self._pace.withdraw(name)

    def _grant(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = self._clock().steady_ms
        for name in self._pace.grant(now_ms):
            self._turns.pop(name).set_result(None)
        at_ms = self._pace.next_ms()
        if at_ms is not None:
            seconds = max(1, at_ms - now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self._grant)
