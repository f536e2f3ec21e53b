"""What a process runs is measured until its end, whatever ends it, for the test that started it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import coverage
import pytest

from tests.measured.__main__ import Counts, folder_of, table
from tests.measured.places import CONTEXT
from tests.parts.deadlines import patience
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CHILD = """
import sys, time
def ran():
    return 1
ran()
print("up", flush=True)
time.sleep(60)
"""

KILLS = """
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE)
child.stdout.readline()
child.kill()
child.wait()
child.stdout.close()
"""

FORKS = """
import os
def ran():
    return 1
pid = os.fork()
if pid == 0:
    ran()
    os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return variables with which Python measures what lies in ``tmp_path``."""
    config = tmp_path / "coverage.toml"
    config.write_text(
        f"""[tool.coverage.run]
branch = true
parallel = true
data_file = "{tmp_path / "data"}"
source = ["{tmp_path}"]
patch = ["_exit"]
plugins = ["tests.measured.start"]
context = "${{{CONTEXT}-}}"
"""
    )
    return os.environ | {
        "COVERAGE_PROCESS_START": str(config),
        "PYTHONPATH": str(ROOT),
        CONTEXT: "the test",
    }


def contexts(folder: Path, program: Path, line: int) -> list[str]:
    found = coverage.CoverageData(basename=str(folder / "all"))
    for file in folder.glob("data.*"):
        part = coverage.CoverageData(basename=str(file))
        part.read()
        found.update(part)
    return found.contexts_by_lineno(str(program)).get(line, [])


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["-I", "-S"]], ids=["usual", "isolated"])
def test_a_process_that_is_killed_is_measured(
    tmp_path: Path, environment: dict[str, str], options: list[str]
) -> None:
    child, parent = tmp_path / "child.py", tmp_path / "parent.py"
    child.write_text(CHILD)
    parent.write_text(KILLS)
    command = [sys.executable, str(parent), *options, str(child)]
    subprocess.run(command, env=environment, check=True, timeout=patience(50))
    assert contexts(tmp_path, child, 4) == ["the test"]
    assert contexts(tmp_path, parent, 7) == ["the test"]


@pytest.mark.slow
def test_a_process_that_is_forked_is_measured(tmp_path: Path, environment: dict[str, str]) -> None:
    program = tmp_path / "forks.py"
    program.write_text(FORKS)
    subprocess.run(
        [sys.executable, str(program)], env=environment, check=True, timeout=patience(50)
    )
    assert contexts(tmp_path, program, 4) == ["the test"]
    assert contexts(tmp_path, program, 9) == ["the test"]


def test_folders_of_the_daemons_have_rows_of_their_own() -> None:
    assert folder_of("contract/codes/levels.py") == "contract"
    assert folder_of("agent/policy/step.py") == "agent/policy"
    assert folder_of("agent/daemon.py") == "agent"


def test_the_table_has_shares_and_a_sum() -> None:
    rows = table({"contract": Counts(10, 9, 4, 3), "pacing": Counts(10, 10, 0, 0)})
    assert rows.splitlines()[2:] == [
        "| `contract/` | 10 | 90.0 % | 4 | 75.0 % |",
        "| `pacing/` | 10 | 100.0 % | 0 | 100.0 % |",
        "| all | 20 | 95.0 % | 4 | 75.0 % |",
    ]
