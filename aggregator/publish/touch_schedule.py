"""Schedules touches of documents, so that their readers see an event (M8).

A reader takes a document without an event for 60 s for a broken watch. What is written need not be
touched. After a start it is not known when a document was written last: the first touches are
spread over a third of the period, so that neither all come at once nor one comes too late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from service.clock import Instant

_FIRST = 1 / 3
_AGAIN_MS = 5000


class TouchSchedule:
    """When one document is touched next."""

    def __init__(self, period_seconds: float, name: str) -> None:
        self._period_ms = int(period_seconds * 1000)
        self._phase = crc32(name.encode()) / 2**32
        self._next_ms: int | None = None

    def written(self, now: Instant) -> None:
        """Observe that the document was written or touched."""
        self._next_ms = now.steady_ms + self._period_ms

    def failed(self, now: Instant) -> None:
        """Schedule the touch again after it failed, in time for readers."""
        self._next_ms = now.steady_ms + min(self._period_ms, _AGAIN_MS)

    def due_ms(self, now: Instant) -> int:
        """Return the milliseconds until it must be touched; 0 or less when that is now."""
        if self._next_ms is None:
            self._next_ms = now.steady_ms + int(self._period_ms * _FIRST * self._phase)
        return self._next_ms - now.steady_ms
