"""Silence of a task with a pace is a stall, and so is working for too long; waiting is not."""

from __future__ import annotations

from service.stalls import Stalls


class Clock:
    """Time that stands still."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_task_that_is_silent_for_too_long_is_named() -> None:
    clock = Clock()
    stalls = Stalls(clock)
    goes_on = stalls.of("goes on", 10)
    stalls.of("stands still", 10)
    stalls.of("has time", 100)
    for clock.seconds in (6.0, 12.0):
        goes_on()
    assert stalls.stalled() == {"stands still": 12.0}


def test_working_for_too_long_is_a_stall_and_waiting_is_none() -> None:
    clock = Clock()
    stalls = Stalls(clock)
    with stalls.busy("merge"):
        clock.seconds = 30
        with stalls.busy("write"):
            clock.seconds = 61
            assert stalls.stalled() == {"merge": 61.0}
    clock.seconds = 1000
    assert stalls.stalled() == {}
