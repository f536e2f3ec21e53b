"""What holds for every history, not only for the ones somebody thought of."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.policy import Input, step
from agent.render import render
from agent.state import Acknowledged, ChangeKind, State
from contract.catalogue import shipped
from contract.device_info import DeviceInfo, encode, verify_published
from contract.families import FAMILIES
from contract.levels import ChipLevel, Severity
from contract.observation import (
    Assertion,
    Gap,
    Observation,
    SourceAnswered,
    SourceBlind,
    chip_subject,
)
from tests.policy.builders import SOURCE, T, inventory

CODES = ("80E3A201", "80E21007", "81078603", "8118043C", "80ABCDEF", "8C2FA009")
CHIPS = 3
EMPTY = State("node-1", "boot")
V = TypeVar("V")


def maybe(values: st.SearchStrategy[V]) -> st.SearchStrategy[V | None]:
    return st.none() | values


@st.composite
def histories(draw: st.DrawFn, max_size: int = 25) -> list[Input]:
    """Reports and acknowledgements, each a little later than the one before."""
    now = T
    inputs: list[Input] = []
    for _ in range(draw(st.integers(0, max_size))):
        now += draw(st.sampled_from((0, 1, 300, 2_000, 6_000)))
        inputs.append(draw(inputs_at(now)))
    return inputs


def inputs_at(now: int) -> st.SearchStrategy[Input]:
    subject = st.integers(0, CHIPS - 1).map(chip_subject)
    observation = st.builds(
        Observation,
        source=st.just(SOURCE),
        subject=subject,
        code=st.sampled_from(CODES),
        assertion=st.sampled_from(Assertion),
        seen_at_ms=st.just(now),
        severity=maybe(st.sampled_from(Severity)),
        driver_raised_at_ms=maybe(st.integers(now - 3_000, now)),
        serial=maybe(st.integers(0, 9)),
    )
    other = st.one_of(
        st.builds(SourceBlind, st.just(SOURCE), subject, st.just(now), st.just("hangs")),
        st.builds(SourceAnswered, st.just(SOURCE), subject, st.just(now)),
        st.builds(Gap, st.just(SOURCE), st.just(now), st.just("queue full")),
        st.builds(
            Acknowledged,
            st.just("mindx-dl-deviceinfo-node-1"),
            st.integers(0, 25),
            st.just(now),
        ),
    )
    return st.one_of(observation, observation, observation, other)


def time_of(item: Input) -> int:
    match item:
        case Observation():
            return item.seen_at_ms
        case SourceBlind():
            return item.since_ms
    return item.at_ms


def played(inputs: list[Input]) -> State:
    state = EMPTY
    for item in inputs:
        state = step(state, [item], time_of(item), shipped())[0]
    return state


def document(state: State) -> DeviceInfo:
    return render(state, inventory(CHIPS), 1)


@given(histories(), st.data())
def test_saying_it_twice_changes_nothing(inputs: list[Input], data: st.DataObject) -> None:
    state = played(inputs)
    now = time_of(inputs[-1]) if inputs else T
    report = data.draw(inputs_at(now))
    once = step(state, [report], now, shipped())[0]
    assert step(once, [report], now, shipped())[0] is once


@given(histories(), st.data())
def test_reports_about_different_codes_commute(inputs: list[Input], data: st.DataObject) -> None:
    state = played(inputs)
    now = time_of(inputs[-1]) if inputs else T
    first = data.draw(inputs_at(now).filter(lambda item: isinstance(item, Observation)))
    second = data.draw(inputs_at(now).filter(lambda item: isinstance(item, Observation)))
    assert isinstance(first, Observation)
    assert isinstance(second, Observation)
    if (first.subject, first.code) == (second.subject, second.code):
        return
    one = document(step(state, [first, second], now, shipped())[0])
    other = document(step(state, [second, first], now, shipped())[0])
    assert in_any_code_order(one) == in_any_code_order(other)


def in_any_code_order(info: DeviceInfo) -> object:
    """Codes seen in one millisecond are listed in order of arrival; everything else is fixed."""
    built = msgspec.to_builtins(info)
    for fault in built["faults"]:
        fault["fault_code"] = sorted(fault["fault_code"].split(","))
    return built


@given(histories(), st.data())
def test_state_read_from_the_journal_is_the_state(inputs: list[Input], data: st.DataObject) -> None:
    """Whatever the batches were, and whether or not a snapshot lies between."""
    state, changed = EMPTY, 0
    rest = inputs
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        batch, rest = rest[:size], rest[size:]
        stored = msgspec.json.decode(msgspec.json.encode(batch), type=list[Input])
        snapshot = msgspec.json.decode(msgspec.json.encode(state), type=State)
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


@given(histories(60))
def test_no_level_without_a_live_reason_and_no_reason_without_a_level(inputs: list[Input]) -> None:
    state = played(inputs)
    for known in state.chips.values():
        for code, fault in known.faults.items():
            assert code == fault.code != "8C2FA009"
            assert fault.level is shipped().level_of(code, fault.severity)
            assert fault.revision <= state.revision
        assert (known.level is ChipLevel.NORMAL_NPU) == (not known.faults)
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


@given(histories(60))
def test_every_episode_begins_once_and_ends_at_most_once(inputs: list[Input]) -> None:
    state, live = EMPTY, set[str]()
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
        assert live == {f.episode for k in state.chips.values() for f in k.faults.values()}


@settings(max_examples=50)
@given(histories(), st.sampled_from(sorted(FAMILIES)), st.frozensets(st.integers(0, CHIPS - 1)))
def test_what_is_written_is_read_back(
    inputs: list[Input], family: str, used: frozenset[int]
) -> None:
    names = frozenset(FAMILIES[family].device_name(chip) for chip in used)
    info = render(played(inputs), inventory(CHIPS, family), 1_700_000_100, used=names)
    read = verify_published(encode(info, FAMILIES[family]), "node-1")
    assert read == info
