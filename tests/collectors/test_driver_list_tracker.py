"""Details of codes in lists, and lists that are not complete."""

from __future__ import annotations

import pytest

from collectors.driver_list_tracker import LAG_SECONDS, Key, ListedCode, ListTracker
from contract.codes.levels import Severity
from contract.observation import Assertion, Observation, Subject
from tests.collectors.scripted import word

HERE = Subject("switch", 1, "2/0/3")
THERE = Subject("switch", 1, "4/0/5")
CODE = "[0x00f1fef5,155912,cpu,na]"
KEY = HERE, CODE
OTHER = THERE, CODE


def seen(assertion: Assertion, subject: Subject = HERE) -> Observation:
    return Observation("switch", subject, CODE, assertion, 1000, Severity.MAJOR, 900, 7)


def tracker(*tracked: tuple[Subject, str]) -> ListTracker:
    return ListTracker("switch", tracked)


def test_present_carries_what_the_list_contains() -> None:
    (report,) = tracker().observe_list({KEY: ListedCode(Severity.CRITICAL, 800)}, 0.0, 5000)
    assert report == Observation(
        "switch", HERE, CODE, Assertion.PRESENT, 5000, Severity.CRITICAL, 800
    )


def test_a_list_without_a_time_keeps_that_of_the_event() -> None:
    known = tracker()
    known.apply_event(seen(Assertion.OCCUR), 0.0, list_is_blind=False)
    known.apply_event(seen(Assertion.RECOVER), 1.0, list_is_blind=False)
    (report,) = known.observe_list({KEY: ListedCode()}, 1.0 + LAG_SECONDS, 5000)
    assert isinstance(report, Observation)
    assert (report.assertion, report.driver_raised_at_ms) == (Assertion.PRESENT, 900)
    assert report.text == "still listed after its recovery"


def test_code_missing_in_a_list_in_between_is_listed_anew() -> None:
    known = tracker()
    known.apply_event(seen(Assertion.OCCUR), 0.0, list_is_blind=False)
    known.apply_event(seen(Assertion.RECOVER), 1.0, list_is_blind=False)
    assert known.observe_list({}, 1.0 + LAG_SECONDS, 0) == []
    (report,) = known.observe_list({KEY: ListedCode()}, 6.0, 5000)
    assert report == Observation("switch", HERE, CODE, Assertion.PRESENT, 5000, anew=True)


def test_code_that_no_complete_list_lacked_may_have_lasted() -> None:
    known = tracker()
    known.apply_event(seen(Assertion.RECOVER), 0.0, list_is_blind=False)
    assert known.observe_list({}, LAG_SECONDS, 0, complete=False) == []
    (report,) = known.observe_list({KEY: ListedCode()}, 6.0, 5000)
    assert report == Observation("switch", HERE, CODE, Assertion.PRESENT, 5000)


def test_subjects_do_not_disturb_each_other() -> None:
    known = tracker(KEY, OTHER)
    assert known.apply_event(seen(Assertion.OCCUR, THERE), 9.0, list_is_blind=False) != []
    assert [word(report) for report in known.observe_list({}, 10.0, 0)] == [
        f"switch 1 2/0/3 absent {CODE}"
    ]
    assert known.next_check() == 9.0 + LAG_SECONDS


def test_incomplete_list_ends_no_code() -> None:
    known = tracker(KEY)
    assert known.observe_list({OTHER: ListedCode()}, 0.0, 0, complete=False) != []
    assert known.observe_list({OTHER: ListedCode()}, 1.0, 0, complete=False) == []
    assert [word(report) for report in known.observe_list({OTHER: ListedCode()}, 2.0, 0)] == [
        f"switch 1 2/0/3 absent {CODE}"
    ]


def test_an_incomplete_list_releases_a_recovery_that_waited() -> None:
    known = tracker(KEY)
    assert known.apply_event(seen(Assertion.RECOVER), 0.0, list_is_blind=True) == []
    assert known.observe_list({}, 5.0, 0, complete=False) == [seen(Assertion.RECOVER)]
    assert known.states == {}


def test_an_incomplete_list_forgets_what_recovered() -> None:
    known = tracker()
    known.apply_event(seen(Assertion.RECOVER), 0.0, list_is_blind=False)
    assert known.observe_list({}, 1.0, 0, complete=False) == []
    assert known.next_check() == LAG_SECONDS
    assert known.observe_list({}, LAG_SECONDS, 0, complete=False) == []
    assert (known.next_check(), known.states) == (None, {})


def test_expected_notice_that_lasts_is_found_by_the_list() -> None:
    known = tracker()
    known.expect(KEY, 0.0)
    assert known.next_check() == LAG_SECONDS
    assert known.observe_list({KEY: ListedCode()}, 1.0, 0) == []
    (report,) = known.observe_list({KEY: ListedCode()}, LAG_SECONDS, 0)
    assert report == Observation("switch", HERE, CODE, Assertion.PRESENT, 0)
    assert known.next_check() is None


def test_a_recovery_before_the_start_is_not_compared_with_a_late_list() -> None:
    noted = tracker()
    noted.note_changes({}, {KEY: 9_500}, 0.0, 10_000)
    assert noted.observe_list({KEY: ListedCode()}, 0.1, 10_100) == []
    assert noted.next_check() == LAG_SECONDS - 0.5
    (report,) = noted.observe_list({KEY: ListedCode()}, LAG_SECONDS - 0.5, 11_500)
    assert isinstance(report, Observation)
    assert (report.assertion, report.text) == (Assertion.PRESENT, "still listed after its recovery")


@pytest.mark.parametrize("ended", [{}, {KEY: 9_000}], ids=["first", "again"])
def test_a_fault_that_began_before_the_start_is_not_ended_by_a_late_list(
    ended: dict[Key, int],
) -> None:
    noted = ListTracker("switch", [KEY])
    noted.note_changes({KEY: 9_500}, ended, 0.0, 10_000)
    assert noted.observe_list({}, 0.1, 10_100) == []
    assert noted.next_check() == LAG_SECONDS - 0.5
    (report,) = noted.observe_list({}, LAG_SECONDS - 0.5, 11_500)
    assert isinstance(report, Observation)
    assert report.assertion == Assertion.ABSENT


@pytest.mark.parametrize("now_ms", [10_000 + int(1000 * LAG_SECONDS), 99_000])
def test_a_recovery_older_than_the_lag_does_not_count(now_ms: int) -> None:
    noted = tracker()
    noted.note_changes({}, {KEY: 10_000}, 0.0, now_ms)
    assert noted.states == {}


def test_a_recovery_of_a_clock_that_was_ahead_counts_from_the_start() -> None:
    noted = tracker()
    noted.note_changes({}, {KEY: 3_600_000}, 5.0, 1_000)
    assert noted.next_check() == 5.0 + LAG_SECONDS
