"""What a server counts, and the metrics of a daemon as text, rendered at most once a second."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from prometheus_client.registry import Collector

from service.metric_families import counter, single_counter, single_gauge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from prometheus_client import Metric

_TRACEBACK_SECONDS = 60.0


class ConnectionEnd(Enum):
    """Why the server closed a connection."""

    CROWDED = "crowded"
    """All places were taken, and it had waited longest for a whole request."""
    ADDRESS = "address"
    """Its address had too many unfinished requests."""
    LATE = "late"
    """Its request was not whole in time."""
    UNSENT = "unsent"
    """Its client did not take an answer in time."""
    REFUSED = "refused"
    """All places were taken by whole requests."""
    DESCRIPTORS = "descriptors"
    """Only reserved descriptors were left."""


class RequestResult(Enum):
    """What came of a request."""

    ANSWERED = "answered"
    BAD = "bad"
    """It is not a valid HTTP request."""
    FAILED = "failed"
    """A page could not be made."""


class Counts(Collector):
    """Counts of all listeners of a daemon. ``steady_seconds`` is a clock that is never set."""

    def __init__(self, steady_seconds: Callable[[], float] = time.monotonic) -> None:
        self._steady_seconds = steady_seconds
        self._traceback_at: float | None = None
        self.listening: bool | None = None
        """Whether the address of ``--listen`` is served; ``None`` without one."""
        self.connections = 0
        self.accept_failures = 0
        self.requests: Counter[RequestResult] = Counter()
        self.closed: Counter[ConnectionEnd] = Counter()

    def wants_traceback(self) -> bool:
        """Return whether an error may be logged with its traceback: once a minute."""
        now = self._steady_seconds()
        if self._traceback_at is not None and now < self._traceback_at + _TRACEBACK_SECONDS:
            return False
        self._traceback_at = now
        return True

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        if self.listening is not None:
            yield single_gauge(
                "npu_vigil_http_listening",
                "Whether the address of --listen is served; it is tried again while it is not.",
                self.listening,
            )
        yield single_gauge("npu_vigil_http_connections", "Open HTTP connections.", self.connections)
        yield single_counter(
            "npu_vigil_http_accept_failures",
            "Connections that could not be accepted, or were closed for lack of descriptors.",
            self.accept_failures,
        )
        yield counter(
            "npu_vigil_http_requests",
            "HTTP requests by result.",
            ["result"],
            (([result.value], self.requests[result]) for result in RequestResult),
        )
        yield counter(
            "npu_vigil_http_closed_connections",
            "HTTP connections that the server closed to protect itself, by reason.",
            ["reason"],
            (([reason.value], self.closed[reason]) for reason in ConnectionEnd),
        )


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
