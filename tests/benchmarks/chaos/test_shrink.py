"""A plan becomes as small as it can be and still fails, within its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.chaos.planning import plan_of
from benchmarks.chaos.shrink import RUNS, shrunk

if TYPE_CHECKING:
    from benchmarks.chaos.plan import Plan

PLAN = max((plan_of("simulated", seed) for seed in range(40)), key=lambda plan: len(plan.troubles))


def test_only_what_the_failure_needs_is_left() -> None:
    trouble, fault = PLAN.troubles[1], PLAN.faults[2]
    played = []

    def fails(plan: Plan) -> bool:
        played.append(plan)
        return trouble in plan.troubles and fault in plan.faults

    small = shrunk(PLAN, fails, lambda: 1.0)
    assert small.troubles == (trouble,)
    assert small.faults == (fault,)
    assert small.seconds <= PLAN.seconds
    assert [plan for plan in played if plan == small] == RUNS * [small]


def test_a_step_that_fails_only_sometimes_is_not_taken() -> None:
    played: list[Plan] = []

    def fails(plan: Plan) -> bool:
        played.append(plan)
        return len(played) % RUNS != 0

    assert shrunk(PLAN, fails, lambda: 1.0) == PLAN


def test_without_time_the_plan_stays() -> None:
    def fails(_: Plan) -> bool:
        raise AssertionError("it was played")

    assert shrunk(PLAN, fails, lambda: 0.0) == PLAN
