"""When somebody else goes on writing what is ours, and when that is over (design, invariant 5)."""

from __future__ import annotations

from collections import deque

_TOLERATED = 3
_WINDOW_SECONDS = 60.0
_QUIET_SECONDS = 600.0

MANY = _TOLERATED + 1
"""So many foreign writes within a minute are a conflict."""
QUIET_MINUTES = round(_QUIET_SECONDS / 60)
"""A conflict is over when nobody else wrote for so long."""


class ForeignWrites:
    """The last writes of somebody else. Times are seconds of one steady clock."""

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=MANY)

    def saw(self, now: float) -> bool:
        """Take in one; whether it goes on and on."""
        self._at.append(now)
        return len(self._at) == MANY and now - self._at[0] < _WINDOW_SECONDS

    def seconds_until_quiet(self, now: float) -> float:
        """For how long nobody else may write yet before a conflict is over; 0 when it is."""
        return max(0.0, self._at[-1] + _QUIET_SECONDS - now)
