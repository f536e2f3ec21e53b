"""Long answers in slices, so that nothing else waits long for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

SLICE_ROWS = 200
"""About 2 ms for the dearest rows, those of nodes."""


async def in_slices(rows: Iterable[T]) -> tuple[T, ...]:
    """All ``rows``. Whatever they are made from may change between any two of them."""
    found: list[T] = []
    for row in rows:
        found.append(row)
        if len(found) % SLICE_ROWS == 0:
            await asyncio.sleep(0)
    return tuple(found)
