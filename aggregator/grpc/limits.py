"""How often something may be done (``docs/spec/clusterd.md#5.1`` and 5.4)."""

from __future__ import annotations


class CallBucket:
    """``burst`` at once, then ``per_second``; up to ``waiters`` may be told to wait for their turn.

    Each of those takes its token in advance, so that they go in the order in which they came.
    """

    def __init__(self, per_second: float, burst: int, waiters: int = 0) -> None:
        self._per_ms = per_second / 1000
        self._burst = float(burst)
        self._waiters = waiters
        self._tokens = float(burst)
        self._at_ms: int | None = None

    def take(self, steady_ms: int) -> float | None:
        """Seconds to wait before going on (0: none); ``None``: refused."""
        passed_ms = 0 if self._at_ms is None else max(0, steady_ms - self._at_ms)
        self._tokens = min(self._burst, self._tokens + passed_ms * self._per_ms)
        self._at_ms = steady_ms
        if self._tokens - 1 < -self._waiters:
            return None
        self._tokens -= 1
        return max(0.0, -self._tokens) / self._per_ms / 1000
