"""Runs with faults of every kind: kills, lost answers, two leaders, owners, pods that hang.

``python -m benchmarks.elastic_runs`` makes 500 of them.
"""

from __future__ import annotations

import pytest

from tests.elastic.seeded_run import run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("first", [0, 20])
def test_whatever_goes_wrong(first: int) -> None:
    """Each twenty seeds have starts, Commands and forced deletions."""
    runs = [run(seed) for seed in range(first, first + 20)]
    assert sum(one.starts for one in runs) > 0
    assert sum(one.ends for one in runs) > 0
    assert sum(one.forced for one in runs) > 0


def test_a_seed_reproduces_a_run() -> None:
    one, other = run(7), run(7)
    assert (one.jobs, one.writes, one.version) == (other.jobs, other.writes, other.version)
