"""Polls find what the driver's events missed; a chip in trouble does not delay the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contract.codes.chip_codes import RESET_FINISHED
from dcmi_shim.emulator.functions import functions
from tests.parts.deadlines import let_time_pass, nothing_happens_for, patience

if TYPE_CHECKING:
    from tests.end_to_end.node import Node

CODES = "dcmi_get_device_errorcode_v2"
FAULT, MILD = "80E01801", "80E21007"
IOCTL_FAILED = -8009
CHIP = 3
OTHERS = {f"Ascend910-{chip}" for chip in range(8) if chip != CHIP}


@pytest.fixture
def node(folder_node: Node) -> Node:
    """Return a node whose audits, health checks and probes run every second; not started."""
    folder_node.environment |= {
        "VIGIL_CHIP_FAULTS_AUDIT_PERIOD_SECONDS": "1",
        "VIGIL_CHIP_FAULTS_HEALTH_PERIOD_SECONDS": "1",
        "VIGIL_DRIVER_PROBE_PERIOD_SECONDS": "1",
    }
    return folder_node


def _blind(node: Node) -> list[int]:
    return [
        chip["chip"]
        for chip in node.status()["chips"]
        if any(source["source"] == "chip-faults" for source in chip["blind"])
    ]


@pytest.mark.parametrize("code", [FAULT, MILD])
def test_lost_events_of_serious_and_mild_codes(node: Node, code: str) -> None:
    """Upstream never asks a healthy chip again (K09)."""
    node.start()
    node.healthy()
    node.emulator.lose_next_event()
    node.emulator.occur(CHIP, code)
    node.until(lambda now: now.codes(CHIP) == {code}, "the lost occurrence is found", 4)
    node.emulator.lose_next_event()
    node.emulator.recover(CHIP, code)
    node.until(lambda now: not now.codes(CHIP), "the lost recovery is found", 4)
    node.wait(lambda: node.assertions(code) == ["present", "absent"], "both are journaled")


def test_a_code_query_that_fails_at_the_start(node: Node) -> None:
    node.emulator.occur(CHIP, FAULT)
    node.emulator.fail(CODES, IOCTL_FAILED, CHIP)
    node.start()
    node.until(lambda now: now.free >= OTHERS, "the others are shown")
    now = node.shown()
    assert now is not None
    assert "Ascend910-3" not in now.free | now.unhealthy, "a chip never read is in no list"
    # On a busy machine calls about other chips miss their deadline, too.
    node.wait(lambda: _blind(node) == [CHIP], "it alone is blind")
    node.emulator.clear(CODES, CHIP)
    node.until(lambda now: now.codes(CHIP) == {FAULT}, "its fault is found when it answers", 4)
    node.wait(lambda: _blind(node) == [], "no chip is blind")


def test_a_recovery_is_not_accepted_while_the_query_that_proves_it_fails(node: Node) -> None:
    node.start()
    node.healthy()
    node.emulator.occur(CHIP, FAULT)
    node.until(lambda now: now.codes(CHIP) == {FAULT}, "the fault is shown")
    node.emulator.fail(CODES, IOCTL_FAILED, CHIP)
    node.wait(lambda: _blind(node) == [CHIP], "the chip is blind")
    node.emulator.recover(CHIP, FAULT)
    nothing_happens_for(2.5, because="the list is asked for LAG_SECONDS, 2, after the event")
    now = node.shown()
    assert now is not None
    assert now.codes(CHIP) == {FAULT}
    node.emulator.clear(CODES, CHIP)
    node.until(lambda now: not now.codes(CHIP), "it is over when the list says so", 4)


def test_a_finished_reset_is_audited_at_once(folder_node: Node) -> None:
    """The list is due every 15 s otherwise."""
    node = folder_node
    node.start()
    node.healthy()
    nothing_happens_for(2.5, because="the list of the start is asked for LAG_SECONDS, 2, after it")
    node.emulator.lose_next_event()
    node.emulator.occur(CHIP, FAULT)
    let_time_pass(0.1)
    node.emulator.once(CHIP, RESET_FINISHED)
    node.until(lambda now: now.codes(CHIP) == {FAULT}, "what the reset left is found", 1)


def _start_and_see(node: Node, seconds: float = 2.0) -> None:
    """Start the agent; wait until its first document lists the chips that answer."""
    node.start()
    node.up()  # how long an interpreter takes to begin is not judged
    node.until(lambda now: now.free >= OTHERS, "the first document", seconds)


@pytest.mark.alone
def test_one_list_hangs_from_the_start(node: Node) -> None:
    node.emulator.hang(CODES, CHIP)
    _start_and_see(node)
    now = node.shown()
    assert now is not None
    assert now.free == OTHERS
    node.wait(lambda: _blind(node) == [CHIP], "the chip is blind")
    node.emulator.occur(5, FAULT)
    assert node.until(lambda now: now.codes(5) == {FAULT}, "another chip's fault") < patience(1)
    node.emulator.clear(CODES, CHIP)
    node.until(lambda now: "Ascend910-3" in now.free, "it is back by itself", 6)


@pytest.mark.alone
def test_a_subscription_that_never_returns(node: Node) -> None:
    node.emulator.hang("dcmi_subscribe_fault_event")
    _start_and_see(node)
    node.healthy(1)


@pytest.mark.alone
def test_a_tool_that_hangs_from_the_start(node: Node) -> None:
    node.emulator.tool("hccn_tool", "hang")
    _start_and_see(node)
    node.healthy(1)


@pytest.mark.alone
def test_a_tool_that_refuses_from_the_start(node: Node) -> None:
    node.emulator.tool("hccn_tool", "fail", exit_status=3, text="Get device health status failed!")
    _start_and_see(node)
    node.healthy(1)


@pytest.mark.alone
def test_every_call_of_one_chip_refuses_from_the_start(node: Node) -> None:
    for function in functions().values():
        if function.is_about_a_chip:
            node.emulator.fail(function.name, IOCTL_FAILED, CHIP)
    _start_and_see(node)
    now = node.shown()
    assert now is not None
    assert now.free == OTHERS
    assert "card 3" in node.status()["driver"]["trouble"]
    for function in functions().values():
        if function.is_about_a_chip:
            node.emulator.clear(function.name, CHIP)
    node.healthy(6)
