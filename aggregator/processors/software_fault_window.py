"""Which new faults of a job count: the same code on two chips at once is its software's fault.

Source: ``clusterd#3.9``. Upstream compares with everything that is queued, here it is with
what came within 30 s (defect B31).
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

import msgspec

from aggregator.processors.state_types import earliest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.processors.state_types import Occurrence

WINDOW_MS = 30_000
MOST = 50_000
"""Faults that wait at once; more of them are not counted."""


def judge(
    queue: list[Occurrence], now_ms: int
) -> tuple[list[Occurrence], list[Occurrence], list[Occurrence]]:
    """Return what of a job's ``queue`` (sorted) counts, what does not, and what must wait."""
    counted: list[Occurrence] = []
    dropped: list[Occurrence] = []
    while queue and queue[0].at_ms + WINDOW_MS <= now_ms:
        first = queue[0]
        same = [
            one for one in queue if one.code == first.code and one.at_ms <= first.at_ms + WINDOW_MS
        ]
        alone = all((one.node, one.chip) == (first.node, first.chip) for one in same)
        (counted if alone else dropped).extend(same)
        gone = set(same)
        queue = [one for one in queue if one not in gone]
    return counted, dropped, queue


class FaultWindows:
    """The new faults of all jobs that wait for their 30 s."""

    def __init__(self) -> None:
        self.lost_total = 0
        """Faults that were not counted because too many waited."""
        self._jobs: dict[str, list[Occurrence]] = {}
        self._size = 0
        self._latest_ms = 0

    @property
    def size(self) -> int:
        """How many wait."""
        return self._size

    @property
    def waiting(self) -> Iterable[Occurrence]:
        """Everything that waits."""
        return (one for queue in self._jobs.values() for one in queue)

    def add(self, occurrences: Iterable[Occurrence]) -> None:
        """Queue further occurrences."""
        for one in occurrences:
            if self._size >= MOST:
                self.lost_total += 1
                continue
            # A fault that changes its level counts again, at the time at which it came.
            insort(self._jobs.setdefault(one.job, []), one)
            self._size += 1
            self._latest_ms = max(self._latest_ms, one.at_ms)

    def set_back(self, now_ms: int) -> frozenset[str]:
        """Move times that are later than now to now, because the clock was set back; return the
        nodes of what changes.
        """
        if self._latest_ms <= now_ms:
            return frozenset()
        nodes: set[str] = set()
        for job, queue in self._jobs.items():
            nodes.update(one.node for one in queue if one.at_ms > now_ms)
            self._jobs[job] = sorted(
                msgspec.structs.replace(one, at_ms=min(one.at_ms, now_ms)) for one in queue
            )
        self._latest_ms = now_ms
        return frozenset(nodes)

    def step(self, now_ms: int) -> tuple[list[Occurrence], frozenset[str]]:
        """Judge what is due (wall time); return what counts, and the nodes that wait for less."""
        found: list[Occurrence] = []
        nodes: set[str] = set()
        for job, queue in tuple(self._jobs.items()):
            counted, dropped, left = judge(queue, now_ms)
            found += counted
            nodes.update(one.node for one in (*counted, *dropped))
            self._size -= len(counted) + len(dropped)
            if left:
                self._jobs[job] = left
            else:
                del self._jobs[job]
        return found, frozenset(nodes)

    def clear(self) -> None:
        """Forget everything."""
        self._jobs.clear()
        self._size = 0

    def next_due_ms(self) -> int | None:
        """Return the wall time at which ``step`` has something to do."""
        first = earliest(*(queue[0].at_ms for queue in self._jobs.values()))
        return None if first is None else first + WINDOW_MS
