"""The benchmark of decisions runs, and faults of bad cards are decided about in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import decisions

if TYPE_CHECKING:
    import pytest


def test_it_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["decisions", "--nodes", "400", "--pods", "800"])
    assert decisions.main() == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "400 nodes, 800 pods, 100 jobs"
    counts = [int(line.split(", ")[1].removesuffix(" deletions")) for line in printed[1:]]
    assert counts[0] > 20
    assert counts[1:5] == [0] * 4
