"""Worked examples of the specification about reports of sources: polls, hangs, dropped cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.publishing.chip_lists import render
from collectors.links.tracker import LinkTracker
from collectors.links.unified_bus import UnifiedBus
from contract.codes.chip_codes import (
    CARD_DROP,
    HANG,
    UB_PORT_DOWN,
    UB_SEPARATE,
    UB_SUB_HEALTH,
    UBOE_PORT_DOWN,
    UBOE_PRE_SEPARATE,
    UBOE_SUB_HEALTH,
)
from contract.codes.families import FAMILIES
from contract.codes.levels import Severity
from contract.observation import Assertion, chip_subject
from tests.agent.policy.builders import T, after, healthy, inventory, seen
from tests.compatibility import check, different

if TYPE_CHECKING:
    from agent.policy.state import PolicyState

OCCUR, RECOVER = Assertion.OCCUR, Assertion.RECOVER
PRESENT, ABSENT = Assertion.PRESENT, Assertion.ABSENT


def device_faults(
    state: PolicyState, *chips: int, family: str = "Ascend910B"
) -> list[dict[str, Any]]:
    """Return the chips of the document: health, and time and level of each code."""
    info = render(state, inventory(len(state.chips), family), 1700000100)
    found = []
    for chip in chips:
        name = FAMILIES[family].device_name(chip)
        codes = {
            code: [entry.fault_time, str(entry.fault_level)]
            for fault in info.faults
            if fault.npu_name == name
            for code, entry in (fault.fault_time_and_level_map or {}).items()
        }
        health = "Unhealthy" if name in info.unhealthy else "Healthy"
        found.append({"health": health, "codes": codes})
    return found


def test_a_card_that_drops_and_returns() -> None:
    """EX-33; the documents while the card is away are among the machine-readable examples."""
    state = after(healthy(), [seen(PRESENT, CARD_DROP)])
    upstream = [{"health": "Unhealthy", "codes": {CARD_DROP: [T, "RestartNPU"]}}]
    assert device_faults(state, 0) == upstream
    state = after(state, [seen(ABSENT, CARD_DROP, at=T + 9_000)], T + 9_000)
    assert device_faults(state, 0) == [{"health": "Healthy", "codes": {}}]


def test_a_hang_is_in_milliseconds_and_not_the_drivers_to_end() -> None:
    """EX-48."""
    found = seen(OCCUR, HANG, severity=Severity.SUGGESTION, source="hang")
    state = after(healthy(), [found])
    upstream: list[dict[str, Any]] = [
        {"health": "Healthy", "codes": {HANG: [T // 1000, "NotHandleFault"]}},
        {"health": "Healthy", "codes": {}},
    ]
    ours = device_faults(state, 0)
    # A resync: the driver does not list the code.
    state = after(state, [seen(ABSENT, HANG, at=T + 300_000)], T + 300_000)
    check("device-plugin/EX-48", different(upstream, ours + device_faults(state, 0)))
    state = after(state, [seen(RECOVER, HANG, at=T + 360_000, source="hang")], T + 360_000)
    assert device_faults(state, 0) == [{"health": "Healthy", "codes": {}}]


def test_an_unknown_code_on_another_chip_changes_nothing_on_the_first() -> None:
    """EX-57."""
    unknown = "80ABCDEF"
    state = after(healthy(), [seen(OCCUR, unknown, severity=Severity.CRITICAL)])
    first = [{"health": "Unhealthy", "codes": {unknown: [T, "SeparateNPU"]}}]
    assert device_faults(state, 0) == first, "as upstream, until the resync"
    state = after(state, [seen(PRESENT, unknown, 1, T + 5_000)], T + 5_000)
    upstream = [
        {"health": "Healthy", "codes": {unknown: [at, "NotHandleFault"]}} for at in (T, T + 5_000)
    ]
    check("device-plugin/EX-57", different(upstream, device_faults(state, 0, 1)))


class A5:
    """An A5 with some chips, whose codes of UB ports follow the reports of its driver."""

    def __init__(self, chips: int) -> None:
        self.state = healthy(chips)
        self._chips = [chip_subject(chip) for chip in range(chips)]
        self._bus = UnifiedBus("links", ())

    def event(self, assertion: Assertion, chip: int, at: int) -> None:
        seen_now = seen(assertion, UB_PORT_DOWN, chip, at)
        self._bus.observe_driver(seen_now)
        self.state = after(self.state, [seen_now, *self._bus.changes(self._chips, at)], at)

    def codes(self) -> list[dict[str, Any]]:
        """Return each chip's health, and its levels by code."""
        return [
            {
                "health": one["health"],
                "codes": {code: entry[1] for code, entry in sorted(one["codes"].items())},
            }
            for one in device_faults(self.state, *range(len(self._chips)), family="Ascend910A5")
        ]


MILD = "NotHandleFault"
ALONE = {"health": "Unhealthy", "codes": {UB_SEPARATE: "SeparateNPU", UB_PORT_DOWN: MILD}}
PLANE = {"health": "Healthy", "codes": {UB_SUB_HEALTH: "SubHealthFault", UB_PORT_DOWN: MILD}}
WELL: dict[str, Any] = {"health": "Healthy", "codes": {}}


def test_ub_ports_of_one_chip_of_both_and_of_the_other() -> None:
    """EX-34. Codes are compared by name: upstream prepends what it derives."""
    a5 = A5(2)
    a5.event(OCCUR, 0, T)
    ours = [a5.codes()]
    a5.event(OCCUR, 1, T + 1_000)
    ours.append(a5.codes())
    a5.event(RECOVER, 0, T + 9_000)
    ours.append(a5.codes())
    upstream = [[ALONE, WELL], [PLANE, PLANE], [WELL, PLANE]]
    check("device-plugin/EX-34", different(upstream, ours))
    a5.event(RECOVER, 1, T + 20_000)
    assert a5.codes() == [WELL, WELL]


def test_the_ub_port_of_the_only_chip() -> None:
    """EX-61."""
    a5 = A5(1)
    a5.event(OCCUR, 0, T)
    check("device-plugin/EX-61", different([PLANE], a5.codes()))


def test_bonding_ports_of_an_a5() -> None:
    """EX-35."""
    state = after(healthy(1), [seen(OCCUR, UBOE_PORT_DOWN)])
    tool = LinkTracker("links", chip_subject(0), ())
    tool.apply_event(0.0)

    def codes() -> dict[str, str]:
        (one,) = device_faults(state, 0, family="Ascend910A5")
        return {code: entry[1] for code, entry in sorted(one["codes"].items())}

    def bonding(down: int, at: int) -> dict[str, str]:
        nonlocal state
        faults = {
            UBOE_PORT_DOWN: down > 0,
            UBOE_SUB_HEALTH: down == 1,
            UBOE_PRE_SEPARATE: down > 1,
        }
        state = after(state, tool.observe_link_faults(faults, at / 1000, T + at), T + at)
        return codes()

    ours = [bonding(1, 2_000), bonding(2, 62_000)]
    over = [seen(RECOVER, UBOE_PORT_DOWN, at=T + 90_000)]
    derived = tool.end_faults((UBOE_SUB_HEALTH, UBOE_PRE_SEPARATE), T + 90_000)
    state = after(state, [*over, *derived], T + 90_000)
    ours.append(codes())
    first = {UBOE_SUB_HEALTH: "SubHealthFault", UBOE_PORT_DOWN: MILD}
    second = {UBOE_PRE_SEPARATE: "PreSeparateNPU"}
    upstream = [first, dict(sorted((first | second).items())), {}]
    check("device-plugin/EX-35", different(upstream, ours))
