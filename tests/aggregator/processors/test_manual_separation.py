"""Which new faults count, and when that separates a chip; release by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aggregator.inputs.node_context import NodeContext
from aggregator.processors.frequent_fault_separation import (
    KEPT_MS,
    MAX_WAITING,
    WINDOW_MS,
    FaultWindows,
    ManualSeparation,
    Separated,
    SeparationPolicy,
)
from aggregator.processors.state_types import NO_DEVICE_STATE, DeviceState, Occurrence
from tests.aggregator.processors.cases import T, chip, node_context, one, pod, process, record

if TYPE_CHECKING:
    from contract.documents.cluster_device import DeviceRecord

HOUR = 3_600_000
ON = SeparationPolicy(enabled=True)


def new(
    reported: DeviceRecord,
    known: NodeContext,
    state: DeviceState = NO_DEVICE_STATE,
    now_ms: int = T,
) -> tuple[list[str], DeviceState]:
    """Return the faults of a record that count, and the state."""
    done = process(reported, now_ms, known, state, counting=True)
    return [f"{one.chip}:{one.code}:{one.job}" for one in done.occurrences], done.state


def faulty(level: str = "RestartNPU", code: str = "80C98000") -> DeviceRecord:
    return record(one(0, level, code), unhealthy=(0,))


def test_a_fault_counts_once_until_it_goes_and_comes_or_changes_its_level() -> None:
    mine = node_context(pod(0))
    first, state = new(faulty(), mine)
    assert first == ["Ascend910-0:80C98000:job1"]
    again, state = new(faulty(), mine, state, T + 1)
    assert again == []
    worse, state = new(faulty("SeparateNPU"), mine, state, T + 2)
    assert worse == first
    _, state = new(record(), mine, state, T + 3)
    assert state == NO_DEVICE_STATE
    assert new(faulty(), mine, state, T + 4)[0] == first


def test_faults_that_never_count() -> None:
    mine = node_context(pod(0))
    for level in ("NotHandleFault", "SubHealthFault"):
        assert new(record(one(0, level, "80C98000")), mine)[0] == []
    manual = record(one(0, "ManuallySeparateNPU", ""), unhealthy=(0,))
    assert new(manual, mine)[0] == []
    assert new(faulty(), node_context(pod(1)))[0] == [], "nobody uses the chip"
    assert new(faulty(), node_context(pod(0, job="")))[0] == [], "its user is no job"


def test_a_code_twice_on_a_chip_at_two_levels_counts_once() -> None:
    twice = record(
        one(0, "RestartNPU", "80C98000"),
        one(0, "SeparateNPU", "80C98000", kind="CardNetwork"),
        unhealthy=(0,),
        network=(0,),
    )
    first, state = new(twice, node_context(pod(0)))
    assert len(first) == 1
    assert new(twice, node_context(pod(0)), state)[0] == []


def test_nothing_is_new_until_usage_of_the_chips_is_known() -> None:
    unlisted, state = new(faulty(), NodeContext())
    assert (unlisted, state.seen) == ([], {})
    assert len(new(faulty(), node_context(pod(0)), state)[0]) == 1


def test_a_hidden_fault_counts_when_it_is_shown() -> None:
    mine = node_context(pod(0), codes="80C98000:10")
    hidden, state = new(faulty(), mine)
    assert hidden == []
    assert len(new(faulty(), mine, state, T + 10_001)[0]) == 1


def at(ms: int, number: int = 0, code: str = "A", node: str = "n1", job: str = "j") -> Occurrence:
    return Occurrence(T + ms, node, chip(number), code, job)


def judged(*occurrences: Occurrence, now_ms: int = WINDOW_MS) -> list[Occurrence]:
    windows = FaultWindows()
    windows.add(occurrences)
    return windows.step(T + now_ms)[0]


def test_a_fault_waits_for_thirty_seconds() -> None:
    windows = FaultWindows()
    windows.add([at(0)])
    assert windows.next_due_ms() == T + WINDOW_MS
    assert windows.step(T + WINDOW_MS - 1) == ([], frozenset())
    assert windows.step(T + WINDOW_MS) == ([at(0)], frozenset({"n1"}))
    assert windows.next_due_ms() is None


def test_the_same_code_on_two_chips_is_the_softwares_fault() -> None:
    assert judged(at(0), at(30_000, 1)) == []
    assert judged(at(0), at(10, node="n2")) == []
    assert judged(at(0), at(1, 1), at(2, 2)) == []
    assert judged(at(0), at(10, 1, "B")) == [at(0)]
    assert judged(at(0), at(10, 1, job="k")) == [at(0)]


def test_only_the_window_counts_and_not_everything_that_is_queued() -> None:
    assert judged(at(0), at(30_001, 1), now_ms=30_001) == [at(0)]
    assert judged(at(0), at(30_001, 1), now_ms=90_000) == [at(0), at(30_001, 1)]


def test_a_repeated_fault_of_one_chip_counts_each_time_within_the_window() -> None:
    assert judged(at(0), at(10), at(20)) == [at(0), at(10), at(20)]


def test_levels_that_change_within_the_window_count_each_time() -> None:
    mine, state, windows = node_context(pod(0)), NO_DEVICE_STATE, FaultWindows()
    for ms, level in enumerate(("RestartBusiness", "RestartNPU", "RestartBusiness")):
        done = process(faulty(level), T + ms, mine, state, counting=True)
        state = done.state
        windows.add(done.occurrences)
    counted, _ = windows.step(T + WINDOW_MS)
    assert [one.at_ms for one in counted] == [T, T, T]
    assert list(windows.waiting) == []
    assert separation().count(counted) == {"node1"}


def test_a_clock_that_was_set_back_does_not_hold_a_fault_for_ever() -> None:
    windows = FaultWindows()
    windows.add([at(0)])
    windows.set_back(T - HOUR)
    assert windows.next_due_ms() == T - HOUR + WINDOW_MS


@pytest.mark.slow
def test_too_many_are_not_kept() -> None:
    windows = FaultWindows()
    windows.add(at(number, job=str(number)) for number in range(MAX_WAITING + 3))
    assert windows.lost_total == 3
    assert len(list(windows.waiting)) == MAX_WAITING
    windows.clear()
    assert list(windows.waiting) == []


def separation(policy: SeparationPolicy = ON) -> ManualSeparation:
    found = ManualSeparation()
    found.set_policy(policy)
    return found


def test_three_times_in_a_day_separate_a_chip() -> None:
    one_day = separation()
    assert one_day.count([at(0), at(HOUR)]) == frozenset()
    assert one_day.count([at(24 * HOUR - 1)]) == {"n1"}
    assert one_day.of("n1") == {chip(0)}
    assert one_day.chips == {"n1": {chip(0): Separated({"A": T + 24 * HOUR - 1})}}
    assert one_day.counts == {}, "and counting begins anew"
    slow = separation()
    assert slow.count([at(0), at(HOUR), at(24 * HOUR)]) == frozenset()
    assert slow.count([at(24 * HOUR + 1)]) == {"n1"}


def test_codes_are_counted_each_by_itself() -> None:
    found = separation()
    assert found.count([at(0), at(1, code="B"), at(2, 1), at(3, node="n2")]) == frozenset()
    assert found.count([at(4), at(5)]) == {"n1"}


def test_a_threshold_of_one_separates_at_once() -> None:
    assert separation(SeparationPolicy(True, threshold=1)).count([at(0)]) == {"n1"}


def test_release_by_time_code_by_code() -> None:
    found = separation(SeparationPolicy(True, threshold=1, free_hours=48))
    found.count([at(0), at(HOUR, code="B")])
    assert found.next_release_ms() == T + 48 * HOUR
    assert found.release(T + 48 * HOUR - 1) == frozenset()
    assert found.release(T + 48 * HOUR) == {"n1"}
    assert found.of("n1") == {chip(0)}
    found.count([at(2 * HOUR, code="B")])
    assert found.release(T + 49 * HOUR) == frozenset(), "the last time counts"
    assert found.release(T + 50 * HOUR) == {"n1"}
    assert (found.of("n1"), found.next_release_ms()) == (frozenset(), None)


def test_never_released_by_time() -> None:
    found = separation(SeparationPolicy(True, threshold=1, free_hours=-1))
    found.count([at(0)])
    assert found.next_release_ms() is None
    assert found.release(T + 10_000 * HOUR) == frozenset()


def test_a_policy_that_is_off_forgets_everything() -> None:
    found = separation(SeparationPolicy(True, threshold=1))
    found.count([at(0)])
    found.changed.clear()
    assert found.set_policy(SeparationPolicy()) == {"n1"}
    assert (found.chips, found.counts, found.changed) == ({}, {}, {"n1"})


def test_counters_end_after_720_hours() -> None:
    found = separation()
    found.count([at(0), at(HOUR)])
    found.prune(T + KEPT_MS)
    assert found.counts == {"n1": {chip(0): {"A": (T + HOUR,)}}}
    found.prune(T + KEPT_MS + HOUR)
    assert found.counts == {}


def test_a_chip_with_ever_new_codes_does_not_fill_the_memory() -> None:
    many = [at(number, code=f"{number:08X}") for number in range(1100)]
    found = separation()
    found.count([*many, *many[-1:]])
    assert found.counts["n1"][chip(0)].keys() == {one.code for one in many[100:]}
    found.count(many[-1:])
    assert found.of("n1") == {chip(0)}, "the newest counted on"
    at_once = separation(SeparationPolicy(True, threshold=1))
    at_once.count(many)
    assert at_once.chips["n1"][chip(0)].codes.keys() == {one.code for one in many[100:]}
