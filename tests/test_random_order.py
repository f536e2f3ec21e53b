"""A seed draws the order of the tests; tests of a file and of a folder stay together."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys

import pytest

from tests.parts.tree import ROOT
from tests.random_order import SEED, RandomOrder

TESTS = [
    f"tests/{folder}/test_{file}.py::test_{test}"
    for folder in ("agent", "agent/policy", "stores", "vigil")
    for file in "abcd"
    for test in "wxyz"
]


def ordered(seed: str, tests: list[str] = TESTS) -> list[str]:
    return sorted(tests, key=RandomOrder(seed).place)


def groups(tests: list[str], separator: str) -> list[str]:
    names = (test.rpartition(separator)[0] for test in tests)
    return [name for name, _ in itertools.groupby(names)]


def test_a_seed_repeats_its_order_and_another_seed_has_another() -> None:
    assert ordered("1", TESTS[::-1]) == ordered("1")
    assert len({tuple(ordered(str(seed))) for seed in range(20)}) == 20


def test_tests_of_a_file_are_beside_each_other_in_random_order() -> None:
    files = groups(ordered("1"), "::")
    assert len(files) == len(set(files)) == 16
    by_file = [[test for test in ordered("1") if test.startswith(file)] for file in files]
    assert len({tuple(test[-1] for test in tests) for tests in by_file}) > 1


def test_files_of_a_folder_are_beside_each_other() -> None:
    folders = groups(ordered("1"), "/")
    assert {"tests/stores", "tests/vigil"} <= set(folders)
    assert folders.count("tests/stores") == folders.count("tests/vigil") == 1


def test_a_selection_has_the_order_of_the_whole_run() -> None:
    selected = TESTS[::3]
    assert ordered("1", selected) == [test for test in ordered("1") if test in selected]


@pytest.mark.slow
def test_pytest_sorts_by_the_seed_and_prints_it_also_where_q_omits_the_header() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "tests/test_unit.py"]
    result = subprocess.run(
        command, cwd=ROOT, env={**os.environ, SEED: "1"}, capture_output=True, text=True
    )
    assert f"random order of tests: {SEED}=1" in result.stdout
    tests = re.findall(r"^tests/test_unit.py::.*$", result.stdout, re.MULTILINE)
    assert tests == sorted(tests, key=RandomOrder("1").place)
    assert len(tests) > 4
