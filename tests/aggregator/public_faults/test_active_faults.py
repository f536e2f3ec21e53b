"""Occur, recover and once: the rules of five seconds, messages that overtake, restarts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aggregator.public_faults import active_faults as ledger_module
from aggregator.public_faults.active_faults import ActiveFaults
from aggregator.public_faults.values import FaultOutcome, PublicFaultReport, Rows, read_rows
from service.clock import Instant
from tests.aggregator.public_faults.messages import REPORTED_MS, at
from tests.parts.examples import examples

LEVEL = "SeparateNPU"


def report_of(
    assertion: str,
    reported: float = 0,
    seconds: float = 0,
    name: str = "fault-0001",
    node: str = "n1",
) -> PublicFaultReport:
    reported_ms = REPORTED_MS + int(reported * 1000)
    received_ms = at(seconds).wall_ms
    return PublicFaultReport(
        node, "", "CCAE", name, "NPU", "220001001", assertion, (0,), 1, reported_ms, received_ms
    )


def apply(
    ledger: ActiveFaults, assertion: str, seconds: float, reported: float = 0
) -> FaultOutcome:
    ledger.step(at(seconds))
    now = at(seconds)
    return ledger.apply_report(report_of(assertion, reported, seconds), LEVEL, now, placed=True)


def count_at(ledger: ActiveFaults, seconds: float) -> int:
    ledger.step(at(seconds))
    return ledger.count


@pytest.fixture
def ledger() -> ActiveFaults:
    return ActiveFaults(Rows())


def test_a_fault_stands_until_it_recovers(ledger: ActiveFaults) -> None:
    assert apply(ledger, "occur", 0) is FaultOutcome.ADDED
    assert ledger.next_due_ms() is None
    assert count_at(ledger, 1e6) == 1
    assert apply(ledger, "recover", 1e6) is FaultOutcome.ENDED
    assert ledger.count == 0


def test_a_fault_stands_for_five_seconds_at_least(ledger: ActiveFaults) -> None:
    apply(ledger, "occur", 0)
    assert apply(ledger, "recover", 1) is FaultOutcome.ENDING
    assert ledger.next_due_ms() == 5000
    assert count_at(ledger, 4.999) == 1
    assert count_at(ledger, 5) == 0


def test_a_one_off_fault_holds_for_five_seconds(ledger: ActiveFaults) -> None:
    assert apply(ledger, "once", 0) is FaultOutcome.ADDED
    assert count_at(ledger, 4.999) == 1
    assert count_at(ledger, 5) == 0


def test_repeated_report_does_not_change_a_fault(ledger: ActiveFaults) -> None:
    apply(ledger, "occur", 0)
    ledger.dirty.clear()
    assert apply(ledger, "occur", 1, reported=1) is FaultOutcome.KNOWN
    assert apply(ledger, "once", 2, reported=2) is FaultOutcome.KNOWN
    assert count_at(ledger, 100) == 1
    assert not ledger.dirty


def test_a_recovery_of_what_is_not_known_kills_nothing_later(ledger: ActiveFaults) -> None:
    """Cover defect B23: upstream deletes faults that occur within five seconds."""
    assert apply(ledger, "recover", 0) is FaultOutcome.ABSENT
    assert apply(ledger, "occur", 1) is FaultOutcome.ADDED
    assert count_at(ledger, 100) == 1


def test_a_recovery_that_overtakes_its_occurrence_ends_it_and_no_later_one(
    ledger: ActiveFaults,
) -> None:
    apply(ledger, "recover", 0, reported=1)
    assert apply(ledger, "occur", 0.5, reported=0) is FaultOutcome.OVERTAKEN
    assert ledger.count == 0
    assert apply(ledger, "occur", 2, reported=2) is FaultOutcome.ADDED
    assert count_at(ledger, 100) == 1


def test_an_occurrence_that_overtakes_the_recovery_before_it_stands(ledger: ActiveFaults) -> None:
    apply(ledger, "occur", 0, reported=0)
    apply(ledger, "occur", 10, reported=10)
    assert apply(ledger, "recover", 11, reported=9) is FaultOutcome.OVERTAKEN
    assert count_at(ledger, 100) == 1


def test_a_fault_that_occurs_again_while_it_ends_stands(ledger: ActiveFaults) -> None:
    apply(ledger, "occur", 0)
    apply(ledger, "recover", 1)
    assert apply(ledger, "occur", 2) is FaultOutcome.ADDED
    assert count_at(ledger, 100) == 1


def test_a_fault_may_occur_after_it_was_reported_once(ledger: ActiveFaults) -> None:
    apply(ledger, "once", 0)
    assert apply(ledger, "occur", 2) is FaultOutcome.ADDED
    assert count_at(ledger, 100) == 1


@pytest.mark.parametrize(("back_seconds", "wait_seconds"), [(61, 1), (3600, 1), (31, 30)])
def test_a_clock_that_was_set_back_is_no_overtaking(
    ledger: ActiveFaults, back_seconds: float, wait_seconds: float
) -> None:
    apply(ledger, "occur", 0, reported=0)
    assert (
        apply(ledger, "recover", wait_seconds, reported=-back_seconds) is not FaultOutcome.OVERTAKEN
    )
    assert count_at(ledger, 100) == 0


def test_ended_fault_is_forgotten_after_a_minute(ledger: ActiveFaults) -> None:
    apply(ledger, "recover", 0)
    assert ledger.next_due_ms() == 60_000
    ledger.step(at(60))
    assert ledger.next_due_ms() is None


def test_our_clock_may_be_set_back(ledger: ActiveFaults) -> None:
    apply(ledger, "occur", 0)
    hour_ago = at(1)._replace(wall_ms=at(-3600).wall_ms)
    ledger.apply_report(report_of("recover", 1, -3600), LEVEL, hour_ago, placed=True)
    assert ledger.next_due_ms() == 6000
    ledger.step(at(6))
    assert ledger.count == 0


def test_there_are_so_many_faults_at_most(
    ledger: ActiveFaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MAX_FAULTS", 2)
    outcomes = [
        ledger.apply_report(
            report_of("occur", name=f"fault-000{number}"), LEVEL, at(0), placed=True
        )
        for number in range(3)
    ]
    assert outcomes == [FaultOutcome.ADDED, FaultOutcome.ADDED, FaultOutcome.FULL]
    ledger.apply_report(
        report_of("recover", seconds=10, name="fault-0000"), LEVEL, at(10), placed=True
    )
    again = report_of("occur", seconds=11, name="fault-0002")
    assert ledger.apply_report(again, LEVEL, at(11), placed=True) is FaultOutcome.ADDED


def test_one_node_leaves_room_for_the_others(
    ledger: ActiveFaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MAX_FAULTS_PER_NODE", 2)

    def occurs(number: int, node: str, seconds: float = 0) -> FaultOutcome:
        one = report_of("occur", name=f"fault-000{number}", node=node, seconds=seconds)
        return ledger.apply_report(one, LEVEL, at(seconds), placed=True)

    assert [occurs(number, "n1") for number in range(3)] == [
        FaultOutcome.ADDED,
        FaultOutcome.ADDED,
        FaultOutcome.FULL,
    ]
    assert ledger.full("n1") == "2 faults of node 'n1' stand"
    assert occurs(1, "n1") is FaultOutcome.KNOWN
    assert occurs(2, "n2") is FaultOutcome.ADDED
    ledger.apply_report(report_of("recover", 10, 10, "fault-0000"), LEVEL, at(10), placed=True)
    assert occurs(2, "n1", 11) is FaultOutcome.ADDED


def test_a_node_without_faults_leaves_nothing(ledger: ActiveFaults) -> None:
    """Cover defect B22."""
    apply(ledger, "occur", 0)
    apply(ledger, "recover", 10)
    assert not ledger.nodes


def restarted(rows: Rows, now: Instant) -> tuple[ActiveFaults, Rows]:
    """Return the state of another process that begins with what the one before has kept."""
    names = {f"{number:02}" for number in range(32)}
    texts = {name: text for name in names if (text := rows.text(name)) is not None}
    state, unreadable = read_rows(texts)
    assert not unreadable
    again = Rows()
    ledger = ActiveFaults(again)
    ledger.restore_faults(state.faults, state.over, now)
    again.compare(texts)
    assert not again.pop_changed()
    return ledger, again


def test_the_newest_report_is_restored_after_a_restart() -> None:
    rows = Rows()
    ledger = ActiveFaults(rows)
    apply(ledger, "occur", 0, reported=0)
    apply(ledger, "occur", 10, reported=10)
    again, _ = restarted(rows, at(11))
    assert apply(again, "recover", 11, reported=9) is FaultOutcome.OVERTAKEN


steps = st.lists(
    st.tuples(
        st.sampled_from(["occur", "recover", "once", "restart"]),
        st.integers(0, 8000),
        st.integers(0, 20_000),
    ),
    max_size=25,
)


@pytest.mark.slow
@given(steps)
@examples(400)
def test_the_newest_report_holds(history: list[tuple[str, int, int]]) -> None:
    """Apply messages in any order, with restarts in between, each up to 20 s after it was sent. The
    newest time counts, of two equal ones the later message. A one-off report is of a fault that
    does not hold.
    """
    rows = Rows()
    ledger = ActiveFaults(rows)
    clock_ms, newest_ms, stands, since_ms, until_ms = 0, 0, False, 0, 0
    for assertion, pause_ms, late_ms in history:
        clock_ms += pause_ms
        now = Instant(REPORTED_MS + clock_ms, clock_ms)
        ledger.step(now)
        if assertion == "restart":
            ledger, rows = restarted(rows, now)
            continue
        reported_ms = REPORTED_MS + clock_ms - late_ms
        reported = replace(
            report_of(assertion), reported_at_ms=reported_ms, received_at_ms=now.wall_ms
        )
        ledger.apply_report(reported, LEVEL, now, placed=True)
        if reported_ms >= newest_ms:
            newest_ms = reported_ms
            if assertion == "recover":
                if stands or clock_ms < until_ms:
                    stands, until_ms = False, since_ms + 5000
            elif not stands:
                stands, since_ms, until_ms = assertion == "occur", clock_ms, clock_ms + 5000
        assert bool(ledger.count) == (stands or clock_ms < until_ms)
    ledger.step(Instant(REPORTED_MS + clock_ms + 5000, clock_ms + 5000))
    assert bool(ledger.count) == stands
