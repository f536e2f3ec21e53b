"""Properties of every history, not only of the written examples."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agent.chip_allocation import ChipAllocation
from agent.policy.state import Adopted, ChangeKind, PolicyState
from agent.policy.step import Input, step
from agent.publishing.chip_lists import render
from contract.codes.catalogue import shipped
from contract.codes.families import FAMILIES
from contract.codes.levels import ChipLevel, most_serious
from contract.documents.device_info import DeviceInfo, encode, verify_published
from contract.observation import (
    chip_subject,
)
from tests.agent.policy.builders import T, inventory
from tests.agent.policy.histories import (
    CHIPS,
    History,
    input_at,
    observation_at,
    time_of,
)
from tests.parts.examples import examples

EMPTY = PolicyState("node-1", "boot")

MANY = examples(400)
SEEDS = st.integers(0, 2**32)
HISTORIES = st.builds(History, SEEDS, st.integers(10, 60)).map(History.inputs)


def played(inputs: list[Input]) -> PolicyState:
    state = EMPTY
    for item in inputs:
        state = step(state, [item], time_of(item), shipped())[0]
    return state


def document(state: PolicyState) -> DeviceInfo:
    return render(state, inventory(CHIPS), 1)


@MANY
@given(HISTORIES, SEEDS)
def test_reporting_it_twice_changes_nothing(inputs: list[Input], seed: int) -> None:
    now = time_of(inputs[-1]) if inputs else T
    report = input_at(now, Random(seed))
    once = step(played(inputs), [report], now, shipped())[0]
    assert step(once, [report], now, shipped())[0] is once


@MANY
@given(HISTORIES, SEEDS)
def test_reports_about_different_codes_commute(inputs: list[Input], seed: int) -> None:
    state = played(inputs)
    now = time_of(inputs[-1]) if inputs else T
    rng = Random(seed)
    chips = [chip_subject(rng.randrange(2)) for _ in "ab"]
    first, second = (observation_at(now, chip, rng) for chip in chips)
    if (first.subject, first.code) == (second.subject, second.code):
        return
    forth = step(state, [first, second], now, shipped())[0]
    back = step(state, [second, first], now, shipped())[0]
    assert in_any_code_order(document(forth)) == in_any_code_order(document(back))


def in_any_code_order(info: DeviceInfo) -> object:
    """Sort the codes of each fault, whose order of arrival varies within a millisecond."""
    built = msgspec.to_builtins(info)
    for fault in built["faults"]:
        fault["fault_code"] = sorted(fault["fault_code"].split(","))
    return built


@MANY
@given(HISTORIES, SEEDS)
def test_state_read_from_the_journal_is_the_state(inputs: list[Input], seed: int) -> None:
    """Whatever the batches were, and whether or not a snapshot lies between."""
    state, changed = EMPTY, 0
    rest, rng = inputs, Random(seed)
    while rest:
        size = rng.randint(1, 9)
        batch, rest = rest[:size], rest[size:]
        stored = msgspec.json.decode(msgspec.json.encode(batch), type=list[Input])
        snapshot = msgspec.json.decode(msgspec.json.encode(state), type=PolicyState)
        state, changes = step(snapshot, stored, time_of(batch[-1]), shipped())
        changed += len(changes)
    assert state == played(inputs)
    assert changed == len(all_changes(inputs))


def all_changes(inputs: list[Input]) -> list[ChangeKind]:
    kinds, state = [], EMPTY
    for item in inputs:
        state, changes = step(state, [item], time_of(item), shipped())
        kinds += [change.kind for change in changes]
    return kinds


@MANY
@given(HISTORIES)
def test_no_level_without_a_live_reason_and_no_reason_without_a_level(inputs: list[Input]) -> None:
    state = played(inputs)
    for known in state.chips.values():
        for code, fault in known.faults.items():
            assert code == fault.code != "8C2FA009"
            reasons = [upgrade.level for upgrade in known.upgrades if upgrade.code == code]
            own = shipped().level_of(code, fault.severity)
            assert fault.level == most_serious([own, *reasons])
            assert fault.revision <= state.revision
        for upgrade in known.upgrades:
            lasting = upgrade.code in known.faults and not known.faults[upgrade.code].once
            assert (upgrade.gone_since_ms is None) == lasting
        assert (known.level is ChipLevel.NORMAL_NPU) == (not known.faults and not known.upgrades)
    info = document(state)
    for fault_entry in info.faults:
        assert fault_entry.fault_time_and_level_map is not None
        assert set(fault_entry.fault_code.split(",")) == set(fault_entry.fault_time_and_level_map)
    seriously = {
        fault.npu_name
        for fault in info.faults
        if fault.fault_type == "CardUnhealthy"
        and fault.fault_level not in ("NotHandleFault", "SubHealthFault")
    }
    assert set(info.unhealthy) == seriously
    assert not set(info.free) & set(info.unhealthy)


@MANY
@given(HISTORIES)
def test_every_episode_begins_once_and_ends_at_most_once(inputs: list[Input]) -> None:
    state, live, raised = EMPTY, set[str](), set[tuple[str, str]]()
    begun = set[str]()
    for item in inputs:
        state, changes = step(state, [item], time_of(item), shipped())
        for change in changes:
            match change.kind:
                case ChangeKind.BEGAN:
                    assert change.episode not in begun
                    begun.add(change.episode)
                    live.add(change.episode)
                case ChangeKind.RETURNED:
                    assert change.episode in begun - live
                    live.add(change.episode)
                case ChangeKind.ENDED:
                    live.remove(change.episode)
                case ChangeKind.CHANGED | ChangeKind.REPEATED:
                    assert change.episode in live
                case ChangeKind.UPGRADED:
                    assert change.episode in live or isinstance(item, Adopted)
                    assert change.upgrade is not None
                    raised.add((change.episode, change.upgrade.kind))
                case ChangeKind.RELEASED:
                    assert change.upgrade is not None
                    raised.remove((change.episode, change.upgrade.kind))
        assert live == {f.episode for k in state.chips.values() for f in k.faults.values()}
        assert raised == {(up.episode, up.kind) for k in state.chips.values() for up in k.upgrades}


@MANY
@given(HISTORIES, st.sampled_from(sorted(FAMILIES)), st.frozensets(st.integers(0, CHIPS - 1)))
def test_rendered_document_is_decoded_to_the_same(
    inputs: list[Input], family: str, used: frozenset[int]
) -> None:
    names = frozenset(FAMILIES[family].device_name(chip) for chip in used)
    info = render(played(inputs), inventory(CHIPS, family), 1_700_000_100, ChipAllocation(names))
    read = verify_published(encode(info, FAMILIES[family]), "node-1")
    assert read == info
