"""A driver that hangs, is slow, crashes, or reports what cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.daemons import wait
from tests.acceptance.hardware import CODES, GAPPED, HEALTH
from tests.acceptance.reading import has
from tests.parts.deadlines import let_time_pass, nothing_happens_for, patience

if TYPE_CHECKING:
    from tests.acceptance.conftest import MakeAgent
    from tests.acceptance.daemons import Agent
    from tests.acceptance.places import Folder

FAULT, OTHER, DROP = "80E01801", "80E18402", "40F84E00"
BACK_SECONDS = 17.0


@pytest.fixture
def agent(folder: Folder, make_agent: MakeAgent) -> Agent:
    """Return a running agent on a directory store."""
    agent = make_agent(folder)
    agent.start()
    agent.up()
    return agent


@pytest.fixture
def brisk_agent(folder: Folder, make_agent: MakeAgent) -> Agent:
    """Return an agent with shorter periods; it is not started."""
    agent = make_agent(folder)
    configuration = agent.directory / "vigil.toml"
    configuration.write_text(
        "[chip_faults]\nhealth_period_seconds = 1\n[driver]\nprobe_period_seconds = 2\n"
    )
    agent.options = ["--config", str(configuration)]
    return agent


@pytest.mark.parametrize("function", [HEALTH, CODES])
def test_one_hanging_call(agent: Agent, function: str) -> None:
    hardware = agent.hardware
    hardware.occur(10, OTHER)
    agent.shows(lambda shown: shown.codes(10) == {OTHER}, "known before")
    hardware.command("hang", function, 10)
    # Asks every list and health again.
    hardware.event(99, FAULT, 1)
    wait(lambda: agent.blind() == {10}, "chip 10 is blind", 3)
    hardware.occur(4, FAULT)
    assert agent.shows(lambda shown: shown.codes(4) == {FAULT}, "another chip's fault") < patience(
        1
    )
    agent.shows(lambda shown: shown.codes(10) == {OTHER}, "the last state is kept")
    assert 'npu_vigil_blind{chip="10",source="chip-faults"} 1.0' in agent.metrics()
    hardware.forget("hang", function, 10)
    wait(lambda: not agent.blind(), "it comes back by itself", BACK_SECONDS)
    hardware.recover(10, OTHER)
    agent.shows(lambda shown: not shown.codes(10), "and is watched again", 3)


def test_no_event_is_lost_while_a_hanging_process_is_replaced(agent: Agent) -> None:
    hardware = agent.hardware
    # The library's thread is late; what it holds when its process is replaced must not be lost.
    hardware.command("slow", "events", value=100)
    hardware.command("hang", HEALTH, 10)
    hardware.event(99, FAULT, 1)
    wait(lambda: "every chip is audited" in agent.logged(), "it asks")
    for _ in range(80):
        hardware.once(4, OTHER)
        let_time_pass(0.01)
    wait(lambda: len(agent.assertions(OTHER)) >= 80, "all arrived", 3)
    assert agent.assertions(OTHER) == ["once"] * 80


def test_a_fault_while_the_hang_is_noticed(agent: Agent) -> None:
    hardware = agent.hardware
    hardware.command("hang", CODES, 10)
    hardware.event(99, FAULT, 1)
    for chip in (4, 5, 11):
        hardware.occur(chip, FAULT)
        taken = agent.shows(has(chip, FAULT), "in the hang")
        assert taken < patience(1)
        let_time_pass(0.2)


def test_every_call_is_slow_from_the_start(folder: Folder, make_agent: MakeAgent) -> None:
    agent = make_agent(folder, chips=GAPPED[2:4])
    for function in (HEALTH, CODES):
        agent.hardware.command("slow", function, value=700)
    agent.start()
    agent.up(40)
    wait(lambda: not agent.blind(), "nobody is blind", 40)
    agent.hardware.occur(10, FAULT)
    assert agent.shows(lambda shown: shown.codes(10) == {FAULT}, "occurred") < patience(1)
    agent.hardware.recover(10, FAULT)
    assert agent.shows(lambda shown: not shown.levels, "recovered") < patience(1)
    nothing_happens_for(
        4, because="a list lags behind for LAG_SECONDS, 2, and its query is repeated"
    )
    assert not agent.blind()
    assert not agent.status()["driver"]["stuck_calls"]


def test_a_slow_subscription(folder: Folder, make_agent: MakeAgent) -> None:
    agent = make_agent(folder)
    agent.hardware.command("slow", "dcmi_subscribe_fault_event", value=2500)
    agent.start()
    agent.up()
    wait(lambda: agent.status()["driver"]["polling_reason"] is None, "subscribed", 15)
    agent.hardware.occur(10, FAULT)
    assert agent.shows(has(10, FAULT), "occurred") < patience(1)


def test_a_crashing_call(agent: Agent) -> None:
    hardware = agent.hardware
    hardware.command("crash", HEALTH, 5)
    hardware.event(99, FAULT, 1)
    wait(lambda: agent.blind() == {5}, "chip 5 is blind", 8)
    # Without a process no event is received; a list counts two seconds later.
    hardware.occur(4, FAULT)
    assert agent.shows(lambda shown: shown.codes(4) == {FAULT}, "another chip's fault") < patience(
        3
    )
    wait(lambda: bool(agent.status()["driver"]["stuck_calls"]), "left out", 10)
    hardware.forget("crash", HEALTH, 5)
    wait(lambda: not agent.blind(), "it comes back by itself", BACK_SECONDS)
    assert agent.process.status is None


@pytest.mark.parametrize("functions", [(HEALTH,), (HEALTH, CODES)], ids=["health", "every call"])
def test_a_card_drops(brisk_agent: Agent, functions: tuple[str, ...]) -> None:
    agent, hardware = brisk_agent, brisk_agent.hardware
    agent.start()
    agent.up()
    hardware.occur(18, FAULT)
    agent.shows(lambda shown: shown.codes(18) == {FAULT}, "known before")
    for function in functions:
        hardware.command("answer", function, 18, -8012)
    agent.shows(lambda shown: shown.codes(18) == {FAULT, DROP}, "dropped", 7)
    assert not agent.blind()
    for function in functions:
        hardware.forget("answer", function, 18)
    agent.shows(lambda shown: shown.codes(18) == {FAULT}, "it is back", 7)


@pytest.mark.parametrize(
    ("function", "value"),
    [(CODES, 129), (HEALTH, 2**31 - 1)],
)
def test_answers_that_cannot_be_are_no_news(brisk_agent: Agent, function: str, value: int) -> None:
    agent, hardware = brisk_agent, brisk_agent.hardware
    agent.start()
    agent.up()
    hardware.occur(1, FAULT)
    agent.shows(lambda shown: shown.codes(1) == {FAULT}, "known before")
    hardware.command("wrong", function, 1, value)
    hardware.event(99, FAULT, 1)
    wait(lambda: agent.blind() == {1}, "chip 1 is blind", 5)
    agent.shows(lambda shown: shown.codes(1) == {FAULT}, "kept")
    hardware.forget("wrong", function, 1)
    wait(lambda: not agent.blind(), "back", 7)


def test_identities_that_cannot_be(brisk_agent: Agent) -> None:
    agent, hardware = brisk_agent, brisk_agent.hardware
    hardware.command("wrong", "dcmi_get_device_logic_id", 4, 300)
    hardware.command("wrong", "dcmi_get_device_phyid_from_logicid", 5, 4096)
    hardware.command("wrong", "dcmi_get_dcmi_version")
    hardware.command("wrong", "dcmi_get_device_chip_info_v2")
    agent.start()
    good = {f"Ascend910-{chip}" for chip in (1, 10, 11, 18, 19)}
    agent.shows(lambda shown: shown.free == good, "the others are served")
    assert "the logic id is 300" in agent.status()["driver"]["trouble"]
    for function, what in (
        ("dcmi_get_device_logic_id", 4),
        ("dcmi_get_device_phyid_from_logicid", 5),
    ):
        hardware.forget("wrong", function, what)
    agent.up(20)
