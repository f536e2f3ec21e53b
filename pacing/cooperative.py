"""Work that reports how much of it was done, so that other tasks may run in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

Work: TypeAlias = Generator[int, None, T]
"""Yields the amount of work since the last yield, and returns its result."""


def run_to_completion(work: Work[T]) -> T:
    """Do all of the work at once; return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


async def run_in_slices(work: Work[T], size: int) -> T:
    """Do all of the work; other tasks may run after each piece of ``size``. Return its result."""
    done = 0
    while True:
        try:
            done += next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        if done >= size:
            done = 0
            # Without a timer: tasks that are ready run once, and this one goes on.
            await asyncio.sleep(0)


async def all_of(rows: Iterable[T], size: int) -> tuple[T, ...]:
    """Return all ``rows``; their source may change after each ``size`` of them."""
    return await run_in_slices(_each(rows), size)


def _each(rows: Iterable[T]) -> Work[tuple[T, ...]]:
    taken: list[T] = []
    for row in rows:
        taken.append(row)
        yield 1
    return tuple(taken)


class WorkBacklog:
    """Works that are done one after the other, in pieces of ``size``."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._works: deque[Work[None]] = deque()

    def __len__(self) -> int:
        return len(self._works)

    def add(self, work: Work[None]) -> None:
        """Add work behind all other."""
        self._works.append(work)

    def clear(self) -> None:
        """Drop all work that is not done."""
        self._works.clear()

    def do_piece(self) -> None:
        """Do the next piece."""
        done = 0
        while self._works and done < self._size:
            try:
                done += next(self._works[0])
            except StopIteration:
                self._works.popleft()
