"""Makes a plan smaller that something wrong came of. Pure: the playing is passed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.chaos.plan import Plan

RUNS = 3
"""So often a smaller plan must fail, one time after the other."""
MAX_SECONDS = 600.0
_AFTERWARDS_SECONDS = 8.0
"""From the last change until the end: the judge waits 6 s."""

T = TypeVar("T")


def shrunk(plan: Plan, fails: Callable[[Plan], bool], seconds_left: Callable[[], float]) -> Plan:
    """Return the smallest plan that still fails, as far as there is time.

    ``fails`` plays a plan. A trouble or a fault goes only if ``RUNS`` of ``RUNS`` runs fail without
    it. The end comes earlier by the same rule.
    """
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(plan):
            if seconds_left() <= 0:
                return plan
            if all(fails(smaller) for _ in range(RUNS)):
                plan, is_smaller = smaller, True
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans with less in them, those that save most time first."""
    times = [fault.until or fault.at for fault in plan.faults]
    times += [trouble.until for trouble in plan.troubles]
    end = round(max(times, default=0.0) + _AFTERWARDS_SECONDS, 2)
    if end < plan.seconds:
        yield replace(plan, seconds=end)
    for troubles in _without_each(plan.troubles):
        yield replace(plan, troubles=troubles)
    for faults in _without_each(plan.faults):
        yield replace(plan, faults=faults)


def _without_each(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    # Halves first: most of a long plan has nothing to do with what is wrong.
    half = len(items) // 2
    if half > 1:
        yield items[:half]
        yield items[half:]
    for number in range(len(items)):
        yield items[:number] + items[number + 1 :]
