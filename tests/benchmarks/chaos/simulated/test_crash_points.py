"""A script ends its victim at the step that is asked for, and the run is judged."""

from __future__ import annotations

import pytest

from benchmarks.chaos.simulated.crash_points import SCRIPTS, run
from benchmarks.chaos.simulated.processes import mapped


@pytest.mark.slow
def test_an_agent_that_ends_while_it_publishes_loses_nothing() -> None:
    script = SCRIPTS[0]
    steps, verdicts = run(script, None)
    assert verdicts == []
    assert steps > 30
    middle = steps // 2
    # Behind the step at which the victim ended none is counted.
    assert run(script, middle) == (middle + 1, [])


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_in_the_order_of_the_items(workers: int) -> None:
    with mapped(abs, [-3, 1, -2], workers) as results:
        assert [*results] == [3, 1, 2]
