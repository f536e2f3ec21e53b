"""Since when faults stand, as far as one process has seen it. Pure; the time is passed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

Key = TypeVar("Key")


class ContinuousFaults(Generic[Key]):
    """Faults by a key of the caller's. What stands counts from the first look that showed it.

    Between two looks that are more than ``gap_ms`` apart a fault may have ended and begun anew, so
    all of them count from the second one.
    """

    def __init__(self, gap_ms: int) -> None:
        self._gap_ms = gap_ms
        self._looked_at_ms = 0
        self._since_ms: dict[Key, int] = {}

    def look(self, standing: Iterable[Key], now_ms: int) -> None:
        """Take in which faults stand now. ``now_ms`` is the steady clock."""
        before = {} if now_ms - self._looked_at_ms > self._gap_ms else self._since_ms
        self._looked_at_ms = now_ms
        self._since_ms = {key: before.get(key, now_ms) for key in standing}

    def stood_ms(self, key: Key) -> int:
        """Return for how long a fault had stood at the last look; 0 for one that is not there."""
        return self._looked_at_ms - self._since_ms.get(key, self._looked_at_ms)
