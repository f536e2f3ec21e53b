"""Which ``UpdateTime`` the next write of a document may carry, and when.

Readers drop a document whose ``UpdateTime`` (whole seconds) is not newer than the last one. So
every write needs a newer one, also within the same second, after a restart, and when the host's
clock was set back. Only few are available within a second, so a long burst may not use them all at
its beginning: its end would wait for the next second.
"""

from __future__ import annotations

from contract.documents.device_info import LEAD_SECONDS

# Readers decode 64 bits with a sign: behind a stamp near their end, no greater one is left.
_MAX_STAMP = 2**62
_PAUSES_SECONDS = (0.0, 0.0, 0.008, 0.02, 0.06, 0.2)
"""How long after the write before it each write of a row may be sent; the last value for all more.

The first carries the first event of a burst, the second what came while it was on its way.
"""
_APART_SECONDS = 0.05
"""A pause of this length after a write begins a new row."""


class Stamps:
    """The stamps of one document. All times are passed in: wall clock and monotonic seconds."""

    def __init__(self) -> None:
        self._previous: int | None = None
        self._anchor: tuple[int, float] | None = None
        self._in_row = 0
        self._row_at = 0.0
        self._is_pausing = False

    def record_stored_stamp(self, stamp: int | None) -> None:
        """Take over a stamp that the store shows or acknowledged; ``None`` is an unreadable one."""
        if stamp is None or not 0 < stamp <= _MAX_STAMP:
            return
        if self._previous is None or stamp > self._previous:
            self._previous = stamp

    def record_write(self, monotonic_seconds: float) -> None:
        """Record that a write with the last stamp of ``next`` was acknowledged."""
        self._in_row += 1
        self._row_at = monotonic_seconds
        self._is_pausing = False

    def next(self, wall_ms: int, monotonic_seconds: float) -> tuple[int, float]:
        """Return the next stamp, and for how many seconds it may not be used yet (0: now)."""
        clock, fraction = self._clock(wall_ms, monotonic_seconds)
        pause = self._pause(monotonic_seconds)
        if self._previous is None:
            return clock, pause
        # A stamp further ahead than we ever write means that the clock was set back, or that
        # another host's was wrong. Waiting for the clock to get there could take for ever.
        if self._previous > clock + LEAD_SECONDS:
            self._anchor = (self._previous, monotonic_seconds)
            clock, fraction = self._previous, 0.0
        stamp = max(clock, self._previous + 1)
        early = stamp - clock - LEAD_SECONDS
        return stamp, pause if early <= 0 else max(pause, early - fraction)

    def _pause(self, monotonic_seconds: float) -> float:
        """Return for how many seconds the next write has to wait for those before it."""
        passed = monotonic_seconds - self._row_at
        # A pause that was imposed here is not a sign that the burst is over.
        if passed > _APART_SECONDS and not self._is_pausing:
            self._in_row = 0
        pause = _PAUSES_SECONDS[min(self._in_row, len(_PAUSES_SECONDS) - 1)] - passed
        self._is_pausing = pause > 0
        return max(0.0, pause)

    def _clock(self, wall_ms: int, monotonic_seconds: float) -> tuple[int, float]:
        """Return the time in whole seconds, and the elapsed fraction of the next one."""
        wall = wall_ms // 1000, wall_ms % 1000 / 1000
        if self._anchor is None:
            return wall
        stamp, since = self._anchor
        whole, fraction = divmod(monotonic_seconds - since, 1)
        # The wall clock counts again once it has passed the time that goes on from the stamp.
        return max(wall, (stamp + int(whole), fraction))
