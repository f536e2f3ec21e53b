"""The record of one document's publishing: counts, times and the present trouble."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.owned_documents.foreign_writes import ForeignWrites

BUCKETS_SECONDS = (0.03, 0.1, 0.5, 1.0, 5.0, 60.0)
ACKNOWLEDGED, CONFLICT, FAILED, INVALID = "acknowledged", "conflict", "failed", "invalid"
WRITE_RESULTS = (ACKNOWLEDGED, CONFLICT, FAILED, INVALID)
"""Results of a write. ``INVALID``: the store refuses it, or readers would refuse the document."""


class Histogram:
    """Counts of durations by upper bound, as Prometheus has them."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_SECONDS) + 1)
        self.sum_seconds = 0.0

    def count_duration(self, seconds: float) -> None:
        """Count one duration."""
        # To the left: the bounds of Prometheus are inclusive (``le``).
        self.counts[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        self.sum_seconds += seconds


class Publication:
    """The record of one document's publishing; written by the publisher, read by metrics."""

    def __init__(self, foreign: ForeignWrites) -> None:
        self.writes: Counter[str] = Counter()
        """Attempts by result."""
        self.durations = Histogram()
        """From a change to its acknowledgement."""
        self.foreign = foreign
        """The changes of the document by other programs."""
        self.acknowledged_at_ms: int | None = None
        self.acknowledged_stamp: int | None = None
        self.acknowledged_revision: int | None = None
        self.trouble: str | None = None
        self.trouble_since_ms: int | None = None
        self.conflict_since_ms: int | None = None
        self.watch_trouble: str | None = None
        self.watch_trouble_since_ms: int | None = None
        self.waiting_since_ms: int | None = None
        """When the oldest change was seen that is not acknowledged (epoch milliseconds)."""

    def begin_watch_trouble(self, reason: str, now_ms: int) -> None:
        """Record that the watch of the document fails since ``now_ms`` or earlier."""
        if self.watch_trouble is None:
            self.watch_trouble_since_ms = now_ms
        self.watch_trouble = reason

    def end_watch_trouble(self) -> None:
        """Record that the watch shows the document again."""
        self.watch_trouble = self.watch_trouble_since_ms = None

    def record_event(self, event_ms: int) -> None:
        """Record that a change seen at ``event_ms`` waits to be published, or waits again."""
        if self.waiting_since_ms is None or event_ms < self.waiting_since_ms:
            self.waiting_since_ms = event_ms

    def record_agreement(self, now_ms: int, stamp: int | None, revision: int) -> None:
        """Record that the store has the desired document; ``stamp`` is ``None`` for no document."""
        self.acknowledged_at_ms = now_ms
        self.acknowledged_stamp = stamp
        self.acknowledged_revision = revision

    def record_write(self, event_ms: int | None, now_ms: int) -> None:
        """Record that a write was acknowledged, which carried the change seen at ``event_ms``."""
        self.writes[ACKNOWLEDGED] += 1
        if event_ms is not None:
            # Both are wall clocks, which may have been set back in between.
            self.durations.count_duration(max(0, now_ms - event_ms) / 1000)
