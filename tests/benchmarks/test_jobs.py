"""The benchmark of the job view runs, and what it makes happen does happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import jobs

if TYPE_CHECKING:
    import pytest


def test_it_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["jobs", "--nodes", "40"])
    assert jobs.main() == 0
    reported = capsys.readouterr().out
    assert "40 nodes of 16 chips, 80 pods, 8 jobs" in reported
    assert "its trigger comes" in reported
