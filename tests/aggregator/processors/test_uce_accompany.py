"""Companions of UCE faults: windows to the millisecond, wrong clocks, and forgetting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from aggregator.processors.state_types import NO_DEVICE_STATE, DeviceState
from tests.aggregator.processors.cases import T, chip, codes, one, process, record

if TYPE_CHECKING:
    from contract.documents.cluster_device import DeviceRecord

AIC, AIV, UCE = "80C98009", "80CB8009", "80E01801"


def companion(time_ms: int, code: str = AIV) -> DeviceRecord:
    return record(one(1, "RestartRequest", code, time_ms), unhealthy=(1,))


def uce(time_ms: int, *more: tuple[str, int]) -> DeviceRecord:
    faults = [one(1, "RestartRequest", code, at_ms) for code, at_ms in more]
    return record(one(1, "RestartBusiness", UCE, time_ms), *faults, unhealthy=(1,))


@pytest.mark.parametrize("code", [AIC, AIV])
@pytest.mark.parametrize(("apart_ms", "shown"), [(-5001, 1), (-5000, 0), (5000, 0), (5001, 1)])
def test_five_seconds_around_the_uce_fault(code: str, apart_ms: int, shown: int) -> None:
    done = process(uce(T, (code, T + apart_ms)), T + 60_000)
    assert len(done.record.faults) == 1 + shown
    assert done.due_ms is None


def test_undecided_for_five_seconds_then_shown() -> None:
    reported = companion(T)
    first = process(reported, T + 100)
    assert (codes(first.record), first.due_ms) == ([], T + 5001)
    assert process(reported, T + 5000, state=first.state).record.faults == ()
    over = process(reported, T + 5001, state=first.state)
    assert (over.record.faults, over.hidden) == (reported.faults, ())
    assert over.record.unhealthy == reported.unhealthy
    assert over.record.recovering == ()


def test_a_uce_fault_that_comes_in_time_decides() -> None:
    first = process(companion(T), T)
    both = process(uce(T + 3000, (AIV, T)), T + 3000, state=first.state)
    assert codes(both.record) == [f"1:{UCE}"]
    alone = process(companion(T), T + 90_000, state=both.state)
    assert codes(alone.record) == []
    assert alone.state.uce == {chip(1): T + 3000}
    assert alone.record.recovering == (chip(1),)


def test_an_undecided_fault_that_ended_leaves_nothing() -> None:
    first = process(companion(T), T)
    gone = process(record(), T + 6000, state=first.state)
    assert gone.record == record()
    assert gone.state == NO_DEVICE_STATE


def test_a_uce_fault_is_forgotten_a_minute_later() -> None:
    first = process(uce(T), T)
    assert first.due_ms is None
    ended = process(record(), T + 1000, state=first.state)
    assert (ended.state.uce, ended.due_ms) == ({chip(1): T}, T + 60_000)
    assert process(companion(T + 2000), T + 59_000, state=ended.state).record.faults == ()
    assert process(record(), T + 60_000, state=ended.state).state == NO_DEVICE_STATE


@pytest.mark.parametrize(("ahead_ms", "counts"), [(60_000, True), (60_001, False)])
def test_a_uce_fault_of_a_clock_that_runs_ahead_counts_for_a_minute(
    ahead_ms: int, counts: bool
) -> None:
    state = DeviceState(uce={chip(1): T + ahead_ms})
    assert process(record(), T, state=state).state == (state if counts else NO_DEVICE_STATE)


@pytest.mark.parametrize("ahead_ms", [3_600_000, 6000])
def test_a_node_whose_clock_runs_ahead_hides_its_fault_no_longer(ahead_ms: int) -> None:
    reported = companion(T + ahead_ms)
    first = process(reported, T)
    assert first.due_ms == T + 5001
    assert process(reported, T + 5001, state=first.state).record.faults == reported.faults


def test_one_that_comes_again_while_it_is_listed_is_undecided_anew() -> None:
    first = process(companion(T), T)
    shown = process(companion(T), T + 10_000, state=first.state)
    assert codes(shown.record) == [f"1:{AIV}"]
    again = process(companion(T + 19_000), T + 20_000, state=shown.state)
    assert (codes(again.record), again.due_ms) == ([], T + 24_001)
    with_uce = process(uce(T + 21_000, (AIV, T + 19_000)), T + 22_000, state=again.state)
    assert codes(with_uce.record) == [f"1:{UCE}"]
    kept = msgspec.json.decode(msgspec.json.encode(again.state), type=DeviceState)
    over = process(companion(T + 19_000), T + 24_001, state=kept)
    assert codes(over.record) == [f"1:{AIV}"]
    ahead = process(companion(T + 3_600_000), T + 30_000, state=over.state)
    assert ahead.due_ms == T + 35_001, "also where the node's clock was set ahead"
    assert codes(process(companion(T + 3_600_000), T + 35_001, state=ahead.state).record) != []


def test_a_fault_of_another_chip_decides_nothing() -> None:
    reported = record(
        one(0, "RestartBusiness", UCE, T), one(1, "RestartRequest", AIC, T), unhealthy=(0, 1)
    )
    assert codes(process(reported, T + 5001).record) == [f"0:{UCE}", f"1:{AIC}"]


def test_without_either_code_nothing_is_touched() -> None:
    reported = record(one(1, "RestartRequest", "80CB8002", T), unhealthy=(1,))
    done = process(reported, T)
    assert done.record is reported or done.record == reported
    assert done.state == DeviceState(received={chip(1): {"80CB8002": T}})
