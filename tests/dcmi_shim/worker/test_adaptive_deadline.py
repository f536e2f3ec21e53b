"""How long calls may take, learned from their answers."""

from __future__ import annotations

import pytest

from dcmi_shim.worker.calls import AdaptiveDeadline


def test_call_that_answers_in_time_has_the_usual_deadline() -> None:
    deadlines = AdaptiveDeadline(0.5, 5.0)
    assert deadlines.of("a") == 0.5
    deadlines.record("a", 0.01)
    assert deadlines.of("a") == deadlines.of("never answered") == 0.5


def test_a_slow_call_has_twice_its_time_within_bounds() -> None:
    deadlines = AdaptiveDeadline(0.5, 5.0)
    deadlines.record("quick", 0.01)
    deadlines.record("slow", 0.7)
    assert deadlines.of("slow") == deadlines.of("never answered") == pytest.approx(1.4)
    assert deadlines.of("quick") == 0.5
    deadlines.record("slow", 4.0)
    assert deadlines.of("slow") == 5.0


def test_longer_deadline_shrinks_slowly() -> None:
    deadlines = AdaptiveDeadline(0.5, 5.0)
    deadlines.record("a", 1.0)
    deadlines.record("a", 0.01)
    assert 1.5 < deadlines.of("a") < 2.0
    for _ in range(30):
        deadlines.record("a", 0.01)
    assert deadlines.of("a") == 0.5


def test_a_longer_usual_time_is_kept() -> None:
    assert AdaptiveDeadline(10.0, 5.0).longest == 10.0
