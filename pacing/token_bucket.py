"""A rate limit with a burst."""

from __future__ import annotations


class TokenBucket:
    """``burst`` tokens at once, then ``tokens`` in each ``period_ms``.

    Counts in whole parts of a token, so a token is available after exactly ``wait_ms``.
    """

    __slots__ = ("_burst", "_gain", "_left", "_token", "at_ms")

    def __init__(self, burst: int, tokens: int, period_ms: int = 1000) -> None:
        self._gain = tokens
        """Parts that come back in a millisecond."""
        self._token = period_ms
        """Parts of one token."""
        self._burst = burst * period_ms
        self._left = self._burst
        self.at_ms = 0
        """The monotonic time of the last call, in milliseconds."""

    def wait_ms(self, now_ms: int, tokens: int = 1) -> int:
        """Return after how many milliseconds so many tokens are left; 0: now."""
        # A caller may have read its time before the last call did, which takes no token back.
        passed_ms = max(0, now_ms - self.at_ms)
        self._left = min(self._burst, self._left + passed_ms * self._gain)
        self.at_ms = max(self.at_ms, now_ms)
        # Rounded up, because a part of a token is not enough.
        return max(0, -((self._left - tokens * self._token) // self._gain))

    def take(self) -> None:
        """Take one token; where none is left, one of those to come."""
        self._left -= self._token

    def is_full(self, now_ms: int) -> bool:
        """Return whether all tokens are available."""
        self.wait_ms(now_ms)
        return self._left == self._burst
