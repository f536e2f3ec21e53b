"""Stamps always grow, never run far ahead, and never wait for a clock that is wrong."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.publishing.update_times import Stamps
from contract.documents.device_info import LEAD_SECONDS


def test_the_first_stamp_is_the_clock() -> None:
    assert Stamps().next(1_000_000, 0.0) == (1000, 0.0)


def test_two_writes_in_one_second_get_two_stamps_and_at_most_five_ahead() -> None:
    stamps = Stamps()
    used = []
    for _ in range(6):
        stamp, wait = stamps.next(1_000_000, 0.0)
        assert wait == 0
        stamps.record_stored_stamp(stamp)
        used.append(stamp)
    assert used == [1000, 1001, 1002, 1003, 1004, 1005]
    assert stamps.next(1_000_000, 0.0) == (1006, 1.0)
    assert stamps.next(1_000_750, 0.75) == (1006, 0.25), "no longer than until 1001"
    assert stamps.next(1_001_000, 1.0) == (1006, 0.0)


def written_at(changed_ms: list[int], write_ms: int = 5) -> list[int]:
    """Return when the writes of changes at these times begin (ms).

    The first second has just begun.
    """
    stamps, now_ms, written, wanted = Stamps(), 0, [], list(changed_ms)
    while wanted:
        now_ms = max(now_ms, wanted[0])
        stamp, wait = stamps.next(1_000_000 + now_ms, now_ms / 1000)
        if wait > 0:
            now_ms += max(1, math.ceil(wait * 1000 - 1e-6))
            continue
        written.append(now_ms)
        wanted = [ms for ms in wanted if ms > now_ms]
        now_ms += write_ms
        stamps.record_stored_stamp(stamp)
        stamps.record_write(now_ms / 1000)
    return written


def test_single_write_and_short_burst_wait_for_nothing() -> None:
    assert written_at([0, 400, 800]) == [0, 400, 800]
    assert written_at([0, *range(5)]) == [0, 5]
    assert written_at([0, 3, 100, 103]) == [0, 5, 100, 105]


def test_a_burst_has_stamps_left_for_its_end() -> None:
    burst = written_at(list(range(50)))
    assert burst == pytest.approx([0, 5, 18, 43, 108], abs=2), "and not the last one at 1000"
    assert written_at(list(range(300)))[-1] < 350


def test_a_burst_that_goes_on_is_shown_every_few_hundred_milliseconds() -> None:
    written = written_at(list(range(1000)))
    assert max(b - a for a, b in pairwise(written[:6])) <= 210
    assert written[-1] <= 1000


def test_a_restart_goes_on_from_the_stored_stamp() -> None:
    stamps = Stamps()
    stamps.record_stored_stamp(1003)
    assert stamps.next(1_000_000, 0.0) == (1004, 0.0)


def test_a_stamp_from_the_future_does_not_stop_publishing() -> None:
    stamps = Stamps()
    stamps.record_stored_stamp(5000)
    assert stamps.next(1_000_000, 50.0) == (5001, 0.0)
    assert stamps.next(1_010_000, 60.0) == (5010, 0.0)
    assert stamps.next(9_000_000, 8050.0) == (13000, 0.0)
    assert stamps.next(14_000_000, 8060.0) == (14000, 0.0)


def test_nonsense_is_no_stamp() -> None:
    stamps = Stamps()
    for nonsense in (None, 0, -5, 2**63):
        stamps.record_stored_stamp(nonsense)
    assert stamps.next(1_000_000, 0.0) == (1000, 0.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-100, 100)), min_size=1, max_size=60))
def test_stamps_grow_whatever_the_clock_does(steps: list[tuple[int, int]]) -> None:
    stamps = Stamps()
    wall, monotonic, last = 10_000, 0.0, 0
    for passed, jump in steps:
        monotonic += passed
        wall += passed + (jump if abs(jump) > 90 else 0)
        stamp, wait = stamps.next(wall * 1000, monotonic)
        if wait == 0:
            assert stamp > last
            last = stamp
            stamps.record_stored_stamp(stamp)
        else:
            assert wait <= LEAD_SECONDS
