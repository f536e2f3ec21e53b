"""The tracked state of a link by its tool, step by step (times in seconds)."""

from __future__ import annotations

from collectors.links.tracker import LinkTracker
from contract.codes.chip_codes import LINK_DOWN
from contract.codes.levels import Severity
from contract.observation import Observation, chip_subject
from tests.collectors.scripted import word

CHIP = chip_subject(1)
DOWN, UP = {LINK_DOWN: True}, {LINK_DOWN: False}
ANSWERED = "chip 1 answered"
PRESENT, ABSENT = f"chip 1 present {LINK_DOWN}", f"chip 1 absent {LINK_DOWN}"


class Link:
    """The tracked state, and the reports of each step in words."""

    def __init__(self, *tracked: str) -> None:
        self.tracker = LinkTracker("links", CHIP, tracked)

    def answer(self, faults: dict[str, bool], at: float) -> list[str]:
        self.tracker.record_question(at)
        return [
            word(report)
            for report in self.tracker.observe_link_faults(faults, at, round(at * 1000))
        ]

    def check_at(self) -> float | None:
        return self.tracker.check_at

    def fail(self, reason: str) -> list[str]:
        return [word(report) for report in self.tracker.observe_failure(reason, 0)]


def test_only_differences_are_reported() -> None:
    reported = Link()
    assert reported.answer(UP, 0) == [ANSWERED]
    assert reported.answer(UP, 60) == []
    assert reported.answer(DOWN, 120) == [PRESENT]
    assert reported.answer(DOWN, 180) == []
    assert reported.answer(UP, 240) == [ABSENT]


def test_link_that_is_down_is_reported_as_minor() -> None:
    _, seen = LinkTracker("links", CHIP, ()).observe_link_faults(DOWN, 0, 5000)
    assert isinstance(seen, Observation)
    assert (seen.source, seen.severity, seen.seen_at_ms) == ("links", Severity.MINOR, 5000)
    assert seen.driver_raised_at_ms is None


def test_faults_tracked_before_a_restart_are_compared_with_the_list() -> None:
    assert Link(LINK_DOWN).answer(DOWN, 0) == [ANSWERED]
    assert Link(LINK_DOWN).answer(UP, 0) == [ANSWERED, ABSENT]


def test_blindness_is_logged_once_and_changes_nothing() -> None:
    reported = Link()
    assert reported.answer(DOWN, 0) == [ANSWERED, PRESENT]
    assert reported.fail("busy") == ["chip 1 blind: busy"]
    assert reported.fail("hangs") == []
    assert reported.answer(DOWN, 60) == [ANSWERED]
    assert reported.answer(DOWN, 120) == []


def test_a_link_that_is_still_down_after_a_recovery_returns() -> None:
    reported = Link()
    reported.answer(DOWN, 0)
    reported.tracker.apply_event(10)
    assert reported.check_at() == 12
    assert reported.answer(DOWN, 11.9) == []
    assert reported.check_at() == 12
    assert reported.answer(DOWN, 12) == [PRESENT]
    assert reported.check_at() is None
    assert reported.answer(DOWN, 60) == []


def test_the_answer_after_an_event_is_reported_even_if_it_is_no_news() -> None:
    reported = Link()
    reported.answer(UP, 0)
    reported.tracker.apply_event(10)
    assert reported.answer(UP, 12) == [ABSENT]
    assert reported.answer(UP, 60) == []


def test_a_check_that_fails_is_made_up_for_by_the_next_answer() -> None:
    reported = Link()
    reported.answer(DOWN, 0)
    reported.tracker.apply_event(10)
    reported.tracker.record_question(12)
    assert reported.fail("busy") == ["chip 1 blind: busy"]
    assert reported.answer(DOWN, 60) == [ANSWERED, PRESENT]


def test_events_in_a_row_neither_put_off_a_check_nor_do_without_the_last() -> None:
    reported = Link()
    reported.answer(UP, 0)
    for at in (10, 11, 11.5):
        reported.tracker.apply_event(at)
    assert reported.check_at() == 12
    assert reported.answer(DOWN, 12) == []
    assert reported.check_at() == 13.5
    assert reported.answer(DOWN, 13.5) == [PRESENT]
    assert reported.check_at() is None


def test_an_answer_on_its_way_when_an_event_comes_is_not_compared() -> None:
    reported = Link()
    reported.answer(DOWN, 0)
    reported.tracker.record_question(60)
    reported.tracker.apply_event(60.1)
    assert [word(report) for report in reported.tracker.observe_link_faults(UP, 60, 0)] == []
    assert reported.check_at() == 62.1
    assert reported.answer(UP, 62.1) == [ABSENT]
