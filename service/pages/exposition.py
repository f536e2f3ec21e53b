"""The metrics as text, rendered once for all requests of a second."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from service.pages.shared_rendering import SharedRendering

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import TypeAlias

    from prometheus_client import Metric

    from service.http.counts import Counts

    Encode: TypeAlias = Callable[[Collector], bytes]
    Render: TypeAlias = Callable[[Encode], bytes | Awaitable[bytes]]


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
