"""Short ways to write reports, states and inventories in tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.policy.state import Change, PolicyState
from agent.policy.step import step
from contract.codes.catalogue import shipped
from contract.observation import Assertion, Observation, Report, SourceAnswered, chip_subject
from dcmi_shim.values import Chip, Inventory, SuperPod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.policy.step import Input
    from contract.codes.catalogue import Catalogue
    from contract.codes.levels import Severity

T = 1_700_000_000_000
SOURCE = "chip-faults"
TOOL = "links"
SOURCES = (SOURCE, TOOL)
NODE = "node-1"
CHIPS = (Chip(0, 0, 0, 0), Chip(1, 1, 0, 1))
POD = SuperPod(7, 384, 3, 5, 9, 1)


def seen(
    assertion: Assertion,
    code: str,
    chip: int = 0,
    at: int = T,
    severity: Severity | None = None,
    serial: int | None = None,
    raised: int | None = None,
    source: str = SOURCE,
) -> Observation:
    return Observation(
        source=source,
        subject=chip_subject(chip),
        code=code,
        assertion=assertion,
        seen_at_ms=at,
        severity=severity,
        driver_raised_at_ms=raised,
        serial=serial,
    )


def answered(*chips: int, at: int = T) -> list[Report]:
    return [SourceAnswered(SOURCE, chip_subject(chip), at) for chip in chips]


def healthy(chips: int = 2) -> PolicyState:
    return after(PolicyState(NODE, "boot"), answered(*range(chips)))


def after(
    state: PolicyState, inputs: Sequence[Input], now: int = T, tables: Catalogue | None = None
) -> PolicyState:
    return step(state, inputs, now, tables or shipped())[0]


def changes(state: PolicyState, inputs: Sequence[Input], now: int = T) -> tuple[Change, ...]:
    return step(state, inputs, now, shipped())[1]


def inventory(chips: int = 2, family: str = "Ascend910B") -> Inventory:
    return Inventory(
        chips=tuple(Chip(n, n, n, 0) for n in range(chips)),
        family=family,
        chip_name="910B3",
        board_id=None,
        driver_version=None,
        super_pod=None,
        library="test",
    )


def inventory_of(family: str, name: str, board: int | None = None) -> Inventory:
    return Inventory(CHIPS, family, name, board, "24.1.rc3", None, "library")
