"""Lines of the log that come in a flood: few, and none of what they count is lost."""

from __future__ import annotations

import asyncio
import logging

import pytest

from service.log.paced_lines import PacedLines

pytestmark = pytest.mark.looptime

LOG = logging.getLogger("tests.paced")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> PacedLines:
    caplog.set_level(logging.INFO, LOG.name)
    return PacedLines(LOG, logging.INFO, 3, "node %s came", "%d nodes came: %s")


async def test_a_few_are_logged_at_once(
    lines: PacedLines, caplog: pytest.LogCaptureFixture
) -> None:
    lines.add(["a"])
    lines.add(["b", "c"])
    assert caplog.messages == ["node a came", "2 nodes came: b; c"]
    lines.add([])
    await asyncio.sleep(120)
    assert len(caplog.messages) == 2


async def test_a_flood_waits_for_the_next_line_and_is_counted(
    lines: PacedLines, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        lines.add([f"n{number}"])
        await asyncio.sleep(0.01)
    assert caplog.messages == ["node n0 came", "node n1 came", "node n2 came"]
    await asyncio.sleep(49.9)
    assert len(caplog.messages) == 3
    await asyncio.sleep(0.2)
    names = "; ".join(f"n{number}" for number in range(3, 11))
    assert caplog.messages[3:] == [f"997 nodes came: {names} and 989 more"]


@pytest.mark.parametrize("pause", [0.5, 7, 30])
async def test_no_minute_has_more_lines(
    lines: PacedLines, caplog: pytest.LogCaptureFixture, pause: float
) -> None:
    loop = asyncio.get_running_loop()
    times: list[float] = []
    for _ in range(200):
        before = len(caplog.messages)
        lines.add(["n"])
        await asyncio.sleep(pause)
        times += [loop.time()] * (len(caplog.messages) - before)
    assert times
    for time in times:
        assert sum(time <= other < time + 60 - pause for other in times) <= 3


async def test_waiting_lines_are_written_at_the_end(
    lines: PacedLines, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        lines.add([f"n{number}"])
    lines.flush()
    assert caplog.messages[-1] == "2 nodes came: n3; n4"
    await asyncio.sleep(100)
    assert len(caplog.messages) == 4
