"""How long calls may take, learned from their answers."""

from __future__ import annotations

import pytest

from dcmi_shim.worker.adaptive_deadline import AdaptiveDeadline


def test_call_that_answers_in_time_has_the_usual_deadline() -> None:
    patience = AdaptiveDeadline(0.5, 5.0)
    assert patience.of("a") == 0.5
    patience.record("a", 0.01)
    assert patience.of("a") == patience.of("never answered") == 0.5


def test_a_slow_call_has_twice_its_time_within_bounds() -> None:
    patience = AdaptiveDeadline(0.5, 5.0)
    patience.record("quick", 0.01)
    patience.record("slow", 0.7)
    assert patience.of("slow") == patience.of("never answered") == pytest.approx(1.4)
    assert patience.of("quick") == 0.5
    patience.record("slow", 4.0)
    assert patience.of("slow") == 5.0


def test_longer_deadline_shrinks_slowly() -> None:
    patience = AdaptiveDeadline(0.5, 5.0)
    patience.record("a", 1.0)
    patience.record("a", 0.01)
    assert 1.5 < patience.of("a") < 2.0
    for _ in range(30):
        patience.record("a", 0.01)
    assert patience.of("a") == 0.5


def test_a_longer_usual_time_is_kept() -> None:
    assert AdaptiveDeadline(10.0, 5.0).longest == 10.0
