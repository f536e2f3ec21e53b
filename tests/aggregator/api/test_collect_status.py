"""Long answers let others have their turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

from aggregator.api.collect_status import StatusQueries
from aggregator.inputs.node_documents import DocumentSource
from aggregator.merge.pipeline import Pipeline
from aggregator.processors.frequent_fault_separation import Separated
from pacing.cooperative import all_of
from tests.aggregator.nodes import T0, instant

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
    assert await all_of(rows(), 200) == tuple(range(2_000))
    await waiting
    assert turns == list(range(199, 1_999, 200))


async def test_others_have_a_turn_while_separation_is_shown() -> None:
    pipeline = Pipeline([DocumentSource("s:")], touch_period_seconds=45)
    separation = pipeline.processing.separation
    names = [f"n{number:03}" for number in range(500)]
    for name in names:
        separation.chips[name] = {"Ascend910-0": Separated({"80C98000": T0 * 1000})}
        separation.counts[name] = {"Ascend910-1": {"80C98009": (T0 * 1000,)}}
    others = {name: MagicMock() for name in StatusQueries.__struct_fields__}
    made: dict[str, Any] = {**others, "pipeline": pipeline, "clock": lambda: instant(1)}
    answer = asyncio.create_task(StatusQueries(**made).separation_page())
    await asyncio.sleep(0)
    assert not answer.done()
    separation.drop("n000", "Ascend910-0")
    separation.drop("n499", "Ascend910-0")
    shown = (await answer).separation
    assert [one.node for one in shown.chips] == names[:-1], "n000 was written down already"
    assert [one.node for one in shown.counted] == names
    assert {one.times for one in shown.counted} == {1}
