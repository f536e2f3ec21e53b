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
from tests.slowest import slowest

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
    path = tmp_path / ".pytest_cache" / "v" / "vigil" / "durations"
    assert set(json.loads(path.read_text())) == {"test_one.py::test_it", "test_two.py::test_it"}
