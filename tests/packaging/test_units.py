"""The units: systemd's own judgement, in a tree laid out as the guide says."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from agent.config import check_agent_file
from aggregator.config import load_aggregator

ROOT = Path(__file__).parent.parent.parent
UNITS = sorted((ROOT / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    program = tmp_path / "opt/npu-vigil/bin/vigil"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    place = tmp_path / "etc/systemd/system"
    place.mkdir(parents=True)
    # What the units are wanted by and come after is systemd's own.
    for library in ("/usr/lib/systemd/system", "/lib/systemd/system"):
        if Path(library).is_dir():
            shutil.copytree(library, tmp_path / "usr/lib/systemd/system", symlinks=True)
            break
    shutil.copy(unit, place)
    result = subprocess.run(
        ["systemd-analyze", "verify", f"--root={tmp_path}", f"/etc/systemd/system/{unit.name}"],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in result.stderr.splitlines() if "npu-vigil" in line]
    assert (result.returncode, ours) == (0, []), result.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_wrong_setting_is_found(unit: Path, tmp_path: Path) -> None:
    place = tmp_path / unit.name
    place.write_text(unit.read_text().replace("WatchdogSec=60", "WatchdogSec=sometimes"))
    result = subprocess.run(
        ["systemd-analyze", "verify", place], capture_output=True, text=True, check=False
    )
    assert "sometimes" in result.stderr


def test_the_shipped_configurations_are_right() -> None:
    check_agent_file(ROOT / "systemd/agent.toml")
    load_aggregator(ROOT / "systemd/aggregator.toml", {}, {})


def test_the_image_takes_in_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {
        name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    taken = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert packages <= taken
    assert taken - packages <= {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "requirements.lock",
        "service",
    }
