"""The benchmark of families: when it raises faults, and that it ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.families import spread
from tests.parts.deadlines import patience

HANGS = """
import sys, time
from benchmarks import families
families.usual_seconds = lambda count, seconds: 0.2
families.measured = lambda *_: time.sleep(60)
sys.argv = ["families", "--profile", "310p"]
families.main()
"""


def test_changes_come_in_every_part_of_a_period_once() -> None:
    for count in (1, 7, 30):
        pauses = spread(count)
        assert sorted(int((pause - 0.5) * count) for pause in pauses) == list(range(count))
    assert spread(30) != sorted(spread(30))


@pytest.mark.slow
def test_a_profile_that_hangs_ends_it_and_is_named() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGS],
        capture_output=True,
        text=True,
        timeout=patience(30),
        check=False,
    )
    assert ended.returncode == 1
    assert "310p: this takes" in ended.stdout
    assert "Timeout (0:00:00.4" in ended.stderr
    assert "in main" in ended.stderr
