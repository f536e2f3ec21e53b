"""Real parts play a plan: agents on hosts that lose power, an aggregator, and a directory.

``make chaos`` runs it: programs that start take more processor time than the other tests may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.chaos.outcome import Kept, Outcome
from benchmarks.chaos.plan import CODES, Plan, PlannedFault, PlannedTrouble
from benchmarks.chaos.real import play_real

if TYPE_CHECKING:
    from pathlib import Path

PLAN = Plan(
    *("directory", 1, 14.0),
    faults=(
        PlannedFault("node-1", 0, CODES[0], 0.5),
        PlannedFault("node-1", 1, CODES[1], 1.0, once=True),
        PlannedFault("node-2", 2, CODES[1], 3.2),
        PlannedFault("node-1", 3, CODES[2], 3.5, 8.0),
    ),
    troubles=(
        PlannedTrouble("power-lost", "node-1", 0.2, 4.0),
        PlannedTrouble("aggregator-clock-ahead", "aggregator-1", 2.0, 6.0),
        PlannedTrouble("driver-crashes", "node-2", 3.0, 4.0),
    ),
)


def test_a_plan_of_real_parts_is_right_and_proved(tmp_path: Path) -> None:
    outcomes: list[Outcome] = []
    play_real([PLAN], outcomes.append, Kept(tmp_path / "kept", None), workers=1)
    (outcome,) = outcomes
    assert outcome.texts == []
    assert outcome.plan == PLAN
    assert outcome.faults == len(PLAN.faults)
    assert outcome.one_off_seconds[0] >= 5.0
    # The journal may have lost that a fault began a moment before the power was lost.
    assert outcome.proved >= len(PLAN.faults) - 1
    assert (outcome.is_proved, outcome.gaps) == (True, {})
    assert outcome.processor_seconds > 1.0
    assert not (tmp_path / "kept").exists(), "nothing is wrong"
