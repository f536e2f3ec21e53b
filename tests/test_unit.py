"""The files of the unit tests are distributed to copies of one process."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.parts.examples import examples
from tests.parts.tree import ROOT
from tests.unit import (
    COMPUTING,
    DIVISOR,
    UNIT,
    Selection,
    Share,
    imported,
    lock_computing,
    shares,
    wait_for_computing,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("path", "selections"),
    [
        ("tests/stores/test_immutable.py", []),  # pytestmark = pytest.mark.apiserver
        ("tests/packaging/test_elastic_component.py", []),  # a list of marks
        ("tests/release/test_build.py", [COMPUTING]),  # slow
        ("tests/agent/publishing/test_ownership.py", [UNIT, COMPUTING]),  # a mark that is no tier
        ("tests/test_unit.py", [UNIT, COMPUTING]),
    ],
)
def test_a_file_is_left_out_whose_own_mark_names_another_tier(
    path: str, selections: list[Selection]
) -> None:
    assert (ROOT / path).is_file()
    assert [each for each in (UNIT, COMPUTING) if path in each.files()] == selections


def test_shares_take_about_as_long_and_have_each_file_once() -> None:
    seconds = {"a": 5.0, "b": 3.0, "c": 3.0, "d": 1.0}
    assert shares(seconds, seconds, 2) == [["a", "d"], ["b", "c"]]


def test_files_that_were_never_run_are_distributed_by_their_size() -> None:
    paths = UNIT.files()
    first, second = shares(paths, {}, 2)
    assert sorted([*first, *second]) == paths
    sizes = [sum((ROOT / path).stat().st_size for path in share) for share in (first, second)]
    assert max(sizes) < 1.01 * min(sizes)


def test_a_share_leaves_out_other_test_files_and_folders_without_its_own() -> None:
    share = Share(["tests/test_unit.py", "tests/agent/policy/test_ownership.py"])
    names = ("test_unit.py", "test_once.py", "conftest.py", "agent", "agent/policy", "agent/pages")
    left_out = [name for name in names if share.pytest_ignore_collect(ROOT / "tests" / name)]
    assert left_out == ["test_once.py", "agent/pages"]


def test_modules_are_imported_before_the_fork_and_those_for_types_are_not() -> None:
    assert imported(["tests/agent/publishing/test_ownership.py"]) > {"pytest", "__future__"}
    assert "tests.parts.examples" in imported(["tests/test_unit.py"])
    assert "stores.base" not in imported(["tests/stores/conftest.py"])  # below TYPE_CHECKING


def test_a_worker_waits_until_the_copies_have_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.unit._COMPUTING_LOCK", tmp_path / "cache" / "computing.lock")
    wait_for_computing()  # none was ever run here
    lock = lock_computing()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(wait_for_computing)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        os.close(lock)
    waiting.result()


def test_a_property_gets_an_eighth_of_its_examples_and_at_least_ten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(DIVISOR, raising=False)
    assert [examples(count).max_examples for count in (400, 20, 6)] == [400, 20, 6]
    monkeypatch.setenv(DIVISOR, str(UNIT.divisor))
    assert [examples(count).max_examples for count in (400, 20, 6)] == [50, 10, 6]
