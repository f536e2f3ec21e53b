"""Stamps always grow, never run far ahead, and never wait for a clock that is wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.stamps import AHEAD_SECONDS, Stamps


def test_the_first_stamp_is_the_clock() -> None:
    assert Stamps().next(1000, 0.0) == (1000, 0.0)


def test_two_writes_in_one_second_get_two_stamps_and_at_most_five_ahead() -> None:
    stamps = Stamps()
    used = []
    for _ in range(6):
        stamp, wait = stamps.next(1000, 0.0)
        assert wait == 0
        stamps.saw(stamp)
        used.append(stamp)
    assert used == [1000, 1001, 1002, 1003, 1004, 1005]
    assert stamps.next(1000, 0.0) == (1006, 1.0)
    assert stamps.next(1001, 1.0) == (1006, 0.0)


def test_a_restart_goes_on_from_the_stored_stamp() -> None:
    stamps = Stamps()
    stamps.saw(1003)
    assert stamps.next(1000, 0.0) == (1004, 0.0)


def test_a_stamp_from_the_future_does_not_stop_publishing() -> None:
    stamps = Stamps()
    stamps.saw(5000)
    assert stamps.next(1000, 50.0) == (5001, 0.0)
    assert stamps.next(1010, 60.0) == (5010, 0.0)
    assert stamps.next(9000, 8050.0) == (13000, 0.0)
    assert stamps.next(14000, 8060.0) == (14000, 0.0)


def test_nonsense_is_no_stamp() -> None:
    stamps = Stamps()
    for nonsense in (None, 0, -5, 2**63):
        stamps.saw(nonsense)
    assert stamps.previous is None
    assert stamps.next(1000, 0.0) == (1000, 0.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-100, 100)), min_size=1, max_size=60))
def test_stamps_grow_whatever_the_clock_does(steps: list[tuple[int, int]]) -> None:
    stamps = Stamps()
    wall, monotonic, last = 10_000, 0.0, 0
    for passed, jump in steps:
        monotonic += passed
        wall += passed + (jump if abs(jump) > 90 else 0)
        stamp, wait = stamps.next(wall, monotonic)
        if wait == 0:
            assert stamp > last
            last = stamp
            stamps.saw(stamp)
        else:
            assert wait <= AHEAD_SECONDS
