"""Runs on parts of the seeds are added up, and each file that cannot be is named."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.chaos import __main__ as program
from benchmarks.chaos.outcome import NotPlayed, Outcome
from benchmarks.chaos.planning import plan_of
from benchmarks.chaos.summary import Results

if TYPE_CHECKING:
    from pathlib import Path


def outcome(seed: int, platform: str = "mqtt", share: float = 0.1, **given: Any) -> Outcome:
    plan = plan_of(platform, seed)
    settled = float(seed)
    return Outcome(plan, 3, 100, given.pop("wrong", []), [], share, settled, [6.0 + seed], **given)


def run(file: Path, *results: Outcome | NotPlayed, planned: int | None = None) -> Path:
    added = Results(len(results) if planned is None else planned)
    for result in results:
        added.add(result)
    added.write(file)
    return file


def add_up(monkeypatch: pytest.MonkeyPatch, *files: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["chaos", "--add-up", *map(str, files)])
    return program.main()


def test_the_summary_of_parts_is_that_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = [outcome(seed, proved=seed, processor_seconds=2.0) for seed in range(1, 8)]
    whole = Results(len(outcomes))
    for item in outcomes:
        whole.add(item)
    parts = run(tmp_path / "a", *outcomes[:3]), run(tmp_path / "b", *outcomes[3:])
    capsys.readouterr()
    assert add_up(monkeypatch, *parts) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary.pop("seconds") >= 0
    assert summary == {key: item for key, item in whole.summary().items() if key != "seconds"}
    assert summary["settled_seconds"] == {"p50": 4.0, "p95": 7.0, "max": 7.0}
    assert summary["one_offs"] == {"number": 7, "shortest_seconds": 7.0}
    assert summary["proof"]["proved"] == 28


@pytest.mark.parametrize(
    "last",
    [
        outcome(2, wrong=["a level is wrong"]),
        outcome(2, is_proved=False),
        outcome(2, share=0.31),
        NotPlayed([plan_of("mqtt", 2)], "no broker"),
    ],
)
def test_what_is_wrong_in_one_part_is_an_error_of_all(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    last: Outcome | NotPlayed,
) -> None:
    parts = run(tmp_path / "a", outcome(1)), run(tmp_path / "b", last)
    capsys.readouterr()
    assert add_up(monkeypatch, *parts) == 1
    summary = json.loads(capsys.readouterr().out)
    assert summary["excused"]["seeds_above_0.3"] == ([2] if "0.31" in repr(last) else [])
    assert summary["causes"] == ({"no broker": 1} if isinstance(last, NotPlayed) else {})
    assert summary["not_played"] == len(summary["causes"])


def test_a_part_that_cannot_be_added_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(tmp_path / "first", outcome(1))
    again = run(tmp_path / "again", outcome(2), outcome(1))
    other = run(tmp_path / "other", outcome(3, "directory"))
    cut = tmp_path / "cut"
    cut.write_bytes(first.read_bytes()[:-20])
    for file, problem in (
        (again, "has a seed of another file"),
        (other, "is of another world"),
        (cut, "is no run of this version"),
    ):
        with pytest.raises(SystemExit, match="2"):
            add_up(monkeypatch, first, file)
        assert f"{file} {problem}" in capsys.readouterr().err
