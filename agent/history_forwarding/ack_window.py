"""How far a node told its journal and how far it was heard. Pure but for what it remembers.

Times are seconds of one steady clock. Tellings go out in order, a few at a time. Each ``Heard``
answers those up to its sequence. When no answer comes in time, whoever listens is asked what he
has, by a telling of nothing and after growing pauses, and told from there on.

A ``Heard`` that is behind what was told and says nothing new asks for what follows it: the
aggregator missed something, or another one with a shorter memory speaks. It is told again from
there, also what the first one has: who has a telling leaves it. So any number of aggregators have
everything, if not before then when something new is told.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

WINDOW = 8
"""So many tellings may wait for their answer."""
_FIRST_SECONDS = 2.0
_LAST_SECONDS = 5.0
_ASKED_SECONDS = 0.4
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Sent:
    """A telling that is not answered yet, of so many rows, the first of them from ``at_ms``."""

    after: int
    upto: int
    rows: int
    at_ms: int


class AckWindow:
    """``sent_upto`` is the end of the last telling, ``None`` until somebody said what he has."""

    def __init__(self, now: float) -> None:
        self.sent_upto: int | None = None
        self.sent: deque[Sent] = deque()
        self._acknowledged = -1
        self._asked: int | None = None
        self._pause = _FIRST_SECONDS
        self._due: float | None = None
        self.forget(now)

    def forget(self, now: float) -> None:
        """The way was interrupted: what is heard now is asked, unless it is said soon."""
        self.sent_upto = None
        self.sent.clear()
        self._asked = None
        self._due = now + _LOOK_SECONDS * random.uniform(0.5, 1)

    def acknowledge(self, sequence: int, now: float) -> int:
        """Everything up to ``sequence`` is kept by whoever says it; how many rows that answers."""
        rows = 0
        if self.sent_upto is None:
            self.sent_upto = sequence
            self._acknowledged = -1
        while self.sent and self.sent[0].upto <= sequence:
            rows += self.sent.popleft().rows
        if sequence > self._acknowledged or not self.sent:
            self._pause = _FIRST_SECONDS
            if self._asked is None:
                self._due = self._later(now) if self.sent else None
        if sequence < self.sent_upto and sequence <= self._acknowledged:
            self._asked = sequence if self._asked is None else min(sequence, self._asked)
            soon = now + _ASKED_SECONDS * random.uniform(0.5, 1)
            self._due = soon if self._due is None else min(soon, self._due)
        self._acknowledged = sequence
        return rows

    def may_send(self) -> bool:
        """Whether the next telling may go out now."""
        return self.sent_upto is not None and self._asked is None and len(self.sent) < WINDOW

    def record_sent(self, sent: Sent, now: float) -> None:
        """A telling goes out."""
        self.sent_upto = sent.upto
        self.sent.append(sent)
        if self._due is None:
            self._due = self._later(now)

    def seconds(self, now: float) -> float | None:
        """How long until ``repeat`` is to be called; ``None`` while nothing is awaited."""
        return None if self._due is None else max(0.0, self._due - now)

    def repeat(self, now: float) -> bool:
        """Nobody answered in time, or somebody asked. Whether he is to be asked what he has."""
        asked, self._asked = self._asked, None
        if asked is None or self.sent_upto is None:
            self.sent_upto = None
            self.sent.clear()
            self._due = self._later(now)
            self._grow()
            return True
        self.sent_upto = min(asked, self.sent[0].after if self.sent else self.sent_upto)
        self.sent.clear()
        self._due = None
        return False

    def _later(self, now: float) -> float:
        return now + self._pause * random.uniform(0.75, 1.25)

    def _grow(self) -> None:
        self._pause = min(2 * self._pause, _LAST_SECONDS)
