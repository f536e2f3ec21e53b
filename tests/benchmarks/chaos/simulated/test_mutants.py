"""The judge calls each mutant wrong in an episode, and the right product in none."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.chaos.judge import judge
from benchmarks.chaos.plan import AGGREGATORS, CODES, Plan, PlannedFault, PlannedTrouble
from benchmarks.chaos.simulated.mutants import MUTANTS
from benchmarks.chaos.simulated.site import play_in
from contract.codes.catalogue import shipped

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

PLAN = Plan(
    *("simulated", 3, 22.0),
    faults=(
        PlannedFault("node-1", 3, "80E18402", 1.0, 9.0),
        # Its event is lost.
        PlannedFault("node-1", 4, "80818C06", 3.0),
        PlannedFault("node-2", 5, "80E18402", 1.0),
    ),
    troubles=(
        PlannedTrouble("event-lost", "node-1", 2.9, 3.1),
        PlannedTrouble("document-deleted", "node-2", 2.0, 2.1),
        *(PlannedTrouble("clock-ahead", name, 11.0, 20.0) for name in AGGREGATORS),
    ),
)
LEVELS = {code: shipped().chip_levels[code].value for code in CODES}


@pytest.mark.parametrize("name", ["", *MUTANTS])
def test_a_mutant_alone_is_wrong(tmp_path: Path, name: str) -> None:
    mutant: Callable[[], AbstractContextManager[Any]] = MUTANTS.get(name, nullcontext)
    with mutant():
        episode, _ = play_in(tmp_path, PLAN)
    faults = [*episode.faults.values()]
    verdicts = judge(faults, episode.samples, episode.excuses, LEVELS)
    assert bool(verdicts) == bool(name), [str(item) for item in verdicts]
    assert episode.crashes == []
