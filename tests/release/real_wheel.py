"""The wheel alone, with other Pythons than that of the tests: each verb, and the demonstration.

The wheel's own metadata decides what is installed, in the versions of the lock. Needs the package
index and gcc.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from release.build import LOCK_NAME, Source, build_python
from release.sbom import read_lock
from tests.parts.deadlines import patience
from tests.parts.tree import ROOT
from tests.release.interpreters import MIN_INTERPRETERS, interpreters
from tests.release.trees import COMMIT, EPOCH, VERSION, copy_tree
from vigil.main import _VERBS

pytestmark = pytest.mark.server
_UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return build_python(Source(copy_tree(folder / "tree"), VERSION, COMMIT, EPOCH), folder)


@pytest.fixture(scope="module", params=list(interpreters().values()), ids=list(interpreters()))
def command(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return ``vigil`` of an environment that has the wheel and what its metadata requires."""
    folder = tmp_path_factory.mktemp("environment")
    lock = read_lock((ROOT / LOCK_NAME).read_text(encoding="utf-8"))
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, (version, _) in lock.items()))
    environment = folder / "environment"
    _run(_UV, "venv", "--quiet", "--python", request.param, environment)
    python = environment / "bin" / "python"
    _run(_UV, "pip", "install", "--quiet", "--python", python, "-c", constraints, wheel)
    return environment / "bin" / "vigil"


def test_the_machine_has_enough_other_pythons() -> None:
    assert len(interpreters()) >= MIN_INTERPRETERS


def test_each_verb_explains_itself(command: Path) -> None:
    assert COMMIT in _run(command, "--version", "--json")
    for verb in _VERBS:
        assert "Usage: vigil" in _run(command, verb, "--help"), verb


def test_the_demonstration_plays_to_its_end(command: Path) -> None:
    # The speed divides the timeouts of the scenario: a machine that is slow gets longer ones.
    speed = str(max(0.1, 2.5 / patience(1.0)))
    assert _run(command, "demo", "--speed", speed).endswith(": all is well\n")


def _run(*arguments: str | Path) -> str:
    """Run a command outside of the repository, whose modules would be imported; its output."""
    done = subprocess.run(
        arguments,
        cwd="/",
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(150),
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout
