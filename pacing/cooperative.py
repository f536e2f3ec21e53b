"""Work that says how much of it was done, so that others may have their turn in between."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Work: TypeAlias = Generator[int, None, T]
"""Yields how much it has done since it was asked last, and returns what it found."""


def whole(work: Work[T]) -> T:
    """All of it at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found
