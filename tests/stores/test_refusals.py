"""What is refused at which place: logged when it begins and ends, counted, and bounded."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from contract.refusal import Reason
from stores.refusals import MAX_PLACES, Refusals, Refused

if TYPE_CHECKING:
    import pytest


class Clock:
    """A steady clock in milliseconds."""

    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def test_a_refusal_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    refusals = Refusals(Clock())
    for number in range(3):
        refusals.refuse("topic", Reason.OTHER_NODE, f"it is one of {number}")
    assert refusals.now == (Refused("topic", Reason.OTHER_NODE, "it is one of 2"),)
    assert refusals.counts == {Reason.OTHER_NODE: 3}
    refusals.accept("another")
    refusals.accept("topic")
    refusals.accept("topic")
    assert refusals.is_empty
    assert caplog.messages == ["topic is left out: it is one of 0", "topic is good again"]


def test_repeated_listing_counts_a_refusal_once(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals(Clock())
    for what in ("no JSON", "no JSON", "no holder", "no holder"):
        refusals.find("file", Reason.UNREADABLE, what)
    assert refusals.counts == {Reason.UNREADABLE: 2}
    assert len(caplog.records) == 2
    refusals.keep({"file"}.__contains__)
    assert not refusals.is_empty
    refusals.keep(lambda _: False)
    assert refusals.is_empty


def test_good_and_bad_in_turn_are_logged_five_times_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    refusals = Refusals(clock)
    for clock.now_ms in range(0, 120_000, 100):
        refusals.refuse("topic", Reason.OTHER_NODE, "bad")
        refusals.accept("topic")
    assert refusals.counts == {Reason.OTHER_NODE: 1200}
    assert len(caplog.records) == 2 * 2 * 5


def test_places_without_end_are_counted_and_not_remembered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    refusals = Refusals(clock)
    for number in range(3 * MAX_PLACES):
        refusals.refuse(f"place {number}", Reason.UNREADABLE, "bad")
    assert (len(refusals.now), len(caplog.records)) == (MAX_PLACES, MAX_PLACES)
    assert refusals.counts == {Reason.UNREADABLE: 3 * MAX_PLACES}
    refusals.keep(lambda _: False)
    refusals.refuse("one more", Reason.UNREADABLE, "bad")
    assert len(caplog.records) == MAX_PLACES, "the log names no further ones in this minute"
    refusals.accept("one more")
    clock.now_ms = 61_000
    refusals.refuse("one more", Reason.UNREADABLE, "bad")
    assert len(caplog.records) == MAX_PLACES + 1
