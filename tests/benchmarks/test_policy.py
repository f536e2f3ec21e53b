"""What the policy's benchmark plays, and when it fails."""

from __future__ import annotations

from itertools import chain

import pytest

from benchmarks.policy import Figures, Run, figures, storm
from contract.observation import Assertion


def a_run(per_second: float, entries: int = 7) -> Run:
    return Run(int(per_second), 0, 1.0, entries)


def test_a_storm_has_all_kinds_of_observations_and_leaves_nothing_that_holds() -> None:
    played = list(chain.from_iterable(storm(30, 1_000)))
    assert {one.assertion for one in played} == set(Assertion)
    assert len({one.subject for one in played}) == 16
    held: set[object] = set()
    for one in played:
        if one.assertion in (Assertion.OCCUR, Assertion.PRESENT):
            held.add((one.subject, one.code))
        elif one.assertion is not Assertion.ONCE:
            held.remove((one.subject, one.code))
    assert held == set()


@pytest.mark.slow
def test_measured_observations_change_the_state_and_do_not_let_it_grow() -> None:
    found = figures(runs=2, batches=60)
    assert not found.grows
    for run in found.runs:
        assert run.observations >= 6_000
        assert run.changes > 3_000
        assert run.entries > 16


def test_the_median_decides_and_growth_fails() -> None:
    fast, slow = a_run(100_000), a_run(99_999)
    assert Figures([fast, slow, fast]).is_within_budget
    assert not Figures([fast, slow, slow]).is_within_budget
    assert not Figures([fast, a_run(100_000, entries=8)]).is_within_budget
