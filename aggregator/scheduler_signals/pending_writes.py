"""The objects of one option that wait for a write: the worst first, then the oldest. Pure."""

from __future__ import annotations

import heapq
from typing import NamedTuple


class Turn(NamedTuple):
    """An object that waits, in the order of turns: rank 0 is the worst; steady time."""

    rank: int
    since_ms: int
    target: str


class PendingWrites:
    """Names of objects that wait for a write. Times are steady milliseconds."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}
        # Heaps have old turns, too: to remove them at once would cost a search. A turn counts
        # only while it is the one of its object.
        self._heap: list[Turn] = []
        self._postponed: dict[str, int] = {}
        self._later: list[tuple[int, str]] = []

    def __len__(self) -> int:
        """Return how many objects wait, postponed ones included."""
        return len(self._turns)

    def put(self, target: str, rank: int, since_ms: int) -> None:
        """Let an object wait, or change its turn."""
        turn = Turn(rank, since_ms, target)
        if self._turns.get(target) == turn:
            return
        self._turns[target] = turn
        if target not in self._postponed:
            heapq.heappush(self._heap, turn)

    def withdraw(self, target: str) -> None:
        """Remove an object; nothing is to be written to it."""
        self._turns.pop(target, None)
        self._postponed.pop(target, None)

    def postpone(self, target: str, until_ms: int) -> None:
        """Let an object that waits have no turn before this time."""
        if target in self._turns:
            self._postponed[target] = until_ms
            heapq.heappush(self._later, (until_ms, target))

    def first(self, now_ms: int) -> Turn | None:
        """Return the next turn, which stays; ``None`` where no object may have one now."""
        while self._later and self._later[0][0] <= now_ms:
            until_ms, target = heapq.heappop(self._later)
            if self._postponed.get(target) == until_ms:
                del self._postponed[target]
                heapq.heappush(self._heap, self._turns[target])
        while self._heap:
            turn = self._heap[0]
            if self._turns.get(turn.target) == turn and turn.target not in self._postponed:
                return turn
            heapq.heappop(self._heap)
        return None

    def next_ms(self) -> int | None:
        """Return when the first postponed object may have its turn; ``None`` without such."""
        while self._later and self._postponed.get(self._later[0][1]) != self._later[0][0]:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def oldest_ms(self) -> int | None:
        """Return since when the object waits that waits longest; ``None`` where none does."""
        return min((turn.since_ms for turn in self._turns.values()), default=None)
