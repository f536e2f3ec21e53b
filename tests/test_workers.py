"""``pytest --workers`` runs each test once, and reports what happens in each process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.parts.deadlines import patience
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_CONFTEST = """
from tests.workers import Forks, add_option as pytest_addoption

def pytest_configure(config):
    config.pluginmanager.register(Forks())
"""
_TESTS = """
import os
import signal
import warnings
from pathlib import Path

import pytest

PARENT = os.getpid()

@pytest.mark.parametrize("number", range(20))
def test_passes(number, tmp_path):
    assert os.getppid() == PARENT
    with Path(os.environ["RAN"]).open("a") as ran:
        ran.write(f"{number}\\n")

def test_fails():
    print("its output")
    assert 2 == 3

def test_is_killed():
    os.kill(os.getpid(), signal.SIGKILL)

def test_warns():
    warnings.warn("a warning of a worker")

@pytest.fixture
def broken():
    yield
    raise ValueError("its end fails")

def test_has_a_broken_fixture(broken):
    pass
"""


def _run(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(_CONFTEST)
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    command = [sys.executable, "-m", "pytest", "-ra", f"--rootdir={folder}", "-c"]
    command += [str(folder / "pytest.ini"), f"--basetemp={folder / 'temporary'}", *options]
    return subprocess.run(
        [*command, str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "RAN": str(folder / "ran")},
        timeout=patience(60),
        check=False,
    )


def test_each_test_runs_once_in_a_fork_and_is_reported(tmp_path: Path) -> None:
    ended = _run(tmp_path, _TESTS, "--workers", "3")
    assert ended.returncode == 1, ended.stderr
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(ran, key=int) == [str(number) for number in range(20)]
    for text in (
        "2 failed, 22 passed, 1 warning, 1 error",
        "its output",
        "test_it.py::test_fails",
        "assert 2 == 3",
        "test_it.py::test_is_killed",
        "its worker ended with status -9",
        "UserWarning: a warning of a worker",
        "ValueError: its end fails",
    ):
        assert text in ended.stdout


def test_the_run_ends_after_as_many_failures_as_allowed(tmp_path: Path) -> None:
    tests = """
import pytest

@pytest.mark.parametrize("number", range(100))
def test_fails(number):
    assert False
"""
    ended = _run(tmp_path, tests, "--workers", "2", "--maxfail", "3")
    assert ended.returncode == 1, ended.stderr
    assert "stopping after 3 failures" in ended.stdout
    assert "3 failed in" in ended.stdout


def test_a_thread_that_an_import_has_started_is_refused(tmp_path: Path) -> None:
    tests = """
import threading

threading.Thread(target=threading.Event().wait, daemon=True, name="of an import").start()

def test_nothing():
    pass
"""
    ended = _run(tmp_path, tests, "--workers", "2")
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "of an import" in ended.stderr


def test_forks_give_out_different_ports(tmp_path: Path) -> None:
    tests = """
import os
from pathlib import Path

import pytest
from tests.parts.processes import free_ports

@pytest.mark.parametrize("number", range(6))
def test_ports(number):
    with Path(os.environ["RAN"]).open("a") as ran:
        ran.write("".join(f"{port}\\n" for port in free_ports(3)))
"""
    assert _run(tmp_path, tests, "--workers", "3").returncode == 0
    ports = (tmp_path / "ran").read_text().split()
    assert len(set(ports)) == len(ports) == 18
