"""How long faults have lasted, as one process has seen it. Pure; the time is passed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

Key = TypeVar("Key")


class ContinuousFaults(Generic[Key]):
    """Faults by a key of the caller. A fault counts from the first answer that showed it.

    It counts until the newest answer was asked for: an answer may be seconds old when it arrives.

    Between two looks that are more than ``gap_ms`` apart a fault may have ended and begun anew, so
    all of them count from the second one.
    """

    def __init__(self, gap_ms: int) -> None:
        self._gap_ms = gap_ms
        self._updated_at_ms = 0
        self._requested_ms = 0
        self._since_ms: dict[Key, int] = {}

    def update(self, standing: Iterable[Key], requested_ms: int, now_ms: int) -> None:
        """Update to the faults of a new answer. Both times are of the steady clock."""
        before = {} if now_ms - self._updated_at_ms > self._gap_ms else self._since_ms
        self._updated_at_ms, self._requested_ms = now_ms, requested_ms
        self._since_ms = {key: before.get(key, now_ms) for key in standing}

    def stood_ms(self, key: Key) -> int:
        """Return how long a fault has lasted; 0 or less for a new or an absent one."""
        return self._requested_ms - self._since_ms.get(key, self._requested_ms)
