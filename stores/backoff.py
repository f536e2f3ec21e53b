"""How long a watch waits before it tries again."""

from __future__ import annotations

import random

_FIRST_SECONDS = 0.25
_LAST_SECONDS = 5.0


class Backoff:
    """Waits that double from 0.25 s to 5 s, each between half and all of it by chance."""

    def __init__(self) -> None:
        self._next = _FIRST_SECONDS

    def reset(self) -> None:
        """Begin again: it worked."""
        self._next = _FIRST_SECONDS

    def next_seconds(self) -> float:
        """Seconds to wait now."""
        ceiling = self._next
        self._next = min(ceiling * 2, _LAST_SECONDS)
        # Many watchers lose the same server at once and must not come back at once.
        return random.uniform(ceiling / 2, ceiling)
