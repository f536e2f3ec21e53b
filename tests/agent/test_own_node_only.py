"""An agent says when the API server would let it write what belongs to other nodes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from agent.node.own_node_only import OwnNodeOnly
from contract.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("answers", "last", "logged", "asked"),
    [
        ([True, True], True, [], [0, 600]),
        ([None, StoreUnavailable("away")], None, [], [0, 60]),
        ([False, False, True, True], True, ["is not in force", "is in force"], [0, 60, 120, 720]),
        ([False, StoreUnavailable("away"), False], False, ["is not in force"], [0, 60, 120]),
    ],
)
async def test_it_is_said_when_it_begins_and_when_it_ends(
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

    looks = OwnNodeOnly(look)
    assert looks.is_in_force is None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(asked[-1] + 1):
            await looks.run()
    assert looks.is_in_force is last
    assert [round(at) for at in asked_at] == asked
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(logged)
    assert all(part in text for part, text in zip(logged, told, strict=True))
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}
