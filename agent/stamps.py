"""Which ``UpdateTime`` the next write of a document may carry.

Readers drop a document whose ``UpdateTime`` (whole seconds) is not newer than the last one, so
every write needs a newer one, also within the same second, after a restart, and when the host's
clock was set back.
"""

from __future__ import annotations

AHEAD_SECONDS = 5
_LARGEST = 2**62


class Stamps:
    """The stamps of one document. All times are passed in: wall clock and monotonic seconds."""

    def __init__(self) -> None:
        self._previous: int | None = None
        self._anchor: tuple[int, float] | None = None

    @property
    def previous(self) -> int | None:
        """The newest stamp that a reader may have seen."""
        return self._previous

    def saw(self, stamp: int | None) -> None:
        """The store shows ``stamp``, or ours was acknowledged; ``None`` is an unreadable one."""
        if stamp is None or not 0 < stamp <= _LARGEST:
            return
        if self._previous is None or stamp > self._previous:
            self._previous = stamp

    def next(self, wall_seconds: int, monotonic_seconds: float) -> tuple[int, float]:
        """The next stamp, and for how many seconds it may not be used yet (0: now)."""
        clock = self._clock(wall_seconds, monotonic_seconds)
        if self._previous is None:
            return clock, 0.0
        # A stamp further ahead than we ever write means that the clock was set back, or that
        # somebody else's was wrong. Waiting for the clock to get there could take for ever.
        if self._previous > clock + AHEAD_SECONDS:
            self._anchor = (self._previous, monotonic_seconds)
            clock = self._previous
        stamp = max(clock, self._previous + 1)
        return stamp, float(max(0, stamp - clock - AHEAD_SECONDS))

    def _clock(self, wall_seconds: int, monotonic_seconds: float) -> int:
        if self._anchor is None:
            return wall_seconds
        stamp, since = self._anchor
        return max(wall_seconds, stamp + int(monotonic_seconds - since))
