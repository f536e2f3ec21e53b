"""Answers that are rendered once for all requests of a second, such as the metrics as text."""

from __future__ import annotations

import asyncio
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import TypeAlias

    from prometheus_client import Metric

    from service.http.counts import Counts

    Encode: TypeAlias = Callable[[Collector], bytes]
    Render: TypeAlias = Callable[[Encode], bytes | Awaitable[bytes]]

T = TypeVar("T")

_FRESH_SECONDS = 1.0


class SharedRendering(Generic[T]):
    """What ``render`` returns, for all requests within a second of its end.

    A later request gets the same one while ``is_current`` returns that nothing has changed. Without
    ``is_current`` it is rendered again. An error is raised to the requests that waited for it.
    """

    def __init__(
        self,
        name: str,
        render: Callable[[], Awaitable[T]],
        is_current: Callable[[T], bool] = lambda _: False,
    ) -> None:
        self._name = name
        self._render = render
        self._is_current = is_current
        self._task: asyncio.Task[T] | None = None
        self._good_until = 0.0

    async def get(self) -> T:
        """Return the rendering; a request that is cancelled ends it for no other one."""
        if self._task is None or (self._task.done() and not self._is_good(self._task)):
            self._task = asyncio.create_task(self._rendered(), name=self._name)
        return await asyncio.shield(self._task)

    def _is_good(self, task: asyncio.Task[T]) -> bool:
        if task.cancelled() or task.exception() is not None:
            return False
        return self._now() < self._good_until or self._is_current(task.result())

    async def _rendered(self) -> T:
        rendering = await self._render()
        self._good_until = self._now() + _FRESH_SECONDS
        return rendering

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


class ExpositionFormat(Enum):
    """A form of metrics, by its content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

    @classmethod
    def of(cls, accept: str) -> ExpositionFormat:
        """Return the form for the header ``Accept`` of a request; the text where it is unclear."""
        # The library answers with the version and the escaping that a client names. These are
        # unlimited, and names of ours need no escaping, so each family has one form and one cache.
        try:
            _, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # the version in the header is not a number
            return cls.TEXT
        is_open = content_type.startswith("application/openmetrics-text")
        return cls.OPEN_METRICS if is_open else cls.TEXT


class _Joined(Collector):
    """The families of several collectors, in one text."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            yield from collector.collect()


class Exposition:
    """What ``render`` makes, with the metrics of ``counts``.

    ``render`` calls the function that it gets with the metrics of one snapshot, and returns what
    that returned.
    """

    def __init__(self, render: Render, counts: Counts) -> None:
        self._render = render
        self._counts = counts
        self._shared = {
            form: SharedRendering("exposition", partial(self._rendered, form))
            for form in ExpositionFormat
        }

    async def get(self, form: ExpositionFormat) -> bytes:
        """Return an exposition of ``form`` that was rendered at most a second ago."""
        return await self._shared[form].get()

    async def _rendered(self, form: ExpositionFormat) -> bytes:
        is_open = form is ExpositionFormat.OPEN_METRICS
        generate = openmetrics.generate_latest if is_open else generate_latest
        # The counts are in the same text: OpenMetrics ends with one mark.
        rendered = self._render(lambda collector: generate(_Joined(collector, self._counts)))
        return rendered if isinstance(rendered, bytes) else await rendered
