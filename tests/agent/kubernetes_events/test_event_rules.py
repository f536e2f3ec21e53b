"""Which reports become Events: all of them, and none twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.kubernetes_events.event_rules import EventRules
from agent.policy.state import PolicyState, tracked
from agent.policy.step import PolicyCall, step
from contract.codes.catalogue import shipped
from contract.codes.levels import Severity
from contract.observation import Assertion, Observation, SourceAnswered, chip_subject

if TYPE_CHECKING:
    from contract.observation import Report

SEVERE, ONE_OFF, LINK = "80E3A201", "8C204E00", "81078603"


class Chips:
    """A policy and the rules for its Events."""

    def __init__(self) -> None:
        self.state = PolicyState("n1", "boot")
        self.rules = EventRules()
        self.now_ms = 1_700_000_000_000
        self.serial = 0
        self.take(SourceAnswered("chip-faults", chip_subject(3), self.now_ms))

    def take(self, *inputs: Report, later_ms: int = 1000) -> list[tuple[str, str, str]]:
        self.now_ms += later_ms
        self.state, changes = step(self.state, inputs, self.now_ms, shipped())
        fault_changes = self.rules.fault_changes(PolicyCall(inputs, changes, shipped(), 1))
        return [(one.reason, one.code, one.action) for one in fault_changes]

    def see(
        self,
        assertion: Assertion,
        code: str = SEVERE,
        severity: Severity | None = None,
        *,
        source: str = "chip-faults",
        serial: int | None = None,
        raised_ms: int | None = None,
    ) -> Observation:
        event = assertion not in (Assertion.PRESENT, Assertion.ABSENT)
        self.serial += 1
        return Observation(
            source,
            chip_subject(3),
            code,
            assertion,
            self.now_ms,
            severity,
            (raised_ms or self.now_ms) if event else None,
            (serial or self.serial) if event else None,
        )


def test_the_example_of_the_specification() -> None:
    """EX-43."""
    chips = Chips()
    assert chips.take(chips.see(Assertion.OCCUR)) == [("Occur", SEVERE, "SeparateNPU")]
    assert chips.take(chips.see(Assertion.ONCE, ONE_OFF)) == [
        ("Notice", ONE_OFF, "RestartBusiness")
    ]
    assert chips.take(chips.see(Assertion.RECOVER)) == [("Recovery", SEVERE, "SeparateNPU")]


def test_a_code_that_occurs_again_is_reported_again_but_an_event_that_comes_twice_is_not() -> None:
    chips = Chips()
    first = chips.see(Assertion.OCCUR)
    assert len(chips.take(first)) == 1
    assert chips.take(first) == []
    assert len(chips.take(chips.see(Assertion.OCCUR))) == 1
    gone = chips.see(Assertion.RECOVER)
    assert len(chips.take(gone, gone)) == 1


def test_a_recovery_of_what_never_occurred_is_reported() -> None:
    chips = Chips()
    assert chips.take(chips.see(Assertion.RECOVER)) == [("Recovery", SEVERE, "SeparateNPU")]


def test_fault_found_by_an_audit_is_reported_once() -> None:
    chips = Chips()
    assert chips.take(chips.see(Assertion.PRESENT)) == [("Occur", SEVERE, "SeparateNPU")]
    assert chips.take(chips.see(Assertion.PRESENT)) == []
    assert chips.take(chips.see(Assertion.ABSENT)) == [("Recovery", SEVERE, "SeparateNPU")]
    assert chips.take(chips.see(Assertion.ABSENT)) == []


def test_a_second_witness_proves_nothing_new() -> None:
    chips = Chips()
    assert len(chips.take(chips.see(Assertion.OCCUR, LINK))) == 1
    assert chips.take(chips.see(Assertion.PRESENT, LINK, source="links")) == []
    assert chips.take(chips.see(Assertion.ABSENT, LINK, source="links")) == []
    assert len(chips.take(chips.see(Assertion.RECOVER, LINK))) == 1


def test_an_unconfirmed_recovery_is_sent_when_it_is_reported() -> None:
    chips = Chips()
    chips.take(chips.see(Assertion.OCCUR, serial=50))
    old_ms = chips.now_ms - 60_000
    unconfirmed = chips.see(Assertion.RECOVER, serial=7, raised_ms=old_ms)
    assert [one[0] for one in chips.take(unconfirmed)] == ["Recovery"]
    assert chips.take(later_ms=10_000) == []
    assert not chips.state.chips[3].faults


def test_a_recovery_that_an_audit_disproves_is_an_occurrence() -> None:
    chips = Chips()
    chips.take(chips.see(Assertion.OCCUR))
    chips.take(chips.see(Assertion.RECOVER))
    assert [one[0] for one in chips.take(chips.see(Assertion.PRESENT))] == ["Occur"]


def test_an_unconfirmed_recovery_by_two_sources_is_one_when_time_decides() -> None:
    chips = Chips()
    chips.take(SourceAnswered("links", chip_subject(3), chips.now_ms))
    chips.take(chips.see(Assertion.OCCUR, LINK))
    assert chips.take(chips.see(Assertion.ABSENT, LINK)) == []
    assert [one[0] for one in chips.take(later_ms=10_000)] == ["Recovery"]


def test_an_occurrence_that_comes_after_its_recovery_does_not_recover_again() -> None:
    chips = Chips()
    late = chips.see(Assertion.OCCUR)
    over = chips.see(Assertion.RECOVER, raised_ms=chips.now_ms + 300)
    assert len(chips.take(over)) == 1
    assert [one[0] for one in chips.take(late)] == ["Occur"]
    assert not chips.state.chips[3].faults


def test_several_reports_of_a_code_in_one_batch_are_all_sent() -> None:
    chips = Chips()
    batch = [
        chips.see(assertion) for assertion in (Assertion.OCCUR, Assertion.RECOVER, Assertion.OCCUR)
    ]
    assert [one[0] for one in chips.take(*batch)] == ["Occur", "Recovery", "Occur"]
    assert [one[0] for one in chips.take(chips.see(Assertion.RECOVER))] == ["Recovery"]


def test_a_recovery_has_the_level_of_its_occurrence() -> None:
    chips = Chips()
    unknown = "80ABCD11"
    occurred = chips.see(Assertion.OCCUR, unknown, Severity.CRITICAL)
    assert chips.take(occurred)[0][2] == "SeparateNPU"
    recovered = chips.see(Assertion.RECOVER, unknown, Severity.SUGGESTION)
    assert chips.take(recovered)[0][2] == "SeparateNPU"


def test_a_new_process_does_not_report_again_what_it_restored() -> None:
    chips = Chips()
    held = chips.see(Assertion.OCCUR)
    chips.take(held)
    assert tracked(chips.state, "chip-faults")
    chips.rules = EventRules()
    chips.rules.mark_faults_sent(chips.state)
    assert chips.take(chips.see(Assertion.PRESENT)) == []
    assert [one[0] for one in chips.take(chips.see(Assertion.ABSENT))] == ["Recovery"]


def test_the_end_of_a_reset_is_no_fault() -> None:
    chips = Chips()
    assert chips.take(chips.see(Assertion.ONCE, "8C2FA009")) == []


def test_the_time_is_the_events_own_where_its_clock_makes_sense() -> None:
    chips = Chips()
    raised_ms = chips.now_ms - 5000
    known = chips.see(Assertion.OCCUR, raised_ms=raised_ms)
    strange = chips.see(Assertion.OCCUR, raised_ms=7)
    call = PolicyCall([known, strange], (), shipped(), 1)
    assert [one.at_ms for one in chips.rules.fault_changes(call)] == [
        raised_ms,
        chips.now_ms,
    ]
