"""Runs with faults of every kind: kills, lost answers, two leaders, owners, pods that hang.

``python -m benchmarks.elastic_runs`` makes 500 of them. The twenty here reach each kind of write:
they notice a second start, a start over a pod that lives, a Command without its time, and a
deletion by force within its grace.
"""

from __future__ import annotations

import pytest

from tests.elastic.seeded_run import run


@pytest.mark.slow
def test_whatever_goes_wrong_and_a_seed_reproduces_its_run() -> None:
    """Twenty seeds have starts, Commands and forced deletions."""
    runs = [run(seed) for seed in range(20)]
    assert sum(bench.starts for bench in runs) > 0
    assert sum(bench.ends for bench in runs) > 0
    assert sum(bench.forced for bench in runs) > 0
    first, again = runs[7], run(7)
    assert (first.jobs, first.writes, first.version) == (again.jobs, again.writes, again.version)
