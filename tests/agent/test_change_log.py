"""What an agent logs of faults: what takes a chip or the node out is a warning, its end is not."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from contract.codes.levels import NodeLevel, SwitchLevel, takes_out
from contract.observation import Assertion, Observation, SourceAnswered, chip_subject, host_subject
from service.log.setup import FAULT_FIELDS
from tests.agent.lives import Clock, FaultStateLife, seen_now
from tests.parts.log_lines import lines_of

if TYPE_CHECKING:
    from pathlib import Path

    from agent.policy.step import Input

LOGGER = "agent.faults"
MILD = "80E21007"
"""``NotHandleFault``."""


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOGGER)
    return caplog


async def test_a_chip_that_is_taken_out_is_a_warning(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    life = FaultStateLife(tmp_path, clock)
    await life.take(SourceAnswered("chip-faults", chip_subject(3), clock()))
    await life.take(seen_now(clock, Assertion.OCCUR))
    clock.now_ms += 60_000
    await life.take(seen_now(clock, Assertion.RECOVER))
    life.fault_state.end()
    (begin, end) = lines_of(LOGGER, log)
    assert begin[0] == "WARNING"
    assert begin[1].startswith("chip 3 80E01801 ")
    assert "-> RestartBusiness" in begin[1]
    assert end[0] == "INFO"
    assert end[1].startswith("chip 3 80E01801 ")
    for record in log.records:  # what the format json shows beside the text
        assert [getattr(record, name) for name in FAULT_FIELDS] == [
            3,
            "80E01801",
            "RestartBusiness",
        ]


async def test_change_that_takes_no_chip_out_is_no_warning(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    life = FaultStateLife(tmp_path, clock)
    await life.take(seen_now(clock, Assertion.OCCUR, code=MILD))
    life.fault_state.end()
    assert [level for level, _ in lines_of(LOGGER, log)] == ["INFO"]


async def test_change_that_takes_the_node_out_is_a_warning(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    life = FaultStateLife(tmp_path, clock)
    alarm = Observation("bmc", host_subject("CPU", 1), "0D000001", Assertion.PRESENT, clock())
    await life.take(alarm)
    life.fault_state.end()
    ((level, text),) = lines_of(LOGGER, log)
    assert level == "WARNING", text


async def test_standing_faults_are_summed_up_at_a_start(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    life = FaultStateLife(tmp_path, clock)
    await life.take(
        seen_now(clock, Assertion.OCCUR, 1, MILD),
        *(seen_now(clock, Assertion.OCCUR, chip) for chip in range(3, 15)),
    )
    log.clear()
    again = FaultStateLife(tmp_path, clock)
    ((level, text),) = lines_of(LOGGER, log)
    assert level == "WARNING"
    assert text.startswith("13 faults at the start: chip 10 80E01801 RestartBusiness; chip ")
    assert text.endswith(" and 5 more")
    assert await again.journal.close()


async def test_a_healthy_start_logs_nothing(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    assert await FaultStateLife(tmp_path, Clock()).journal.close()
    assert lines_of(LOGGER, log) == []


@pytest.mark.slow
@pytest.mark.looptime
async def test_a_storm_is_few_lines(log: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    clock = Clock()
    life = FaultStateLife(tmp_path, clock)
    for number in range(1000):
        inputs: list[Input] = [seen_now(clock, Assertion.OCCUR, number % 16, f"80E{number:05X}")]
        life.fault_state.apply_inputs(inputs)
        clock.now_ms += 100
        await asyncio.sleep(0.1)
    for number in range(1000):
        clock.now_ms += 10
        life.fault_state.apply_inputs(
            [seen_now(clock, Assertion.RECOVER, number % 16, f"80E{number:05X}")]
        )
    life.fault_state.end()
    logged = lines_of(LOGGER, log)
    assert 10 < len(logged) <= 100
    texts = [text for _, text in logged]
    assert any("changes take chips or the node out: chip " in text for text in texts)
    counted = [int(text.split()[0]) for text in texts if not text.startswith("chip ")]
    assert sum(counted) + len(logged) - len(counted) == 2000, "each change is counted"


@pytest.mark.parametrize(
    ("level", "is_network", "out"),
    [
        ("SeparateNPU", False, True),
        ("PreSeparateNPU", False, True),
        ("RestartBusiness", False, True),
        ("SubHealthFault", False, False),
        ("SubHealthFault", True, True),
        ("NotHandleFault", True, False),
        ("NormalNPU", False, False),
        (SwitchLevel.SEPARATE, False, True),
        (SwitchLevel.NOT_HANDLE, False, False),
        (NodeLevel.PRE_SEPARATE_FAULT, False, True),
        (NodeLevel.NOT_HANDLE_FAULT, False, False),
        ("UnHealthy", False, True),
        ("SubHealthy", False, False),
        ("Healthy", False, False),
        ("", False, False),
        (None, False, False),
    ],
)
def test_levels_that_take_out(level: str | None, is_network: bool, out: bool) -> None:
    assert takes_out(level, is_network=is_network) is out
