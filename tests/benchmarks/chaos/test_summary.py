"""Runs on parts of the seeds are added up, and each file that cannot be is named."""

from __future__ import annotations

import itertools
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from benchmarks.chaos import __main__ as program
from benchmarks.chaos.outcome import NotPlayed, Outcome
from benchmarks.chaos.planning import plan_of
from benchmarks.chaos.summary import Results

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.chaos.plan import Plan


def outcome(seed: int, platform: str = "mqtt", share: float = 0.1, **given: Any) -> Outcome:
    plan = plan_of(platform, seed)
    settled = float(seed)
    return Outcome(plan, 3, 100, given.pop("wrong", []), [], share, settled, [6.0 + seed], **given)


def run(file: Path, *results: Outcome | NotPlayed) -> Path:
    plans = (item.plans if isinstance(item, NotPlayed) else [item.plan] for item in results)
    added = Results(itertools.chain.from_iterable(plans))
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
    whole = Results(item.plan for item in outcomes)
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
        NotPlayed([plan_of("mqtt", 2)], "no broker:\nits port is taken\n"),
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
    cause = "no broker: its port is taken"
    assert summary["causes"] == ({cause: 1} if isinstance(last, NotPlayed) else {})
    assert summary["not_played"] == len(summary["causes"])


def test_the_planned_share_of_an_episode_is_judged_and_the_measured_one_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = run(tmp_path / "busy", outcome(1, share=0.31))
    capsys.readouterr()
    assert add_up(monkeypatch, busy) == 0
    assert json.loads(capsys.readouterr().out)["excused"]["seeds_above_0.3"] == [1]
    short = replace(outcome(4), plan=replace(plan_of("mqtt", 4), seconds=60.0))
    file = run(tmp_path / "short", short)
    capsys.readouterr()
    assert add_up(monkeypatch, file) == 1
    assert json.loads(capsys.readouterr().out)["excused"]["seeds_planned_above_0.3"] == [4]


def test_a_seed_that_another_run_has_played_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = [plan_of("mqtt", seed) for seed in (2, 3)]
    first = run(tmp_path / "first", outcome(1), NotPlayed(plans, "no broker"))
    second, third = (run(tmp_path / str(seed), outcome(seed)) for seed in (2, 3))
    capsys.readouterr()
    assert add_up(monkeypatch, first, second) == 1
    summary = json.loads(capsys.readouterr().out)
    assert (summary["not_played"], summary["causes"]) == (1, {"no broker": 1})
    assert add_up(monkeypatch, first, second, third) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["episodes"], summary["not_played"], summary["causes"]) == (3, 0, {})


def test_where_no_episode_was_played_the_causes_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run(tmp_path / "none", NotPlayed([plan_of("mqtt", 1)], "no broker"))
    capsys.readouterr()
    assert add_up(monkeypatch, file) == 1
    assert capsys.readouterr().err == "no episode was played\n  1 for no broker\n"


def test_a_run_is_written_behind_its_summary_to_a_folder_that_was_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new" / "run"

    def play(plans: list[Plan], results: Results, *_: object) -> None:
        assert file.parent.is_dir(), "an episode is played before there is a folder"
        results.add(outcome(plans[0].seed, "simulated"))
        # What cannot be written must not cost the summary.
        file.mkdir()

    monkeypatch.setattr(program, "_play_simulated", play)
    arguments = ["chaos", "--world", "simulated", "--episodes", "1", "--write", str(file)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(IsADirectoryError):
        program.main()
    assert json.loads(capsys.readouterr().out)["episodes"] == 1


@pytest.mark.parametrize("option", ["--mutant", "--replay"])
def test_a_run_of_something_else_than_seeds_is_not_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
) -> None:
    arguments = ["chaos", "--write", str(tmp_path / "run"), option, "all"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match="2"):
        program.main()
    assert "--write is for the seeds" in capsys.readouterr().err


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
