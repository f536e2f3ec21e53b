"""The demo as a person runs it, and a demo that must fail."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from vigil.demo.command import Options, play
from vigil.demo.story import STORY, LoseNext

if TYPE_CHECKING:
    from pathlib import Path


def _demo(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vigil", "demo", *options],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.mark.timeout(120)
def test_demo_reaches_every_expected_state() -> None:
    done = _demo("--json", "--speed", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["well"]
    assert [step["title"] for step in report["steps"]] == [step.title for step in STORY]
    assert all(
        step["cluster_info_ms"] > 0
        for step, told in zip(report["steps"], STORY, strict=True)
        if not told.unchanged
    )


@pytest.mark.timeout(120)
async def test_demo_notices_a_lost_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lossy = replace(STORY[1], actions=(LoseNext(0), *STORY[1].actions))
    options = Options(
        directory=tmp_path, nodes=1, speed=4.0, json=True, keep=False, store=None, kubeconfig=None
    )
    assert not await play(options, (STORY[0], lossy))
    report = json.loads(capsys.readouterr().out)
    assert not report["well"]
    assert not report["steps"][0]["problems"]
    assert any("device-info" in problem for problem in report["steps"][1]["problems"])


def test_wrong_options_end_with_status_2() -> None:
    assert _demo("--nodes", "0").returncode == 2
    refused = _demo("--store", "nonsense:")
    assert refused.returncode == 2, refused.stderr
    assert "nonsense" in refused.stderr
