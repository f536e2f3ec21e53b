"""The duration rule as the specification writes it down, cycle by cycle and word by word.

Source: ``device-plugin#3.5``. It is the oracle of the tests, with all of its oddities.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Word: TypeAlias = Literal["O", "R", "N"]
Event: TypeAlias = tuple[Word, int]
"""Occurrence, recovery or notice, and its time in milliseconds."""


@dataclass
class UpstreamDuration:
    """One (id, chip); thresholds in seconds. Call ``cycle`` with the events since the last one."""

    fault_timeout: int
    recover_timeout: int
    timed_out: bool = False
    queue: list[Event] = field(default_factory=list)
    fault_duration_ms: int = 0
    recover_duration_ms: int = 0
    alarm_ms: int | None = None
    reason_ms: int | None = None
    """``upgrade_time`` of the reason, while there is one."""

    def cycle(self, now: int, events: Iterable[Event] = ()) -> None:
        """Run one cycle at ``now``."""
        self.queue += events
        self.queue.sort(key=lambda event: event[1])
        self._merge()
        if self.queue and self.queue[0][0] == ("O" if self.timed_out else "R"):
            del self.queue[0]
        while self._handle(now):
            pass
        if self.timed_out:
            self.reason_ms = self.alarm_ms
        elif self.recover_duration_ms > self.recover_timeout * 1000:
            self.reason_ms = None

    def _merge(self) -> None:
        merged: list[Event] = []
        for event in self.queue:
            if not merged or merged[-1][0] != event[0]:
                merged.append(event)
        self.queue = merged

    def _handle(self, now: int) -> bool:
        """Run the algorithm once; return whether to run it again."""
        threshold = 1000 * (self.recover_timeout if self.timed_out else self.fault_timeout)
        queue = self.queue
        if not queue:
            return False
        duration = 0
        for i in range(len(queue) // 2):
            duration = queue[2 * i + 1][1] - queue[2 * i][1]
            if duration > threshold:
                return self._hit(i, duration, queue[2 * i][1] + threshold)
        half = len(queue) // 2
        if len(queue) % 2 == 1:
            duration = now - queue[-1][1]
            if duration > threshold:
                return self._hit(half, duration, queue[-1][1] + threshold)
        self._keep(duration)
        self.queue = queue[2 * half :]
        return False

    def _hit(self, i: int, duration: int, alarm_ms: int) -> bool:
        self._keep(duration)
        self.alarm_ms = alarm_ms
        self.timed_out = not self.timed_out
        if self.timed_out:
            return False
        self.queue = self.queue[2 * i + 1 :]
        return True

    def _keep(self, duration: int) -> None:
        if self.timed_out:
            self.recover_duration_ms = duration
        else:
            self.fault_duration_ms = duration
