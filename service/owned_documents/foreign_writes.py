"""Foreign writes of what is ours: when they are a conflict, when we write in one, when it ends.

More than 3 foreign changes within a minute are a conflict. During one it is written again after
pauses that double from 1 s to 45 s, for as long as each write is undone. A conflict is over when
no other program has changed anything for a minute. The longest pause is shorter than that minute:
our last write is intact for a while before a conflict is over. Source: docs/architecture.md,
invariant 5, and ``docs/decisions/013``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from contract.record import Record
from contract.sentences import joined, sentence
from pacing.backoff import Backoff

if TYPE_CHECKING:
    import logging

MANY = 4
"""So many foreign changes within a minute are a conflict."""
WINDOW_SECONDS = 60.0
QUIET_SECONDS = 60.0
FIRST_PAUSE_SECONDS = 1.0
LAST_PAUSE_SECONDS = 45.0
_QUIET = "no other program writes it any more"


def pauses() -> Backoff:
    """Make the pauses after which we write what other programs undo each time."""
    return Backoff(FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS, jitter=0.0)


class ForeignWriter(Record, frozen=True):
    """The program that changes something of ours, as far as that is known.

    ``manager`` is the name under which the store has its writes. ``differing`` is what the answer
    to our own write has otherwise than the write: then no other program is the writer.
    """

    manager: str | None = None
    differing: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The label of a metric; empty where the writer is not known."""
        return "admission" if self.differing else self.manager or ""

    def changes(self, document: str) -> str:
        """Return a sentence for people: it changes ``document``."""
        if self.differing:
            return sentence(
                "the answer to our own write of {document} differs from what was written: "
                "{fields}; an admission webhook or policy changes it",
                document=document,
                fields=joined("{before}, {part}", self.differing),
            )
        if self.manager is None:
            return sentence("another program writes {document}", document=document)
        return sentence(
            "{program} writes {document}", program=repr(self.manager), document=document
        )


UNKNOWN = ForeignWriter()


class ForeignWrites:
    """The foreign changes of one thing. Times are seconds of one steady clock."""

    def __init__(self) -> None:
        self.is_conflict = False
        self.total = 0
        """The changes that were counted so far."""
        self.writer = UNKNOWN
        """Who makes them during a conflict. Whoever writes the thing sets it."""
        self._is_reported = False
        self._over = _QUIET
        """Why the last conflict ended."""
        self._at: deque[float] = deque(maxlen=MANY)
        self._pauses = pauses()
        self._pause_seconds = 0.0
        self._paused_from = 0.0
        self.is_write_intact = False
        """Whether no other program has changed anything since we wrote."""

    def record_foreign_write(self, now: float) -> bool:
        """Count one change by another program.

        Returns whether it is the first one after which we wait: a conflict begins with it, or it
        undoes what we wrote in one.
        """
        self.total += 1
        self._at.append(now)
        if self.is_conflict:
            was_intact, self.is_write_intact = self.is_write_intact, False
            if was_intact:
                self._pause_seconds = self._pauses.next_seconds()
            return was_intact
        self.is_write_intact = False
        if len(self._at) < MANY or now - self._at[0] >= WINDOW_SECONDS:
            return False
        self.is_conflict = True
        self._pauses.reset()
        self._pause_seconds = self._pauses.next_seconds()
        self._paused_from = now
        return True

    def record_write(self, now: float) -> None:
        """Record a write or an attempt: a conflict allows the next write after its pause."""
        self._paused_from = now
        self.is_write_intact = True

    def pause_seconds(self, now: float) -> float:
        """Return for how long we may not write yet; 0 without a conflict."""
        if not self.is_conflict:
            return 0.0
        return max(0.0, self._paused_from + self._pause_seconds - now)

    def seconds_until_over(self, now: float) -> float:
        """Return in how many seconds the conflict is over, if no foreign write comes until then."""
        return max(0.0, self._at[-1] + QUIET_SECONDS - now) if self.is_conflict else 0.0

    def end_if_over(self, now: float) -> bool:
        """End the conflict if it is over; return whether it was ended."""
        if not self.is_conflict or self.seconds_until_over(now) > 0:
            return False
        self.forget()
        return True

    def forget(self, reason: str = _QUIET) -> None:
        """Forget all changes so far; a conflict is over because of ``reason``."""
        self._at.clear()
        self.is_conflict = False
        self.writer = UNKNOWN
        self._over = reason

    def report(self, log: logging.Logger, document: str, place: str = "", remedy: str = "") -> None:
        """Log once that a conflict about ``document`` has begun, and once that it is over.

        To be called whenever ``is_conflict`` may have changed. ``place`` follows ``document`` in
        the line, and ``remedy`` the advice.
        """
        if self.is_conflict == self._is_reported:
            return
        self._is_reported = self.is_conflict
        if not self.is_conflict:
            log.warning("%s%s: the conflict is over: %s", document, place, self._over)
            return
        log.error(
            "conflict: %s%s, %d times within a minute. It is written once after each pause of 1 to "
            "%d s until no other program writes it. Stop the other writer%s",
            self.writer.changes(document),
            place,
            MANY,
            LAST_PAUSE_SECONDS,
            remedy,
        )
