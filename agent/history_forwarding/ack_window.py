"""How far a journal was sent and acknowledged. Pure, but for the state of the window.

Times are seconds of one monotonic clock. Batches are sent in order, at most ``WINDOW`` of them
unacknowledged. Each ``HistoryAck`` acknowledges the batches up to its sequence. When none comes in
time, an empty batch asks the aggregator for its sequence, after growing pauses, and sending
continues behind that sequence.

A ``HistoryAck`` that is behind what was sent and repeats an earlier sequence asks for what follows
it: the aggregator missed a batch, or another aggregator with a shorter history answers. Sending
begins again from there. An aggregator that has a batch already ignores it. So any number of
aggregators have all changes, at the latest after the next new change.
"""

from __future__ import annotations

import random
from collections import deque

from contract.record import Record

WINDOW = 8
"""How many batches may wait for their acknowledgement."""
_FIRST_SECONDS = 2.0
_LAST_SECONDS = 5.0
_ASKED_SECONDS = 0.4
_POLL_SECONDS = 1.0


class Sent(Record, frozen=True):
    """A batch without an acknowledgement: its number of rows, and the time of the first
    (``at_ms``).
    """

    after: int
    upto: int
    rows: int
    at_ms: int


class AckWindow:
    """Decides which rows to send next, and when to send again.

    ``sent_upto`` is the last sequence sent, ``None`` until an acknowledgement has come.
    """

    def __init__(self, now: float) -> None:
        self.sent_upto: int | None = None
        self.sent: deque[Sent] = deque()
        self._acknowledged = -1
        self._asked: int | None = None
        self._pause = _FIRST_SECONDS
        self._due: float | None = None
        self.forget(now)

    def forget(self, now: float) -> None:
        """Forget the sent batches: the connection was interrupted.

        Unless an acknowledgement comes soon, ``repeat`` asks for one.
        """
        self.sent_upto = None
        self.sent.clear()
        self._asked = None
        # Spread, because all agents lose the same broker in the same instant.
        self._due = now + _POLL_SECONDS * random.uniform(0.5, 1)

    def acknowledge(self, sequence: int, now: float) -> int:
        """Apply an acknowledgement of all rows up to ``sequence``.

        Returns how many rows it is about.
        """
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
            # Several aggregators may lack batches: one repetition from the earliest serves all.
            self._asked = sequence if self._asked is None else min(sequence, self._asked)
            soon = now + _ASKED_SECONDS * random.uniform(0.5, 1)
            self._due = soon if self._due is None else min(soon, self._due)
        self._acknowledged = sequence
        return rows

    def may_send(self) -> bool:
        """Return whether the next batch may be sent now."""
        return self.sent_upto is not None and self._asked is None and len(self.sent) < WINDOW

    def record_sent(self, sent: Sent, now: float) -> None:
        """Record that a batch is sent."""
        self.sent_upto = sent.upto
        self.sent.append(sent)
        if self._due is None:
            self._due = self._later(now)

    def seconds(self, now: float) -> float | None:
        """Return the seconds until ``repeat`` must be called; ``None`` while nothing is awaited."""
        return None if self._due is None else max(0.0, self._due - now)

    def repeat(self, now: float) -> bool:
        """Begin again, because no acknowledgement came in time or one asked for it.

        Returns whether to ask the aggregator for its sequence by an empty batch.
        """
        requested, self._asked = self._asked, None
        if requested is None or self.sent_upto is None:
            self.sent_upto = None
            self.sent.clear()
            self._due = self._later(now)
            self._pause = min(2 * self._pause, _LAST_SECONDS)
            return True
        self.sent_upto = min(requested, self.sent[0].after if self.sent else self.sent_upto)
        self.sent.clear()
        self._due = None
        return False

    def _later(self, now: float) -> float:
        return now + self._pause * random.uniform(0.75, 1.25)
