"""A script ends its victim at the step that is asked for, and the run is judged."""

from __future__ import annotations

from benchmarks.chaos.simulated.crash_points import SCRIPTS, run


def test_an_agent_that_ends_while_it_publishes_loses_nothing() -> None:
    script = SCRIPTS[0]
    steps, verdicts = run(script, None)
    assert verdicts == []
    assert steps > 50
    middle = steps // 2
    # Behind the step at which the victim ended none is counted.
    assert run(script, middle) == (middle + 1, [])
