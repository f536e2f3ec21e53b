"""How long to wait after a failure before the next attempt."""

from __future__ import annotations

import random

_FIRST_SECONDS = 0.25
_LAST_SECONDS = 5.0


class Backoff:
    """Waits that double from the first to the last, each shorter by up to ``jitter`` of it.

    Random parts spread the clients of a shared server; a resource of this process alone, such as a
    driver, needs none.
    """

    def __init__(
        self,
        first_seconds: float = _FIRST_SECONDS,
        last_seconds: float = _LAST_SECONDS,
        jitter: float = 0.5,
    ) -> None:
        self._jitter = jitter
        self._first_seconds = first_seconds
        self._last_seconds = last_seconds
        self._next = first_seconds

    def reset(self) -> None:
        """Begin again with the first wait, after a success."""
        self._next = self._first_seconds

    def next_seconds(self) -> float:
        """Return the seconds to wait now."""
        ceiling = self._next
        # Doubled before the random part, so that its luck does not add up.
        self._next = min(ceiling * 2, self._last_seconds)
        # Many clients lose the same server at once and must not reconnect at once.
        return random.uniform(ceiling * (1 - self._jitter), ceiling)
