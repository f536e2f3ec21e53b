"""Each run records how long its tests took; the slowest are listed first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.parts.deadlines import patience
from tests.parts.tree import ROOT
from tests.slowest import recorded, slowest

if TYPE_CHECKING:
    from pathlib import Path

CONFTEST = """
from tests.slowest import Durations

def pytest_configure(config):
    config.pluginmanager.register(Durations(config))
"""


def test_the_slowest_come_first_with_their_share() -> None:
    seconds = {"a": 1.0, "b": 3.0, "c": 2.0}
    assert slowest(seconds, 2) == [
        "   3.00 s  b",
        "   2.00 s  c",
        "   5.00 s  of 6.00 s for all 3 tests",
    ]


def test_of_several_caches_the_last_one_counts(tmp_path: Path) -> None:
    caches = [tmp_path / ".pytest_cache" / name for name in ("", "beside-0", "beside-1")]
    records = [cache / "v" / "vigil" / "durations" for cache in caches]
    for number, record in enumerate(records):
        record.parent.mkdir(parents=True)
        record.write_text(json.dumps({f"test {number}": 1.0, "test": number}))
        os.utime(record, (number, number))
    os.utime(records[1], (9, 9))
    every = recorded(".pytest_cache/**", tmp_path)
    assert every == {"test": 1.0, "test 0": 1.0, "test 1": 1.0, "test 2": 1.0}
    assert recorded(".pytest_cache/beside-[2-9]", tmp_path) == {}
    assert recorded(".pytest_cache/beside-*", tmp_path).keys() == {"test", "test 1", "test 2"}


@pytest.mark.slow
def test_a_run_records_its_tests_and_keeps_those_of_others(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text("def test_it(): pass\n")
        command = [sys.executable, "-m", "pytest", "-q", "--rootdir", ".", f"test_{name}.py"]
        subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            timeout=patience(50),
        )
    tests = {"test_one.py::test_it", "test_two.py::test_it"}
    assert set(recorded(".pytest_cache/**", tmp_path)) == tests
