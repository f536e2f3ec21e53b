"""How often driver processes may be started. Pure: times are passed in, in seconds."""

from __future__ import annotations

_BURST = 20
_REFILL_SECONDS = 3.0


class RestartBudget:
    """A token bucket: ``burst`` starts at once, then one per ``refill_seconds``."""

    def __init__(self, burst: int = _BURST, refill_seconds: float = _REFILL_SECONDS) -> None:
        self._burst = burst
        self._refill_seconds = refill_seconds
        self._tokens = float(burst)
        self._at = 0.0

    def take(self, now: float) -> float:
        """Take a token if there is one. Answers how long to wait before asking again, else 0."""
        gained = max(0.0, now - self._at) / self._refill_seconds
        self._tokens = min(float(self._burst), self._tokens + gained)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) * self._refill_seconds


class RestartBackoff:
    """Doubling pauses between failures, from ``first`` to ``last`` seconds."""

    def __init__(self, first: float, last: float) -> None:
        self._first = first
        self._last = last
        self._next = first

    def failed(self) -> float:
        """How long to wait after this failure."""
        pause, self._next = self._next, min(2 * self._next, self._last)
        return pause

    def succeeded(self) -> None:
        """The next failure waits for the first pause again."""
        self._next = self._first
