"""Chips that are silent at a start, missing, moved, replaced or forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.policy.state import (
    Acknowledged,
    Adopted,
    ChangeKind,
    ChipsListed,
    ChipsRemembered,
    Forgotten,
    restarted,
)
from agent.policy.step import next_deadline_ms
from agent.publishing.chip_lists import render
from contract.codes.catalogue import shipped
from contract.codes.chip_codes import LINK_DOWN
from contract.codes.levels import ChipLevel
from contract.codes.policies import AUTOFILL_CODE, FAULT_AUTOFILL, FAULT_FREQUENCY
from contract.listed_chips import ListedChip
from contract.names import device_info_name
from contract.observation import Assertion, SourceBlind, chip_subject
from tests.agent.policy.builders import (
    NODE,
    SOURCE,
    TOOL,
    T,
    after,
    answered,
    changes,
    healthy,
    inventory,
)
from tests.agent.policy.builders import seen as report

if TYPE_CHECKING:
    from agent.policy.state import PolicyState
    from agent.policy.step import Input
    from contract.documents.device_info import DeviceInfo

FAULT, COUNTED, HOUR = "80E01801", "80E18005", 3_600_000


def listed(*dies: str, at: int = T, first: bool = False) -> ChipsListed:
    chips = tuple(ListedChip(number, number, 0, die) for number, die in enumerate(dies))
    return ChipsListed(chips, "Ascend910B", at, (-2, -2, 0), first)


def started(state: PolicyState) -> PolicyState:
    return restarted(state, "boot")


def known(*dies: str) -> PolicyState:
    return after(healthy(len(dies)), [listed(*dies)])


def shown(state: PolicyState, chips: int) -> DeviceInfo:
    return render(state, inventory(chips), T // 1000)


def codes(state: PolicyState) -> dict[int, set[str]]:
    return {chip: set(one.faults) for chip, one in state.chips.items() if one.faults}


def test_nothing_of_a_silent_chip_ends_by_time() -> None:
    state = after(
        known("A", "B"),
        [report(Assertion.OCCUR, FAULT, 1, serial=2), report(Assertion.ONCE, "80E21007", 1)],
    )
    state = after(state, [report(Assertion.RECOVER, FAULT, 1, T + 1, serial=1)], T + 1)
    acknowledged = Acknowledged(device_info_name(NODE), state.revision, T + 2)
    state = started(after(state, [acknowledged], T + 2))
    assert state.chips[1].faults[FAULT].unconfirmed_at_ms == T + 1
    assert next_deadline_ms(state, shipped()) is None
    assert after(state, [], T + HOUR) is state
    awake = after(state, answered(1, at=T + HOUR), T + HOUR)
    assert codes(awake) == {1: {FAULT}}, "what was shown long enough is over"
    assert not codes(after(awake, [], T + HOUR + 5_000)), "its first audit did not find it"
    found = [report(Assertion.PRESENT, FAULT, 1, T + HOUR + 10)]
    assert codes(after(after(awake, found, T + HOUR + 10), [], T + 2 * HOUR)) == {1: {FAULT}}


def test_a_reason_of_a_silent_chip_is_not_released_by_its_rule() -> None:
    down = [report(Assertion.OCCUR, LINK_DOWN, 1)]
    state = after(after(known("A", "B"), down), [], T + 20_001)
    state = after(state, [report(Assertion.RECOVER, LINK_DOWN, 1, T + 30_000)], T + 30_000)
    assert state.chips[1].level is ChipLevel.PRE_SEPARATE_NPU
    silent = after(started(state), [], T + HOUR)
    assert silent.chips[1].level is ChipLevel.PRE_SEPARATE_NPU
    awake = after(silent, answered(1, at=T + HOUR), T + HOUR)
    assert awake.chips[1].upgrades, "its first audits may find the code again"
    assert not after(awake, [], T + HOUR + 5_000).chips[1].upgrades


def test_no_other_source_ends_what_a_silent_chip_has() -> None:
    found = [report(Assertion.PRESENT, LINK_DOWN, 1, source=TOOL)]
    state = started(after(known("A", "B"), found))
    gone = [report(Assertion.ABSENT, LINK_DOWN, 1, T + 1, source=TOOL)]
    silent = after(after(state, gone, T + 1), [], T + HOUR)
    assert codes(silent) == {1: {LINK_DOWN}}
    awake = after(silent, answered(1, at=T + HOUR), T + HOUR)
    assert not codes(after(awake, [], T + HOUR + 6_001))


def test_its_own_list_counts_at_once() -> None:
    state = started(after(known("A", "B"), [report(Assertion.OCCUR, FAULT, 1)]))
    assert not codes(after(state, [report(Assertion.ABSENT, FAULT, 1, T + 1)], T + 1))


def test_a_missing_chip_keeps_its_entry_and_is_not_free() -> None:
    state = started(after(known("A", "B", "C"), [report(Assertion.OCCUR, FAULT, 2)]))
    document = shown(after(state, [listed("A")]), 1)
    assert document.free == ("Ascend910-0",)
    assert document.unhealthy == ("Ascend910-2",)
    assert [entry.npu_name for entry in document.faults] == ["Ascend910-2"]


def test_a_listed_chip_is_free_until_it_is_known_to_be_silent() -> None:
    state = after(started(known("A", "B")), [listed("A", "B", first=True)])
    assert shown(state, 2).free == ("Ascend910-0", "Ascend910-1")
    blind = after(state, [SourceBlind(SOURCE, chip_subject(1), T, "hangs")])
    assert shown(blind, 2).free == ("Ascend910-0",)
    awake = after(blind, answered(1))
    later = after(awake, [SourceBlind(SOURCE, chip_subject(1), T, "hangs")])
    assert shown(later, 2).free == ("Ascend910-0", "Ascend910-1"), "a blind one keeps its state"


def test_while_a_driver_hangs_as_a_whole_nothing_is_known_of_its_chips() -> None:
    hang = [SourceBlind(SOURCE, chip_subject(chip), T, "hangs", True) for chip in range(2)]
    state = after(started(known("A", "B")), [listed("A", "B", first=True), *hang])
    assert shown(state, 2).free == ("Ascend910-0", "Ascend910-1")
    assert shown(after(state, answered(0)), 2).free == ("Ascend910-0",), "it answers about one"


def test_blindness_for_want_of_a_driver_is_over_with_its_first_list() -> None:
    blind = [SourceBlind(SOURCE, chip_subject(chip), T, "no driver") for chip in range(2)]
    state = after(started(known("A", "B")), [*blind, listed("A", first=True)])
    assert not state.chips[0].blind
    assert state.chips[1].blind


def test_faults_counts_and_isolation_follow_the_die() -> None:
    isolated = Adopted(
        chip_subject(2), COUNTED, FAULT_FREQUENCY, T, T, ChipLevel.MANUALLY_SEPARATE_NPU
    )
    inputs: list[Input] = [report(Assertion.OCCUR, FAULT, 1), isolated]
    inputs.append(report(Assertion.OCCUR, COUNTED, 1))
    state = after(known("A", "B", "C"), inputs)
    moved = after(started(state), [listed("A", "C")])
    assert codes(moved) == {2: {FAULT, COUNTED}}
    assert COUNTED in moved.chips[2].counters
    assert moved.chips[1].isolated
    assert shown(moved, 2).manually_separated == "Ascend910-1"
    assert [chip for chip, one in moved.chips.items() if one.place and one.place.die == "B"] == [2]


def test_a_replaced_card_ends_faults_and_counts_but_no_isolation() -> None:
    isolated = Adopted(
        chip_subject(1), AUTOFILL_CODE, FAULT_AUTOFILL, T, T, ChipLevel.MANUALLY_SEPARATE_NPU
    )
    inputs: list[Input] = [report(Assertion.OCCUR, FAULT, 1), isolated]
    inputs.append(report(Assertion.OCCUR, COUNTED, 1))
    state = started(after(known("A", "B"), inputs))
    because = {one.because for one in changes(state, [listed("A", "X")])}
    assert because == {"its card was replaced by another one"}
    replaced = after(state, [listed("A", "X")])
    assert (codes(replaced), replaced.chips[1].counters) == ({}, {})
    assert replaced.chips[1].isolated
    assert not replaced.chips[1].was_read, "nobody has read the new one"


def test_the_end_of_an_isolation_is_recorded_where_another_known_chip_has_the_id_now() -> None:
    isolated = Adopted(
        chip_subject(1), AUTOFILL_CODE, FAULT_AUTOFILL, T, T, ChipLevel.MANUALLY_SEPARATE_NPU
    )
    state = started(after(known("A", "B"), [isolated]))
    (change,) = changes(state, [listed("X", "A")])
    assert (change.kind, change.subject) == (ChangeKind.RELEASED, chip_subject(1))
    assert not after(state, [listed("X", "A")]).chips[1].isolated


def test_a_forgotten_chip_is_gone_with_everything() -> None:
    isolated = Adopted(
        chip_subject(1), AUTOFILL_CODE, FAULT_AUTOFILL, T, T, ChipLevel.MANUALLY_SEPARATE_NPU
    )
    state = after(known("A", "B"), [report(Assertion.OCCUR, FAULT, 1), isolated])
    named = Acknowledged(device_info_name(NODE), state.revision, T, (1,))
    state = after(started(after(state, [named])), [listed("A")])
    forgotten = Forgotten(chip_subject(1), T, "taken out")
    assert {one.because for one in changes(state, [forgotten])} == {"taken out"}
    left = after(state, [forgotten])
    assert (set(left.chips), left.named) == ({0}, ())
    assert shown(left, 1).manually_separated == ""


def test_chip_of_a_document_is_known_and_silent() -> None:
    inputs: list[Input] = [ChipsRemembered(chip_subject(1), T), report(Assertion.PRESENT, FAULT, 1)]
    state = after(known("A"), inputs)
    assert (state.chips[1].was_read, state.chips[1].silent) == (True, True)
    assert shown(state, 1).unhealthy == ("Ascend910-1",)
    assert after(state, [ChipsRemembered(chip_subject(0), T)]) is state, "it answered"


def test_the_same_list_changes_nothing() -> None:
    state = known("A", "B")
    again = after(state, [listed("A", "B")])
    assert (again, again.revision) == (state, state.revision)
