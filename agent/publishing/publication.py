"""The record of one document's publishing: counts, times and the present trouble."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from service.owned_documents.foreign_writes import ForeignWrites

BUCKETS_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.06, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Stage(StrEnum):
    """The stages of the time between an event and its acknowledgement."""

    EVENT_TO_WAKE = "event_to_wake"
    WAKE_TO_WRITE = "wake_to_write"
    WRITE = "write"
    TOTAL = "total"


class Histogram:
    """Counts of durations by upper bound, as Prometheus has them."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_SECONDS) + 1)
        self.sum_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        self.sum_seconds += seconds


class Lag(msgspec.Struct):
    """One change on its way out. Times are epoch milliseconds."""

    event_ms: int
    wake_ms: int


class Publication:
    """The record of one document's publishing; written by the publisher, read by metrics."""

    def __init__(self, foreign: ForeignWrites) -> None:
        self.writes: Counter[tuple[str, str]] = Counter()
        """Attempts by reason (first, change, repair, refresh) and result."""
        self.stages = {stage: Histogram() for stage in Stage}
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
        self.waiting: Lag | None = None
        """The oldest change that is not acknowledged."""

    def begin_watch_trouble(self, reason: str, now_ms: int) -> None:
        """Record that the watch of the document fails since ``now_ms`` or earlier."""
        if self.watch_trouble is None:
            self.watch_trouble_since_ms = now_ms
        self.watch_trouble = reason

    def end_watch_trouble(self) -> None:
        """Record that the watch shows the document again."""
        self.watch_trouble = self.watch_trouble_since_ms = None

    def record_event(self, event_ms: int, now_ms: int) -> None:
        """Record that a change seen at ``event_ms`` waits to be published."""
        self.requeue(Lag(event_ms, now_ms))

    def requeue(self, lag: Lag) -> None:
        """Record that the write that carried ``lag`` failed."""
        if self.waiting is None or lag.event_ms < self.waiting.event_ms:
            self.waiting = lag

    def record_agreement(self, now_ms: int, stamp: int | None, revision: int) -> None:
        """Record that the store has the desired document; ``stamp`` is ``None`` for no document."""
        self.acknowledged_at_ms = now_ms
        self.acknowledged_stamp = stamp
        self.acknowledged_revision = revision

    def record_write(self, reason: str, lag: Lag | None, begun_ms: int, now_ms: int) -> None:
        """Record that the write begun at ``begun_ms``, which carried the change ``lag``, was
        acknowledged.
        """
        self.writes[reason, "acknowledged"] += 1
        self.stages[Stage.WRITE].observe(max(0, now_ms - begun_ms) / 1000)
        if lag is not None:
            for stage, begin, end in (
                (Stage.EVENT_TO_WAKE, lag.event_ms, lag.wake_ms),
                (Stage.WAKE_TO_WRITE, lag.wake_ms, begun_ms),
                (Stage.TOTAL, lag.event_ms, now_ms),
            ):
                self.stages[stage].observe(max(0, end - begin) / 1000)
