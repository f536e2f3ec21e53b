"""Long work in pieces, between which others have their turn.

A message may be about 50,000 nodes and chips, a store may have as many documents.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pacing.cooperative import Work

T = TypeVar("T")

PIECE = 500
"""Influences, faults or documents: a few milliseconds."""


async def in_pieces(work: Work[T]) -> T:
    """All of it, while others have their turn."""
    done = 0
    while True:
        try:
            done += next(work)
        except StopIteration as end:
            found: T = end.value
            return found
        if done >= PIECE:
            done = 0
            await asyncio.sleep(0)


class WorkBacklog:
    """Works one after the other."""

    def __init__(self) -> None:
        self._works: deque[Work[None]] = deque()

    def __len__(self) -> int:
        return len(self._works)

    def add(self, work: Work[None]) -> None:
        """This comes after all others."""
        self._works.append(work)

    def clear(self) -> None:
        """Leave everything undone."""
        self._works.clear()

    def do_piece(self) -> None:
        """Do the next piece."""
        done = 0
        while self._works and done < PIECE:
            try:
                done += next(self._works[0])
            except StopIteration:
                self._works.popleft()
