"""What the publisher tells about itself: counts, times and what is wrong now."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from service.foreign_writes import ForeignWrites

BUCKETS_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.06, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Stage(StrEnum):
    """Where the time between an event and its acknowledgement goes."""

    EVENT_TO_WAKE = "event_to_wake"
    WAKE_TO_WRITE = "wake_to_write"
    WRITE = "write"
    TOTAL = "total"


class Histogram:
    """Counts of durations by upper bound, as Prometheus wants them."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_SECONDS) + 1)
        self.sum_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        place = next(
            (index for index, bound in enumerate(BUCKETS_SECONDS) if seconds <= bound),
            len(BUCKETS_SECONDS),
        )
        self.counts[place] += 1
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

    def watch_fails(self, reason: str, now_ms: int) -> None:
        """The watch of the document shows nothing now."""
        if self.watch_trouble is None:
            self.watch_trouble_since_ms = now_ms
        self.watch_trouble = reason

    def watch_works(self) -> None:
        """It shows what is there."""
        self.watch_trouble = self.watch_trouble_since_ms = None

    def wakes(self, event_ms: int, now_ms: int) -> None:
        """A change seen at ``event_ms`` waits to be published."""
        if self.waiting is None or event_ms < self.waiting.event_ms:
            self.waiting = Lag(event_ms, now_ms)

    def waits_again(self, lag: Lag) -> None:
        """The write that carried ``lag`` failed."""
        if self.waiting is None or lag.event_ms < self.waiting.event_ms:
            self.waiting = lag

    def agrees(self, now_ms: int, stamp: int | None, revision: int) -> None:
        """The store shows what is wanted; ``stamp`` is ``None`` for no document."""
        self.acknowledged_at_ms = now_ms
        self.acknowledged_stamp = stamp
        self.acknowledged_revision = revision

    def acknowledged(self, reason: str, lag: Lag | None, begun_ms: int, now_ms: int) -> None:
        """The write begun at ``begun_ms``, which carried the change ``lag``, was acknowledged."""
        self.writes[reason, "acknowledged"] += 1
        self.stages[Stage.WRITE].observe(max(0, now_ms - begun_ms) / 1000)
        if lag is not None:
            for stage, begin, end in (
                (Stage.EVENT_TO_WAKE, lag.event_ms, lag.wake_ms),
                (Stage.WAKE_TO_WRITE, lag.wake_ms, begun_ms),
                (Stage.TOTAL, lag.event_ms, now_ms),
            ):
                self.stages[stage].observe(max(0, end - begin) / 1000)
