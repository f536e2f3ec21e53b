"""Tests that a change may break are chosen by imports, by what was measured, and by a table."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests import affected
from tests.affected import TABLE, Plan, rows_of, within
from tests.imports import distances, importers
from tests.parts.tree import ROOT, files

if TYPE_CHECKING:
    from pathlib import Path


def test_each_file_that_is_no_module_has_a_row() -> None:
    assert [path for path in files() if not path.endswith(".py") and rows_of(path) is None] == []


@pytest.mark.slow
def test_each_row_fits_a_file_and_names_what_exists() -> None:
    fitting = {rows_of(path) for path in files()}
    for pattern, rows in TABLE:
        assert rows in fitting, pattern
        assert all((ROOT / row).exists() for row in rows), pattern


@pytest.mark.slow
def test_distance_counts_imports() -> None:
    far = distances("pacing/backoff.py", importers())
    assert far["pacing/backoff.py"] == 0
    assert far["tests/pacing/test_backoff.py"] == 1
    assert far["agent/publishing/publisher.py"] == 1
    assert far["tests/agent/publishing/test_publisher.py"] == 2
    assert "tests/contract/codes/test_catalogue.py" not in far


@pytest.mark.slow
def test_a_conftest_is_imported_by_the_tests_below_it() -> None:
    far = distances("tests/aggregator/conftest.py", importers())
    assert far["tests/aggregator/merge/test_pipeline.py"] == 1


@pytest.mark.slow
def test_the_nearest_tests_come_first() -> None:
    ordered = Plan(["pacing/backoff.py"], None).ordered()
    nearest, farther = "tests/pacing/test_backoff.py", "tests/agent/publishing/test_publisher.py"
    assert ordered.index(nearest) < ordered.index(farther)


def test_a_file_of_the_table_takes_the_tests_of_its_row() -> None:
    plan = Plan(["Makefile"], None)
    assert plan.ordered() == ["tests/test_documents.py", "tests/test_makefile.py"]
    assert plan.unknown == []


def test_a_file_beside_tests_belongs_to_them() -> None:
    assert rows_of("tests/agent/journal/old/file.sqlite") == ("tests/agent/journal",)
    assert rows_of("tests/new.txt") is None


def test_a_file_without_a_row_is_named() -> None:
    plan = Plan(["contract/data/new.bin"], None)
    assert plan.ordered() == []
    assert plan.unknown == ["contract/data/new.bin"]


class Seconds:
    """What was measured: one test of a process, and two of a module."""

    seconds = {  # noqa: RUF012
        "tests/pacing/test_backoff.py::test_slow": 3.0,
        "tests/pacing/test_backoff.py::test_quick": 0.1,
        "tests/end_to_end/test_episodes.py::test_it": 9.0,
    }

    def tests_of_file(self, path: str) -> set[str]:
        return {"tests/end_to_end/test_episodes.py::test_it"}


def test_a_test_whose_process_ran_the_file_is_near() -> None:
    ordered = Plan(["pacing/backoff.py"], Seconds()).ordered()  # type: ignore[arg-type]
    places = [
        ordered.index(test)
        for test in (*Seconds.seconds, "tests/agent/publishing/test_publisher.py")
        if test.partition("::")[2] != "test_slow"
    ]
    assert places == sorted(places)


def test_what_takes_longer_than_two_minutes_is_left_out() -> None:
    tests = ["near", "far", "farther"]
    assert within(tests, {"near": 100.0, "far": 111.0, "farther": 0.1}) == (["near"], tests[1:])
    assert within(tests, {"near": 100.0, "far": 109.0, "farther": 0.1}) == (tests, [])


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what counts as changed; fill it."""
    found: list[str] = []
    monkeypatch.setattr(affected, "changed_files", lambda base: found)
    monkeypatch.setattr(affected, "_measured", lambda: None)
    monkeypatch.setattr("sys.argv", ["affected", "--list"])
    return found


def test_the_status_is_4_where_tests_were_left_out(
    changed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    changed.append("contract/errors.py")
    assert affected.main() == 4
    assert "left out: tests/" in capsys.readouterr().out


def test_the_status_is_0_where_all_tests_were_run(
    changed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    changed.append("Makefile")
    assert affected.main() == 0
    assert "left out" not in capsys.readouterr().out


def test_changed_files_are_those_since_the_branch_and_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(affected, "ROOT", tmp_path)
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    author = {"NAME": "a", "EMAIL": "a@example.org"}
    environment = os.environ | {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in author.items()
    }

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, env=environment)

    git("init", "--quiet", "--initial-branch", "main")
    (tmp_path / "old.py").write_text("")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    git("switch", "--quiet", "--create", "work")
    (tmp_path / "committed.py").write_text("")
    git("add", ".")
    git("commit", "--quiet", "--message", "second")
    (tmp_path / "old.py").write_text("changed = 1\n")
    (tmp_path / "new.py").write_text("")
    assert affected.changed_files("main") == ["committed.py", "new.py", "old.py"]
