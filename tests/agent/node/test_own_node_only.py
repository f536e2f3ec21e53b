"""An agent reports when the API server would let it write what belongs to other nodes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from agent.node.own_node_only import OwnNodeOnlyCheck
from contract.errors import StoreUnavailable
from tests.replay.player import Player

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


HOUR = 3600
RECORDING = {
    "profile": "a2",
    "started_ms": 1_795_262_000_000,
    "steps": [],
    "expected": [{"at_ms": 0}],
}


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("answers", "last", "logged", "asked"),
    [
        ([True, True], True, [], [0, 6 * HOUR]),
        ([None, StoreUnavailable("away")], None, [], [0, 60]),
        (
            [False, False, True, True],
            True,
            ["is not in force", "is in force"],
            [0, 60, 180, 180 + 6 * HOUR],
        ),
        ([False, StoreUnavailable("away"), False], False, ["is not in force"], [0, 60, 180]),
        ([True, False, True], True, ["is not", "is in force"], [0, 6 * HOUR, 6 * HOUR + 60]),
    ],
)
async def test_missing_policy_is_logged_when_it_begins_and_ends(
    caplog: pytest.LogCaptureFixture,
    answers: Sequence[bool | Exception | None],
    last: bool | None,
    logged: list[str],
    asked: list[float],
) -> None:
    caplog.set_level(logging.INFO)
    loop = asyncio.get_running_loop()
    began = loop.time()
    asked_at: list[float] = []

    async def look() -> bool | None:
        asked_at.append(loop.time() - began)
        answer = answers[len(asked_at) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    looks = OwnNodeOnlyCheck(look)
    assert looks.is_in_force is None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(asked[-1] + 1):
            await looks.run()
    assert looks.is_in_force is last
    assert [round(at) for at in asked_at] == asked
    shown = [record.getMessage() for record in caplog.records]
    assert len(shown) == len(logged)
    assert all(part in text for part, text in zip(logged, shown, strict=True))
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}


@pytest.mark.looptime
@pytest.mark.parametrize("answer", [True, False, None])
async def test_at_rest_it_asks_almost_nothing(answer: bool | None) -> None:
    """An idle node writes at most once in 5 minutes."""
    asked = []

    async def look() -> bool | None:
        asked.append(asyncio.get_running_loop().time())
        return answer

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(24 * HOUR):
            await OwnNodeOnlyCheck(look).run()
    assert len(asked) <= 13
    assert len([at for at in asked if at > asked[0] + 12 * HOUR]) <= 2


@pytest.mark.looptime
async def test_policy_is_checked_again_after_an_interruption() -> None:
    """Once, for all watches that come back; and soon again while it is not in force."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    asked: list[float] = []

    async def look() -> bool | None:
        asked.append(round(loop.time() - began))
        return len(asked) != 2

    looks = OwnNodeOnlyCheck(look)
    task = asyncio.create_task(looks.run())
    await asyncio.sleep(HOUR)
    for _ in range(3):
        looks.wake()
        await asyncio.sleep(1)
    await asyncio.sleep(2 * HOUR)
    assert asked == [0, HOUR + 10, HOUR + 70]
    assert looks.is_in_force
    task.cancel()


@pytest.mark.slow
@pytest.mark.looptime(resolution=2**-20)
async def test_a_whole_agent_looks_at_the_start_and_after_an_outage(tmp_path: Path) -> None:
    player = Player(RECORDING, tmp_path)
    with player.replaced():
        await player._start()
        await asyncio.sleep(HOUR)
        assert player.cluster.objects.own_node_only_looks == 1
        player.cluster.do("stop")
        await asyncio.sleep(60)
        player.cluster.do("start")
        await asyncio.sleep(HOUR)
        assert player.cluster.objects.own_node_only_looks == 2
        await player._end()
