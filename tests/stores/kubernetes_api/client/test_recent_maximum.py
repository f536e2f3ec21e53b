"""How long an answer may take follows the slowest one of late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stores.kubernetes_api.client.attempts import RecentMaximum

WINDOW = 30.0


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), max_size=60))
def test_it_is_the_largest_of_the_window(steps: list[tuple[int, int]]) -> None:
    recent, added, now = RecentMaximum(WINDOW), list[tuple[int, int]](), 0
    assert recent.at(now) == 0
    for pause, value in steps:
        now += pause
        recent.add(now, value)
        added.append((now, value))
        assert recent.at(now) == max(v for at, v in added if at >= now - WINDOW)
    assert recent.at(now + WINDOW + 1) == 0
