"""Bus errors of cores around a multi-bit error of the memory (``device-plugin#2.4``)."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from agent.policy.state import Acknowledged, ChangeKind, PolicyState
from agent.policy.step import ONCE_VISIBLE_MS, next_deadline_ms, step
from contract.codes.catalogue import Catalogue, shipped
from contract.codes.chip_codes import AIC_BUS, AIV_BUS, HBM_MULTI_BIT
from contract.codes.levels import ChipLevel
from contract.codes.policies import DurationPolicy
from contract.observation import Assertion
from tests.agent.policy.builders import NODE, T, after, healthy, seen

OCCUR, RECOVER, ONCE = Assertion.OCCUR, Assertion.RECOVER, Assertion.ONCE
PRESENT, ABSENT = Assertion.PRESENT, Assertion.ABSENT
RULE = DurationPolicy(600_000, 60_000, ChipLevel.RESTART_NPU)
TABLES = replace(shipped(), durations={HBM_MULTI_BIT: RULE})


def codes(state: PolicyState, chip: int = 0) -> list[str]:
    return list(state.chips[chip].faults)


def test_ex_37_memory_explains_an_earlier_core() -> None:
    state = after(healthy(), [seen(OCCUR, AIC_BUS)], T + 3_000, TABLES)
    assert codes(state) == []
    state = after(state, [seen(OCCUR, HBM_MULTI_BIT, at=T + 2_500)], T + 60_000, TABLES)
    assert codes(state) == [HBM_MULTI_BIT]
    assert state.chips[0].faults[HBM_MULTI_BIT].level == "RestartBusiness"
    assert state.chips[0].held_back == {}


@pytest.mark.parametrize(
    ("memory", "core", "apart_ms", "explained"),
    [
        (OCCUR, AIC_BUS, -5_000, False),
        (OCCUR, AIC_BUS, -4_999, True),
        (OCCUR, AIC_BUS, 4_999, True),
        (OCCUR, AIC_BUS, 5_000, False),
        (OCCUR, AIV_BUS, -4_999, True),
        (OCCUR, AIV_BUS, 4_999, True),
        (ONCE, AIC_BUS, -4_999, True),
        (ONCE, AIC_BUS, 4_999, True),
        (PRESENT, AIC_BUS, -4_999, True),
        (PRESENT, AIC_BUS, 4_999, True),
    ],
)
def test_less_than_five_seconds_on_either_side(
    memory: Assertion, core: str, apart_ms: int, explained: bool
) -> None:
    both = [seen(memory, HBM_MULTI_BIT, at=T + 10_000), seen(OCCUR, core, at=T + 10_000 + apart_ms)]
    both.sort(key=lambda item: item.seen_at_ms)
    state = after(healthy(), both, T + 60_000, TABLES)
    assert (core in codes(state)) is not explained


def test_unexplained_occurrence_begins_late_with_its_own_time() -> None:
    state = after(healthy(), [seen(OCCUR, AIC_BUS, serial=3)], T, TABLES)
    assert next_deadline_ms(state, TABLES) == T + 5_001
    state = msgspec.json.decode(msgspec.json.encode(state), type=PolicyState)
    assert after(state, [seen(OCCUR, AIC_BUS, at=T + 4_000)], T + 5_000, TABLES) is state
    state, (change,) = step(state, [], T + 5_001, TABLES)
    assert (change.kind, change.at_ms) == (ChangeKind.BEGAN, T)
    assert state.chips[0].faults[AIC_BUS].first_seen_ms == T
    assert state.chips[0].faults[AIC_BUS].serial == 3


def test_ex_60_recovery_is_never_swallowed() -> None:
    """Upstream keeps the fault for ever (defect K37)."""
    state = after(healthy(), [seen(OCCUR, AIC_BUS)], T + 60_000, TABLES)
    assert codes(state) == [AIC_BUS]
    both = [seen(OCCUR, HBM_MULTI_BIT, at=T + 60_000), seen(RECOVER, AIC_BUS, at=T + 60_100)]
    assert codes(after(state, both, T + 60_100, TABLES)) == [HBM_MULTI_BIT]


@pytest.mark.parametrize("over", [RECOVER, ABSENT])
def test_held_back_occurrence_that_recovered_is_reported(over: Assertion) -> None:
    inputs = [seen(OCCUR, AIC_BUS), seen(over, AIC_BUS, at=T + 900)]
    state, found = step(healthy(), inputs, T + 60_000, TABLES)
    assert [change.kind for change in found] == [ChangeKind.BEGAN, ChangeKind.ENDED]
    assert codes(state) == []


def test_chips_are_on_their_own() -> None:
    both = [seen(OCCUR, HBM_MULTI_BIT, 1), seen(OCCUR, AIC_BUS)]
    assert codes(after(healthy(), both, T + 5_001, TABLES)) == [AIC_BUS]


@pytest.mark.parametrize("tables", [shipped(), replace(shipped(), durations={})])
def test_without_a_duration_rule_for_the_memory_all_are_shown_at_once(tables: Catalogue) -> None:
    inputs = [seen(OCCUR, code) for code in (AIC_BUS, HBM_MULTI_BIT, AIV_BUS)]
    assert codes(after(healthy(), inputs, T, tables)) == [AIC_BUS, HBM_MULTI_BIT, AIV_BUS]


def test_one_off_event_of_a_core_is_shown_and_released() -> None:
    state = after(healthy(), [seen(ONCE, AIC_BUS)], T + 5_001, TABLES)
    assert codes(state) == [AIC_BUS]
    shown = Acknowledged(f"mindx-dl-deviceinfo-{NODE}", state.revision, T + 5_100)
    assert codes(after(state, [shown], T + 5_100 + ONCE_VISIBLE_MS, TABLES)) == []
    lasting = [seen(ONCE, AIC_BUS), seen(OCCUR, AIC_BUS, at=T + 1_000)]
    state = after(healthy(), lasting, T + 6_001, TABLES)
    assert not state.chips[0].faults[AIC_BUS].once


@pytest.mark.parametrize("cut", range(5))
def test_batches_make_no_difference(cut: int) -> None:
    inputs = [
        seen(OCCUR, AIC_BUS),
        seen(OCCUR, AIV_BUS, at=T + 3_000),
        seen(OCCUR, HBM_MULTI_BIT, at=T + 7_000),
        seen(ONCE, AIC_BUS, at=T + 8_000),
        seen(RECOVER, AIV_BUS, at=T + 20_000),
    ]
    whole = after(healthy(), inputs, T + 20_000, TABLES)
    state = after(healthy(), inputs[:cut], inputs[max(cut - 1, 0)].seen_at_ms, TABLES)
    assert after(state, inputs[cut:], T + 20_000, TABLES) == whole
    assert codes(whole) == [AIC_BUS, HBM_MULTI_BIT]
