"""The dump in ``docs/examples``, which the README uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vigil.main import app

ROOT = Path(__file__).parents[3]
EXAMPLE = "docs/examples/cluster.json"


def test_the_commands_of_the_readme() -> None:
    lines = [
        line.strip()
        for line in (ROOT / "README.md").read_text().splitlines()
        if EXAMPLE in line and "vigil advise" in line
    ]
    assert len(lines) == 2
    outputs = []
    for line in lines:
        command = line.partition("#")[0].split("vigil advise ")[1].strip()
        options, _, assumed = command.partition(" --what-if ")
        given = [str(ROOT / word) if word == EXAMPLE else word for word in options.split()]
        if assumed:
            given += ["--what-if", assumed.strip("'")]
        result = CliRunner().invoke(app, ["advise", *given])
        outputs.append((result.exit_code, result.stdout))
    (rest, calm), (ill, assumed_output) = outputs
    assert (rest, ill) == (0, 1)
    assert "nothing happens" in calm
    assert "deletes with 600 s: train-worker-0, train-worker-1" in assumed_output


_BOTH = """
import sys
from typer.testing import CliRunner
from vigil.main import app
for options in ([], ["--json"]):
    given = ["advise", "--dump", sys.argv[1], "--what-if", "chip 3 of node-2 SeparateNPU", *options]
    result = CliRunner().invoke(app, given)
    print(result.exit_code, result.stdout)
"""


@pytest.mark.slow
def test_text_and_json_are_the_same_bytes_for_any_hash_seed() -> None:
    printed = []
    for seed in ("0", "1", "4711"):
        ran = subprocess.run(
            [sys.executable, "-c", _BOTH, str(ROOT / EXAMPLE)],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, b"")
        printed.append(ran.stdout)
    assert printed[0].startswith(b"1 ")
    assert b'\n1 {"profile":"upstream"' in printed[0]
    assert set(printed) == {printed[0]}
