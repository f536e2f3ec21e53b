"""The metrics of a daemon as text, rendered once for all requests within a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from prometheus_client import Metric

    from service.http.counts import Counts

_FRESH_SECONDS = 1.0


class Exposition(Collector):
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

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the pages."""
        return self._counts.families()

    async def _rendered(self) -> bytes:
        self._good_until = 0.0
        shown = self._render()
        body = shown if isinstance(shown, bytes) else await shown
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        self._good_until = self._now() + _FRESH_SECONDS
        return body + generate_latest(registry)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
