"""When an agent is blind, and what is logged of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

import pytest

from agent.all_chips_blind import AgentBlindness, blind_chips
from agent.policy.state import Blindness, ChipState, PolicyState
from dcmi_shim.values import Chip, Inventory

if TYPE_CHECKING:
    from agent.fault_state import FaultState
    from agent.publishing.device_info import DeviceInfoDocument
    from dcmi_shim.driver import Driver

GONE = Blindness(5_000, "the driver process was ended by SIGKILL")
LATER = Blindness(7_000, "no usable libdcmi.so")
SEEING = ChipState(answered=("chip-faults",))
CHIPS = tuple(Chip(number, number, number, 0) for number in range(3))
INVENTORY = Inventory(CHIPS, "Ascend910B", "910B3", None, None, None, "/libdcmi.so")


def blind(why: Blindness = GONE) -> ChipState:
    return ChipState(answered=("chip-faults",), blind={"chip-faults": why})


def state(*chips: ChipState) -> PolicyState:
    return PolicyState("node-1", "boot", chips=dict(enumerate(chips)))


@pytest.mark.parametrize(
    ("known", "inventory", "found"),
    [
        (state(blind(), blind(LATER), blind()), INVENTORY, LATER),
        (state(blind(), SEEING, blind()), INVENTORY, None),
        (state(blind(), blind(), blind(), SEEING), INVENTORY, GONE),
        (state(blind(), blind()), None, GONE),
        (state(), None, None),
        (state(), INVENTORY, None),
        (state(ChipState(blind={"links": GONE})), None, None),
    ],
)
def test_it_is_blind_when_no_chip_of_the_node_answers(
    known: PolicyState, inventory: Inventory | None, found: Blindness | None
) -> None:
    assert blind_chips(known, inventory) == found


class Bench:
    def __init__(self) -> None:
        self.state = state(SEEING)
        self.inventory: Inventory | None = None
        self.trouble: str | None = None
        self.now_ms = 100_000
        self.blindness = AgentBlindness(
            cast("FaultState", self),
            cast("DeviceInfoDocument", self),
            cast("Driver", self),
            lambda: self.now_ms,
        )


def test_begin_and_end_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    with caplog.at_level(logging.INFO):
        for known in (SEEING, blind(), blind(LATER), blind(LATER), SEEING, SEEING):
            bench.state = state(known)
            bench.blindness.check()
    assert [(record.levelname, record.message.partition(":")[0]) for record in caplog.records] == [
        ("ERROR", "blind"),
        ("WARNING", "not blind any more after 93.0 s"),
    ]
    assert GONE.reason in caplog.text


@pytest.mark.parametrize("remembered", [(), (SEEING,)], ids=["nothing", "a-chip"])
def test_a_driver_that_never_answers_makes_it_blind_after_a_while(
    remembered: tuple[ChipState, ...],
) -> None:
    """What a journal or a document remembers of chips is no answer of this process."""
    bench = Bench()
    bench.state, bench.trouble = state(*remembered), "dcmi_get_card_list does not return"
    assert bench.blindness.check() is None
    bench.now_ms += 10_000
    found = bench.blindness.check()
    assert found is not None
    assert found.since_ms == 100_000
    assert found.reason.endswith("since the start: dcmi_get_card_list does not return")
    bench.trouble = None
    assert bench.blindness.check() is None
