"""Others change what is ours: when that is a conflict, when we write in one, and when it is over.

More than 3 foreign changes within a minute are a conflict. During one it is written again after
pauses that double from 1 s to 45 s, for as long as each write is undone. A conflict is over when
no other program has changed anything for a minute. The longest pause is shorter than that minute:
our last write stands for a while before a conflict is over. Source: docs/architecture.md, invariant
5, and ``docs/decisions/013``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

MANY = 4
"""So many foreign changes within a minute are a conflict."""
WINDOW_SECONDS = 60.0
QUIET_SECONDS = 60.0
FIRST_PAUSE_SECONDS = 1.0
LAST_PAUSE_SECONDS = 45.0


@dataclass(frozen=True)
class ForeignWriter:
    """Who changes something of ours, as far as that is known.

    ``manager`` is the name under which the store has its writes. ``differing`` is what the answer
    to our own write has otherwise than the write: then no other program is the writer.
    """

    manager: str | None = None
    differing: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The label of a metric; empty where the writer is not known."""
        return "admission" if self.differing else self.manager or ""

    def changes(self, what: str) -> str:
        """Return a sentence for people: it changes ``what``."""
        if self.differing:
            return (
                f"the answer to our own write of {what} differs from what was written: "
                f"{', '.join(self.differing)}; an admission webhook or policy changes it"
            )
        return f"{'somebody else' if self.manager is None else repr(self.manager)} writes {what}"


UNKNOWN = ForeignWriter()


class ForeignWrites:
    """The foreign changes of one thing. Times are seconds of one steady clock."""

    def __init__(self) -> None:
        self.is_conflict = False
        self._at: deque[float] = deque(maxlen=MANY)
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._paused_from = 0.0
        self._stands = False

    @property
    def stands(self) -> bool:
        """Whether no other program has changed anything since we wrote."""
        return self._stands

    def saw(self, now: float) -> bool:
        """Count one change.

        Returns whether it is the first one after which we wait: a conflict begins with it, or it
        undoes what we wrote in one.
        """
        self._at.append(now)
        if self.is_conflict:
            stood, self._stands = self._stands, False
            if stood:
                self._pause_seconds = min(2 * self._pause_seconds, LAST_PAUSE_SECONDS)
            return stood
        self._stands = False
        if len(self._at) < MANY or now - self._at[0] >= WINDOW_SECONDS:
            return False
        self.is_conflict = True
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._paused_from = now
        self._stands = False
        return True

    def wrote(self, now: float) -> None:
        """We have written, or tried to: a conflict allows the next write after its pause."""
        self._paused_from = now
        self._stands = True

    def pause_seconds(self, now: float) -> float:
        """For how long we may not write yet; 0 without a conflict."""
        if not self.is_conflict:
            return 0.0
        return max(0.0, self._paused_from + self._pause_seconds - now)

    def seconds_until_over(self, now: float) -> float:
        """Return in how many seconds the conflict is over, if no foreign write comes until then."""
        return max(0.0, self._at[-1] + QUIET_SECONDS - now) if self.is_conflict else 0.0

    def ended(self, now: float) -> bool:
        """End the conflict if it is over; whether it was ended."""
        if not self.is_conflict or self.seconds_until_over(now) > 0:
            return False
        self.forget()
        return True

    def forget(self) -> None:
        """The changes so far were none of a stranger's: nothing counts any more."""
        self._at.clear()
        self.is_conflict = False
