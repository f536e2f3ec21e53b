"""Kept scripts: the right product plays each without a verdict, and its mutant is called wrong."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.chaos import __main__ as program
from benchmarks.chaos.judge import Wrong
from benchmarks.chaos.planning import read_plan
from benchmarks.chaos.simulated import mutants
from benchmarks.chaos.simulated.mutants import MUTANTS
from benchmarks.chaos.simulated.site import play_in
from benchmarks.chaos.stage import judged
from tests.parts.examples import mostly_slow
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

SCRIPTS = sorted((ROOT / "tests/chaos").glob("*.json"))
MAX_SCRIPTS = 40


def plays_right(directory: Path, script: Path, mutant: str) -> bool:
    product: Callable[[], AbstractContextManager[Any]] = MUTANTS.get(mutant, nullcontext)
    plan = read_plan(script)
    with product():
        episode, _ = play_in(directory, plan)
    assert episode.errors == []
    return judged(plan, *episode.parts) == []


def mutant_of(script: Path) -> str:
    """Return the mutant that gave a script its name; empty for one that a seed gave."""
    return next((name for name in MUTANTS if name.replace(" ", "-") == script.stem), "")


@pytest.mark.slow
@pytest.mark.parametrize("script", mostly_slow(SCRIPTS, 6), ids=lambda script: script.stem)
def test_the_right_product_plays_a_kept_script_right(tmp_path: Path, script: Path) -> None:
    assert plays_right(tmp_path, script, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", [script for script in SCRIPTS if mutant_of(script)], ids=lambda script: script.stem
)
def test_the_mutant_of_a_kept_script_is_wrong(tmp_path: Path, script: Path) -> None:
    assert not plays_right(tmp_path, script, mutant_of(script))


def test_each_mutant_has_a_script_and_there_are_not_too_many() -> None:
    assert {mutant_of(script) for script in SCRIPTS} >= set(MUTANTS)
    assert len(SCRIPTS) <= MAX_SCRIPTS


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "missing required field"),
        ('{"platform": "simulated", "seed": 1, "seconds": 9, "faults": [], "troubles": [%s]}', ""),
    ],
)
def test_a_script_of_another_version_names_its_file_and_a_remedy(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "old.json"
    trouble = '{"name": "gremlins", "subject": "node-1", "at": 1, "until": 2}'
    file.write_text(text.replace("%s", trouble))
    with pytest.raises(ValueError, match=f"old.json is no plan .*{problem or 'gremlins'}.*--keep"):
        read_plan(file)


@pytest.mark.slow
def test_all_mutants_are_played_one_after_the_other_and_the_first_seeds_are_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = ROOT / "tests/chaos/stale-write.json"
    names = "stale write", "heartbeat without progress"
    monkeypatch.setattr(mutants, "MUTANTS", {name: MUTANTS[name] for name in names})
    monkeypatch.setattr(program, "fix_order_of_sets", lambda: None)
    monkeypatch.setattr(sys, "argv", ["chaos", "--replay", str(script), "--mutant", "all"])
    assert program.main() == 1, "one of them is not found"
    rows = capsys.readouterr().out.splitlines()[-2:]
    seed = read_plan(script).seed
    assert rows == [
        f"| stale write | {seed} | {Wrong.MISSING} |",
        "| heartbeat without progress | none | nothing |",
    ]
