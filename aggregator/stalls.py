"""Which loop is stuck: each says when it is busy, and being busy for too long is a stall."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator.moment import Clock

STALLED_MS = 60_000


class Stalls:
    """The work that is being done now. Waiting for an event is not work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[str, int] = {}

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """``what`` is being done inside."""
        self._since_ms[what] = self._clock().steady_ms
        try:
            yield
        finally:
            del self._since_ms[what]

    def stalled(self) -> tuple[str, ...]:
        """What has been going on for more than a minute."""
        now_ms = self._clock().steady_ms
        return tuple(
            f"{what} for {(now_ms - since) // 1000} s"
            for what, since in sorted(self._since_ms.items())
            if now_ms - since > STALLED_MS
        )
