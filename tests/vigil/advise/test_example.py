"""The dump in ``docs/examples``, which the README uses."""

from __future__ import annotations

from pathlib import Path

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
        given = options.replace(EXAMPLE, str(ROOT / EXAMPLE)).split()
        if assumed:
            given += ["--what-if", assumed.strip("'")]
        result = CliRunner().invoke(app, ["advise", *given])
        outputs.append((result.exit_code, result.stdout))
    (rest, calm), (ill, assumed_output) = outputs
    assert (rest, ill) == (0, 1)
    assert "nothing happens" in calm
    assert "deletes with 600 s: train-worker-0, train-worker-1" in assumed_output
