"""Worked examples of the specification about what sources tell: polls, hangs, dropped cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.render import render
from contract.codes import CARD_DROP, HANG
from contract.levels import Severity
from contract.observation import Assertion
from tests.compatibility import check, different
from tests.policy.builders import T, after, healthy, inventory, seen

if TYPE_CHECKING:
    from agent.state import State

OCCUR, RECOVER = Assertion.OCCUR, Assertion.RECOVER
PRESENT, ABSENT = Assertion.PRESENT, Assertion.ABSENT


def said(state: State, *chips: int) -> list[dict[str, Any]]:
    """What the document says of chips: health, and time and level of each code."""
    info = render(state, inventory(), 1700000100)
    found = []
    for chip in chips:
        name = f"Ascend910-{chip}"
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
    """EX-33; what it says while the card is away is among the machine-readable ones."""
    state = after(healthy(), [seen(PRESENT, CARD_DROP)])
    upstream = [{"health": "Unhealthy", "codes": {CARD_DROP: [T, "RestartNPU"]}}]
    assert said(state, 0) == upstream
    state = after(state, [seen(ABSENT, CARD_DROP, at=T + 9_000)], T + 9_000)
    assert said(state, 0) == [{"health": "Healthy", "codes": {}}]


def test_a_hang_is_in_milliseconds_and_not_the_drivers_to_end() -> None:
    """EX-48."""
    found = seen(OCCUR, HANG, severity=Severity.SUGGESTION, source="hang")
    state = after(healthy(), [found])
    upstream: list[dict[str, Any]] = [
        {"health": "Healthy", "codes": {HANG: [T // 1000, "NotHandleFault"]}},
        {"health": "Healthy", "codes": {}},
    ]
    ours = said(state, 0)
    # A resync: the driver does not list the code.
    state = after(state, [seen(ABSENT, HANG, at=T + 300_000)], T + 300_000)
    check("device-plugin/EX-48", different(upstream, ours + said(state, 0)))
    state = after(state, [seen(RECOVER, HANG, at=T + 360_000, source="hang")], T + 360_000)
    assert said(state, 0) == [{"health": "Healthy", "codes": {}}]


def test_an_unknown_code_on_another_chip_changes_nothing_on_the_first() -> None:
    """EX-57."""
    unknown = "80ABCDEF"
    state = after(healthy(), [seen(OCCUR, unknown, severity=Severity.CRITICAL)])
    first = [{"health": "Unhealthy", "codes": {unknown: [T, "SeparateNPU"]}}]
    assert said(state, 0) == first, "as upstream, until the resync"
    state = after(state, [seen(PRESENT, unknown, 1, T + 5_000)], T + 5_000)
    upstream = [
        {"health": "Healthy", "codes": {unknown: [at, "NotHandleFault"]}} for at in (T, T + 5_000)
    ]
    check("device-plugin/EX-57", different(upstream, said(state, 0, 1)))
