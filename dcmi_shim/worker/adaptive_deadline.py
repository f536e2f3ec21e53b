"""How long a driver call may take: the usual time, and more for one that is known to be slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

_MARGIN = 2.0
_DECAY = 0.9


class AdaptiveDeadline:
    """Deadlines in seconds, from the times of earlier answers.

    A call may take twice as long as it took last, at least ``usual`` and at most ``longest``; a
    longer deadline shrinks slowly. A call that never answered has the longest of all deadlines: a
    driver that is slow is so in most calls, and must not cost a process for each of them.
    """

    def __init__(self, usual: float, longest: float) -> None:
        self._usual = usual
        self.longest = max(usual, longest)
        self._by_call: dict[Hashable, float] = {}

    def of(self, call: Hashable) -> float:
        """Return the deadline of ``call`` in seconds."""
        state = self._by_call.get(call)
        return max(self._by_call.values(), default=self._usual) if state is None else state

    def record(self, call: Hashable, seconds: float) -> None:
        """Record that ``call`` answered after ``seconds``."""
        before = self._by_call.get(call, self._usual)
        deadline = max(self._usual, _MARGIN * seconds, _DECAY * before)
        self._by_call[call] = min(deadline, self.longest)
