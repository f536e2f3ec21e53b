"""The metrics of a daemon as text, rendered once for all requests within a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import generate_latest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from service.http.counts import Counts

_FRESH_SECONDS = 1.0


class Exposition:
    """What ``render`` makes, followed by the metrics of ``counts``."""

    def __init__(self, render: Callable[[], bytes | Awaitable[bytes]], counts: Counts) -> None:
        self._render = render
        self._counts = counts
        self._task: asyncio.Task[bytes] | None = None
        self._good_until = 0.0

    async def get(self) -> bytes:
        """Return an exposition that was rendered at most a second ago."""
        if self._task is None or (self._task.done() and self._now() >= self._good_until):
            self._task = asyncio.create_task(self._rendered(), name="exposition")
        return await asyncio.shield(self._task)

    async def _rendered(self) -> bytes:
        self._good_until = 0.0
        shown = self._render()
        body = shown if isinstance(shown, bytes) else await shown
        self._good_until = self._now() + _FRESH_SECONDS
        return body + generate_latest(self._counts)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
