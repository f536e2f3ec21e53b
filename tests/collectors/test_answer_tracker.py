"""Blindness of a source and its end."""

from __future__ import annotations

from collectors.answer_tracker import AnswerTracker
from contract.observation import NODE, SourceAnswered, SourceBlind, chip_subject


def test_the_first_answer_is_reported_and_no_other() -> None:
    tracker = AnswerTracker("bmc")
    assert tracker.is_answering is None
    assert tracker.observe_answer(1) == [SourceAnswered("bmc", NODE, 1)]
    assert tracker.observe_answer(2) == []


def test_the_first_failure_is_reported_with_its_reason_and_the_answer_after_it() -> None:
    chip = chip_subject(3)
    tracker = AnswerTracker("links", chip)
    assert tracker.observe_failure("it hangs", 1, by_driver=True) == [
        SourceBlind("links", chip, 1, "it hangs", True)
    ]
    assert tracker.observe_failure("it is missing", 2) == []
    assert tracker.observe_answer(3) == [SourceAnswered("links", chip, 3)]
    assert tracker.observe_failure("it hangs", 4) == [SourceBlind("links", chip, 4, "it hangs")]


def test_a_source_that_is_known_to_answer_reports_no_first_answer() -> None:
    assert AnswerTracker("hang", is_answering=True).observe_answer(1) == []
