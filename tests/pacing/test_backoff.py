"""Pauses double up to a limit, by chance or exactly."""

from __future__ import annotations

from pacing.backoff import Backoff


def test_pauses_double_up_to_a_limit() -> None:
    pauses = Backoff(1.0, 5.0, jitter=0.0)
    assert [pauses.next_seconds() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    pauses.reset()
    assert pauses.next_seconds() == 1.0


def test_a_pause_by_chance_is_at_least_half_of_the_whole_one() -> None:
    pauses = [Backoff(8.0, 8.0).next_seconds() for _ in range(200)]
    assert 4.0 <= min(pauses) < max(pauses) <= 8.0
