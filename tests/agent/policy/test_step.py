"""What a report does to the state: the rules of the policy one by one."""

from __future__ import annotations

import pytest

from agent.policy.state import (
    Acknowledged,
    Blindness,
    ChangeKind,
    PolicyState,
    recently_ended,
    tracked,
)
from agent.policy.step import ONCE_VISIBLE_MS, next_deadline_ms, step
from contract.codes.catalogue import shipped
from contract.codes.levels import ChipLevel, Severity
from contract.observation import (
    Assertion,
    Gap,
    SourceAnswered,
    SourceBlind,
    chip_subject,
)
from tests.agent.policy.builders import SOURCE, T, after, changes, healthy, seen

OCCUR, RECOVER, ONCE = Assertion.OCCUR, Assertion.RECOVER, Assertion.ONCE
PRESENT, ABSENT = Assertion.PRESENT, Assertion.ABSENT
KNOWN = "80E18005"
UNKNOWN = "80ABCDEF"
DOCUMENT = "mindx-dl-deviceinfo-node-1"


def codes(state: PolicyState, chip: int = 0) -> list[str]:
    return list(state.chips[chip].faults)


def test_occurrence_and_recovery_are_one_episode() -> None:
    state, began = step(healthy(), [seen(OCCUR, KNOWN)], T, shipped())
    state, ended = step(state, [seen(RECOVER, KNOWN, at=T + 1)], T + 1, shipped())
    assert codes(state) == []
    assert [(c.kind, c.old_level, c.new_level) for c in (*began, *ended)] == [
        (ChangeKind.BEGAN, None, ChipLevel.RESTART_NPU),
        (ChangeKind.ENDED, ChipLevel.RESTART_NPU, None),
    ]
    assert began[0].episode == ended[0].episode
    assert began[0].because == "80E18005 is RestartNPU in the level table"


def test_episodes_of_one_code_differ() -> None:
    reports = [seen(OCCUR, KNOWN), seen(RECOVER, KNOWN, at=T + 1), seen(OCCUR, KNOWN, at=T + 2)]
    found = changes(healthy(), reports)
    assert len({change.episode for change in found}) == 2
    other_node = step(PolicyState("node-2", "boot"), reports, T, shipped())[1]
    assert not {c.episode for c in found} & {c.episode for c in other_node}


@pytest.mark.parametrize("assertion", [OCCUR, PRESENT])
def test_code_that_holds_already_is_not_held_back(assertion: Assertion) -> None:
    state = after(healthy(), [seen(OCCUR, KNOWN)])
    again, found = step(state, [seen(assertion, KNOWN, at=T + 9)], T + 9, shipped())
    assert again is state
    assert found == ()


def test_absence_ends_a_fault_and_a_later_presence_is_a_new_one() -> None:
    state = after(healthy(), [seen(OCCUR, KNOWN)])
    found = changes(state, [seen(ABSENT, KNOWN, at=T + 1), seen(PRESENT, KNOWN, at=T + 2)])
    assert [change.kind for change in found] == [ChangeKind.ENDED, ChangeKind.BEGAN]
    assert found[0].episode != found[1].episode


def test_recovery_that_was_none_returns_with_its_first_time() -> None:
    state = after(healthy(), [seen(OCCUR, UNKNOWN, severity=Severity.MINOR)])
    episode = state.chips[0].faults[UNKNOWN].episode
    state = after(state, [seen(RECOVER, UNKNOWN, at=T + 5_000)])
    state, found = step(state, [seen(PRESENT, UNKNOWN, at=T + 7_000)], T + 7_000, shipped())
    fault = state.chips[0].faults[UNKNOWN]
    assert (fault.first_seen_ms, fault.episode) == (T, episode)
    assert (fault.severity, fault.level) == (Severity.MINOR, ChipLevel.NOT_HANDLE_FAULT)
    assert [(c.kind, c.episode) for c in found] == [(ChangeKind.RETURNED, episode)]


def test_presence_long_after_a_recovery_is_a_new_fault() -> None:
    state = after(healthy(), [seen(OCCUR, KNOWN), seen(RECOVER, KNOWN, at=T + 1)])
    state = after(state, [seen(PRESENT, KNOWN, at=T + 10_001)])
    assert state.chips[0].faults[KNOWN].first_seen_ms == T + 10_001


class TestOnce:
    def test_stays_until_acknowledged_for_a_while(self) -> None:
        state = after(healthy(), [seen(ONCE, KNOWN)])
        assert next_deadline_ms(state, shipped()) is None
        state = after(state, [Acknowledged(DOCUMENT, state.revision, T + 100)])
        assert next_deadline_ms(state, shipped()) == T + 100 + ONCE_VISIBLE_MS
        state = after(state, [Acknowledged(DOCUMENT, state.revision, T + 900)])
        assert next_deadline_ms(state, shipped()) == T + 100 + ONCE_VISIBLE_MS, (
            "the first one counts"
        )
        assert after(state, [], T + 99 + ONCE_VISIBLE_MS) is state
        state, found = step(state, [], T + 100 + ONCE_VISIBLE_MS, shipped())
        assert codes(state) == []
        assert [(c.kind, c.at_ms) for c in found] == [(ChangeKind.ENDED, T + 100 + ONCE_VISIBLE_MS)]
        assert next_deadline_ms(state, shipped()) is None

    @pytest.mark.parametrize(("document", "age"), [(DOCUMENT, 1), ("mindx-dl-nodeinfo-node-1", 0)])
    def test_is_not_released_by_a_document_that_did_not_show_it(
        self, document: str, age: int
    ) -> None:
        state = after(healthy(), [seen(ONCE, KNOWN)])
        state = after(state, [Acknowledged(document, state.revision - age, T)])
        assert next_deadline_ms(state, shipped()) is None

    @pytest.mark.parametrize("assertion", [RECOVER, ABSENT])
    def test_outlives_a_recovery_and_an_audit_that_does_not_list_it(
        self, assertion: Assertion
    ) -> None:
        state = after(healthy(), [seen(ONCE, KNOWN)])
        assert after(state, [seen(assertion, KNOWN, at=T + 1)]) is state

    @pytest.mark.parametrize("assertion", [OCCUR, PRESENT])
    def test_becomes_lasting_when_it_occurs(self, assertion: Assertion) -> None:
        state = after(healthy(), [seen(ONCE, KNOWN)])
        state = after(state, [Acknowledged(DOCUMENT, state.revision, T)])
        state, found = step(state, [seen(assertion, KNOWN, at=T + 1)], T + 1, shipped())
        assert [change.kind for change in found] == [ChangeKind.CHANGED]
        assert next_deadline_ms(state, shipped()) is None
        assert codes(after(state, [], T + 60_000)) == [KNOWN]
        assert codes(after(state, [seen(RECOVER, KNOWN, at=T + 2)])) == []

    @pytest.mark.parametrize("first", [OCCUR, ONCE])
    def test_of_a_code_that_holds_is_only_history(self, first: Assertion) -> None:
        state = after(healthy(), [seen(first, KNOWN)])
        again, found = step(state, [seen(ONCE, KNOWN, at=T + 1)], T + 1, shipped())
        assert again is state
        assert [change.kind for change in found] == [ChangeKind.REPEATED]


class TestSeverity:
    def test_of_an_event_beats_what_a_poll_brings(self) -> None:
        state = after(healthy(), [seen(OCCUR, UNKNOWN, severity=Severity.MINOR)])
        poll = seen(PRESENT, UNKNOWN, at=T + 1, severity=Severity.CRITICAL)
        assert after(state, [poll]) is state

    def test_belongs_to_the_chip_and_the_code(self) -> None:
        """Upstream's defect K08: a poll of chip 1 takes the severity of chip 0 away."""
        state = after(healthy(), [seen(OCCUR, UNKNOWN, 0, severity=Severity.MINOR)])
        state = after(state, [seen(PRESENT, UNKNOWN, 1, severity=Severity.SUGGESTION)])
        levels = [state.chips[chip].level for chip in (0, 1)]
        assert levels == [ChipLevel.NOT_HANDLE_FAULT, ChipLevel.SEPARATE_NPU]

    def test_of_a_later_event_changes_the_level(self) -> None:
        state = after(healthy(), [seen(PRESENT, UNKNOWN)])
        event = seen(OCCUR, UNKNOWN, at=T + 1, severity=Severity.MINOR)
        state, found = step(state, [event], T + 1, shipped())
        assert [(c.kind, c.old_level, c.new_level, c.severity) for c in found] == [
            (
                ChangeKind.CHANGED,
                ChipLevel.SEPARATE_NPU,
                ChipLevel.NOT_HANDLE_FAULT,
                Severity.MINOR,
            )
        ]
        assert state.chips[0].faults[UNKNOWN].first_seen_ms == T

    def test_of_a_polled_code_is_that_of_the_table(self) -> None:
        state = after(healthy(), [seen(PRESENT, "80E01801"), seen(PRESENT, UNKNOWN)])
        found = {c: f.severity for c, f in state.chips[0].faults.items()}
        assert found == {"80E01801": Severity.CRITICAL, UNKNOWN: None}

    @pytest.mark.parametrize("severity", [None, *Severity])
    def test_decides_whether_it_is_a_device_fault(self, severity: Severity | None) -> None:
        state, found = step(healthy(), [seen(OCCUR, UNKNOWN, severity=severity)], T, shipped())
        expected = severity in (Severity.MAJOR, Severity.CRITICAL)
        assert state.chips[0].faults[UNKNOWN].device_fault is expected
        assert found[0].device_fault is expected


class TestOrder:
    @pytest.mark.parametrize(
        ("serial", "raised"), [(1, None), (None, T - 9), (1, T - 9), (1, T), (0, T - 9)]
    )
    def test_old_recovery_does_not_end_a_newer_occurrence(
        self, serial: int | None, raised: int | None
    ) -> None:
        state = after(healthy(), [seen(OCCUR, KNOWN, serial=2, raised=T)])
        late = seen(RECOVER, KNOWN, at=T + 1, serial=serial, raised=raised)
        state, found = step(state, [late], T + 1, shipped())
        assert codes(state) == [KNOWN]
        assert found == ()
        confirmed = after(state, [seen(PRESENT, KNOWN, at=T + 2_000)])
        assert codes(after(confirmed, [], T + 60_000)) == [KNOWN]

    def test_recovery_that_looks_old_counts_when_no_audit_contradicts(self) -> None:
        """A driver's clock may be set back after a collector applied the recovery."""
        state = after(healthy(), [seen(OCCUR, KNOWN, raised=T)])
        state = after(state, [seen(RECOVER, KNOWN, at=T + 100, raised=T - 3_600_000)])
        assert next_deadline_ms(state, shipped()) == T + 6_100
        assert after(state, [], T + 6_099) is state
        state, found = step(state, [], T + 6_100, shipped())
        assert codes(state) == []
        assert [change.kind for change in found] == [ChangeKind.ENDED]
        state, found = step(state, [seen(PRESENT, KNOWN, at=T + 9_000)], T + 9_000, shipped())
        assert [change.kind for change in found] == [ChangeKind.RETURNED]
        assert next_deadline_ms(state, shipped()) is None

    @pytest.mark.parametrize(
        ("serial", "raised"), [(2, T), (None, None), (0, None), (3, None), (1, T + 9), (2, T - 9)]
    )
    def test_recovery_of_the_occurrence_or_without_order_ends_it(
        self, serial: int | None, raised: int | None
    ) -> None:
        state = after(healthy(), [seen(OCCUR, KNOWN, serial=2, raised=T)])
        end = seen(RECOVER, KNOWN, at=T + 1, serial=serial, raised=raised)
        assert codes(after(state, [end])) == []

    def test_latest_of_two_occurrences_outlives_the_recovery_of_the_first(self) -> None:
        state = after(
            healthy(),
            [
                seen(OCCUR, KNOWN, serial=1, raised=T),
                seen(OCCUR, KNOWN, at=T + 20, serial=2, raised=T + 20),
                seen(RECOVER, KNOWN, at=T + 30, serial=1, raised=T + 10),
            ],
        )
        assert codes(state) == [KNOWN]
        state = after(state, [seen(RECOVER, KNOWN, at=T + 40, serial=2, raised=T + 40)])
        assert codes(state) == []

    def test_recovery_before_its_own_occurrence_leaves_nothing(self) -> None:
        """Upstream's defect K10: such a code stays for ever."""
        reports = [
            seen(RECOVER, KNOWN, serial=1, raised=T + 10),
            seen(OCCUR, KNOWN, at=T + 20, serial=1, raised=T),
        ]
        state, found = step(healthy(), reports, T + 20, shipped())
        assert codes(state) == []
        assert [change.kind for change in found] == [ChangeKind.BEGAN, ChangeKind.ENDED]

    @pytest.mark.parametrize(("serial", "raised"), [(2, T + 20), (1, T + 20), (None, None)])
    def test_stray_recovery_does_not_hide_a_true_occurrence(
        self, serial: int | None, raised: int | None
    ) -> None:
        reports = [
            seen(RECOVER, KNOWN, serial=1, raised=T + 10),
            seen(OCCUR, KNOWN, at=T + 20, serial=serial, raised=raised),
        ]
        assert codes(after(healthy(), reports)) == [KNOWN]

    def test_occurrence_delivered_again_after_its_recovery_is_no_new_one(self) -> None:
        occurrence = seen(OCCUR, KNOWN, serial=1, raised=T)
        state = after(healthy(), [occurrence, seen(RECOVER, KNOWN, at=T + 5, raised=T + 5)])
        again, found = step(state, [occurrence], T + 6, shipped())
        assert again is state
        assert found == ()


def test_levels_of_known_and_unknown_codes_are_merged() -> None:
    """EX-09 without its defect K07: a harmless known code hides no unknown serious one."""
    state = after(
        healthy(), [seen(OCCUR, UNKNOWN, severity=Severity.MAJOR), seen(OCCUR, "80E21007")]
    )
    assert state.chips[0].level is ChipLevel.SEPARATE_NPU
    assert state.chips[1].level is ChipLevel.NORMAL_NPU


@pytest.mark.parametrize("assertion", list(Assertion))
def test_end_of_a_reset_is_no_fault(assertion: Assertion) -> None:
    state = healthy()
    assert after(state, [seen(assertion, "8C2FA009")]) is state


def test_blindness_begins_and_ends_and_keeps_the_faults() -> None:
    state = after(healthy(), [seen(OCCUR, KNOWN)])
    blind = SourceBlind(SOURCE, chip_subject(0), T + 1, "dcmi_get_device_health does not return")
    state = after(state, [blind])
    assert state.chips[0].blind == {SOURCE: Blindness(T + 1, blind.reason)}
    assert codes(state) == [KNOWN]
    assert after(state, [blind]) is state
    state = after(state, [SourceAnswered(SOURCE, chip_subject(0), T + 2)])
    assert state.chips[0].blind == {}
    assert after(state, [SourceAnswered(SOURCE, chip_subject(0), T + 3)]) is state


def test_a_gap_is_no_news_of_a_chip() -> None:
    state = healthy()
    assert after(state, [Gap(SOURCE, T, "queue full")]) is state


def test_tracked_faults_are_the_lasting_faults_of_the_source() -> None:
    state = after(healthy(), [seen(OCCUR, KNOWN, 1, at=T + 3), seen(ONCE, UNKNOWN)])
    assert tracked(state, SOURCE) == {(chip_subject(1), KNOWN): T + 3}
    assert tracked(state, "bmc") == {}


def test_recent_recoveries_are_those_of_the_source() -> None:
    state = after(healthy(), [seen(OCCUR, KNOWN, 1), seen(RECOVER, KNOWN, 1, at=T + 3)])
    assert recently_ended(state, SOURCE) == {(chip_subject(1), KNOWN): T + 3}
    assert recently_ended(state, "bmc") == {}
    # A recovery of a code that did not hold ended nothing.
    state = after(healthy(), [seen(RECOVER, KNOWN, 1)])
    assert recently_ended(state, SOURCE) == {}
