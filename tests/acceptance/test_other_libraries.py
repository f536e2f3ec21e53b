"""Libraries that differ from ours where the ABI leaves it open, and what holds for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.daemons import wait
from tests.acceptance.hardware import CODES, HEALTH
from tests.acceptance.reading import has
from tests.parts.deadlines import nothing_happens_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.acceptance.conftest import MakeAgent
    from tests.acceptance.places import Folder

FAULT, OTHER, THIRD, DROP = "80CF8000", "80E18402", "A4028801", "40F84E00"
OCCUR, RECOVER, ONCE = 1, 0, 2
DIFFERENT = ("TURNED_CODES", "A_THREAD_FOR_EACH_EVENT")


@pytest.mark.parametrize("answer", [-8255, 255])
def test_a_library_that_can_less(
    folder: Folder, make_agent: MakeAgent, compiled: Callable[..., Path], answer: int
) -> None:
    """Its optional functions fail in its own way, its events have no numbers and no times, each
    has a thread of its own, its lists are in another order each time, and it takes 2 s to begin."""
    agent = make_agent(folder, library=compiled(f"OPTIONAL_ANSWER={answer}", *DIFFERENT))
    configuration = agent.directory / "vigil.toml"
    configuration.write_text("[chip_faults]\naudit_period_seconds = 0.5\n")
    agent.options = ["--config", str(configuration)]
    hardware = agent.hardware
    hardware.command("slow", "dcmi_init", value=2000)
    agent.start()
    agent.up()
    logic = hardware.chips[4].logic
    for code in (FAULT, OTHER, THIRD):
        hardware.list_code(4, code)
        hardware.event(logic, code, OCCUR)
    agent.shows(has(4, FAULT, OTHER, THIRD), "occurred")
    hardware.event(hardware.chips[5].logic, OTHER, ONCE)
    agent.shows(has(5, OTHER), "a one-off event")
    hardware.unlist_code(4, FAULT)
    hardware.event(logic, FAULT, RECOVER)
    agent.shows(has(4, OTHER, THIRD), "recovered", 3)
    for chip in hardware.chips.values():
        for code in (FAULT, OTHER, THIRD):
            hardware.event(chip.logic, code, OCCUR)
    hardware.occur(19, OTHER)
    agent.shows(lambda shown: all(shown.codes(chip) for chip in hardware.chips), "a burst")
    agent.shows(
        lambda shown: shown.codes(4) == {OTHER, THIRD} and shown.codes(19) == {OTHER},
        "the lists have the last word",
    )
    agent.shows(
        lambda shown: {name for name, _ in shown.levels} == {"Ascend910-4", "Ascend910-19"},
        "all of them",
    )
    before = folder.device_info("node-1")
    nothing_happens_for(2, because="the list is asked for LAG_SECONDS, 2, after an event")
    assert folder.device_info("node-1") == before, "another order is no change"
    assert not [
        chip for chip in agent.status()["chips"] for why in chip["blind"] if why["source"] != "hang"
    ]


def test_the_first_document_does_not_wait_for_what_is_blind(
    folder: Folder, make_agent: MakeAgent
) -> None:
    """It has the chips that answer; one that never does is lost later."""
    agent = make_agent(folder)
    configuration = agent.directory / "vigil.toml"
    configuration.write_text(
        "[chip_faults]\nhealth_period_seconds = 1\ncard_lost_after_seconds = 10\n"
    )
    agent.options = ["--config", str(configuration)]
    hardware = agent.hardware
    hardware.command("hang", CODES, 5)
    for function in (HEALTH, CODES):
        hardware.command("answer", function, 11, -8010)
    hardware.list_code(10, FAULT)
    hardware.tool(4, "exec sleep 3600")
    hardware.tool(18, "echo 'the tool is busy'; exit 11")
    agent.start()
    there = {f"Ascend910-{chip}" for chip in hardware.chips if chip not in (5, 11)}
    agent.shows(lambda shown: shown.free | shown.unhealthy == there, "the others")
    agent.shows(has(10, FAULT), "with their faults")
    wait(lambda: agent.blind() >= {5, 11}, "these are blind", 5)
    agent.shows(has(11, DROP), "it is lost", 15)
    shown = folder.device_info("node-1")
    assert shown is not None
    assert "Ascend910-5" not in shown.free | shown.unhealthy, "it hangs still"


def test_ten_thousand_events_and_one_that_matters(folder: Folder, make_agent: MakeAgent) -> None:
    agent = make_agent(folder)
    hardware = agent.hardware
    agent.start()
    agent.up()
    lines = []
    for number in range(10_000):
        chip = list(hardware.chips.values())[number % 6]
        lines.append(f"{chip.logic} {OTHER} 2 {number // 6 % 2} 0 0 x\n")
    with (hardware.control / "events").open("a") as file:
        file.write("".join(lines))
    hardware.occur(1, FAULT)
    agent.shows(has(1, FAULT), "the one that matters", 10)
    agent.shows(
        lambda shown: {name for name, _ in shown.levels} == {"Ascend910-1"},
        "the lists have the last word",
        20,
    )
    hardware.recover(1, FAULT)
    agent.shows(lambda shown: not shown.levels, "and it goes on", 3)


def test_a_tool_that_fails_means_down_where_that_is_wanted(
    folder: Folder, make_agent: MakeAgent
) -> None:
    agent = make_agent(folder)
    configuration = agent.directory / "vigil.toml"
    configuration.write_text('[compatibility]\nhccn_error = "down"\n')
    agent.options = ["--config", str(configuration)]
    agent.hardware.tool(10, "echo 'Get device health status failed!' >&2; exit 3")
    agent.start()
    agent.shows(has(10, "81078603"), "as the real program says", 10)
    agent.hardware.tool(10, None)
    agent.hardware.event(agent.hardware.chips[10].logic, "81078603", RECOVER)
    agent.shows(lambda shown: not shown.levels, "and up")
