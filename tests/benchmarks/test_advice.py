"""The benchmark of advice in the aggregator runs, and its changes are advised about."""

from __future__ import annotations

import pytest

from benchmarks import advice


@pytest.mark.slow
def test_it_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "--nodes 60 --pods 120 --jobs 15 --changes 5 --pause 0.05 --rest 0.5"
    monkeypatch.setattr("sys.argv", ["advice", *arguments.split()])
    advice.main()
    printed = dict(line.rsplit(None, 1) for line in capsys.readouterr().out.splitlines()[:3])
    assert float(printed[next(name for name in printed if "decisions" in name)]) > 0
