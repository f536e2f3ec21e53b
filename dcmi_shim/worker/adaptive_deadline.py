"""How long a driver call may take: the usual time, and more for one that is known to be slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

_MARGIN = 2.0
_FORGET = 0.9


class AdaptiveDeadline:
    """Deadlines in seconds, learned from answers.

    A call may take twice as long as it took last, at least ``usual`` and at most ``longest``; what
    was learned is forgotten slowly. A call that never answered is given what the slowest one is:
    a driver that is slow is so in most calls, and must not cost a process for each of them.
    """

    def __init__(self, usual: float, longest: float) -> None:
        self._usual = usual
        self.longest = max(usual, longest)
        self._learned: dict[Hashable, float] = {}

    def of(self, call: Hashable) -> float:
        """The deadline of ``call``."""
        learned = self._learned.get(call)
        return max(self._learned.values(), default=self._usual) if learned is None else learned

    def answered(self, call: Hashable, seconds: float) -> None:
        """``call`` answered after ``seconds``."""
        before = self._learned.get(call, self._usual)
        wanted = max(self._usual, _MARGIN * seconds, _FORGET * before)
        self._learned[call] = min(wanted, self.longest)
