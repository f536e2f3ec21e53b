"""Long answers let others have their turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aggregator.slices import in_slices

if TYPE_CHECKING:
    from collections.abc import Iterator


async def test_others_have_a_turn_in_every_slice() -> None:
    turns: list[int] = []
    made = [0]

    def rows() -> Iterator[int]:
        for made[0] in range(2_000):
            yield made[0]

    async def other() -> None:
        while made[0] < 1_999:
            turns.append(made[0])
            await asyncio.sleep(0)

    waiting = asyncio.create_task(other())
    assert await in_slices(rows()) == tuple(range(2_000))
    await waiting
    assert turns == list(range(199, 1_999, 200))
