"""What counts as within budget on each family."""

from __future__ import annotations

import pytest

from benchmarks.families import Family
from benchmarks.footprint import Figures

IDLE = Figures("directory", "idle", 2, 70.0, 0.3, 0.0)


@pytest.mark.parametrize(
    ("profile", "faults", "recoveries", "well"),
    [
        ("310p", (0.5, 0.55, 1.1), (0.8, 0.85, 1.4), True),
        ("310p", (0.5, 0.7, 0.8), (0.8,), False),
        ("duo", (0.1, 0.2, 1.3), (0.8,), False),
        ("310", (0.5,), (0.8, 0.8, 1.6), False),
        ("a2", (0.02, 0.03), (0.02,), True),
        ("a5", (0.02, 0.07), (0.02,), False),
    ],
)
def test_budgets(
    profile: str, faults: tuple[float, ...], recoveries: tuple[float, ...], well: bool
) -> None:
    assert Family(profile, faults, recoveries, IDLE).is_within_budget is well


def test_an_idle_agent_that_costs_too_much() -> None:
    idle = Figures("directory", "idle", 2, 70.0, 0.41, 0.0)
    assert not Family("a2", (0.02,), (0.02,), idle).is_within_budget
