"""The units: systemd's own judgement, in a tree laid out as in the guide."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from agent.config import check_agent
from aggregator.config import load_aggregator
from service.configuration import read_toml

ROOT = Path(__file__).parent.parent.parent
UNITS = sorted((ROOT / "systemd").glob("*.service"))


@pytest.mark.server
@pytest.mark.parametrize("with_drop_ins", [False, True], ids=["alone", "with-drop-ins"])
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit(unit: Path, with_drop_ins: bool, tmp_path: Path) -> None:
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
    if with_drop_ins:
        shutil.copytree(unit.with_name(f"{unit.name}.d"), place / f"{unit.name}.d")
    result = subprocess.run(
        ["systemd-analyze", "verify", f"--root={tmp_path}", f"/etc/systemd/system/{unit.name}"],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in result.stderr.splitlines() if "npu-vigil" in line]
    assert (result.returncode, ours) == (0, []), result.stderr


@pytest.mark.server
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_wrong_setting_is_found(unit: Path, tmp_path: Path) -> None:
    place = tmp_path / unit.name
    place.write_text(unit.read_text().replace("WatchdogSec=60", "WatchdogSec=sometimes"))
    result = subprocess.run(
        ["systemd-analyze", "verify", place], capture_output=True, text=True, check=False
    )
    assert "sometimes" in result.stderr


@pytest.mark.server
def test_a_wrong_drop_in_is_found(tmp_path: Path) -> None:
    unit = ROOT / "systemd/npu-vigil-aggregator.service"
    shutil.copy(unit, tmp_path)
    folder = tmp_path / f"{unit.name}.d"
    folder.mkdir()
    drop_in = ROOT / "systemd" / folder.name / "mqtt.conf"
    (folder / "mqtt.conf").write_text(drop_in.read_text().replace("LoadCredential=", "Load="))
    result = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / unit.name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "mqtt.conf:3: Unknown key" in result.stderr


# The agent needs root, devices and the kernel's log; the aggregator nothing of it.
@pytest.mark.server
@pytest.mark.parametrize(("unit", "exposure"), [("agent", 40), ("aggregator", 15)])
def test_no_unit_is_more_open_than_it_must_be(unit: str, exposure: int) -> None:
    file = ROOT / f"systemd/npu-vigil-{unit}.service"
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={exposure}"]
    result = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-300:]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_documentation_that_a_unit_names_is_installed(unit: Path) -> None:
    (line,) = [line for line in unit.read_text().splitlines() if line.startswith("Documentation=")]
    installed = "/opt/npu-vigil/share/doc"
    guide = (ROOT / "docs/installation.md").read_text()
    assert f"\ncp -R README.md docs {installed}/\n" in guide
    for url in line.removeprefix("Documentation=").split():
        assert (ROOT / url.removeprefix(f"file:{installed}/")).is_file(), url


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_sets_how_many_files_it_may_open(unit: Path) -> None:
    assert "\nLimitNOFILE=" in unit.read_text()


@pytest.mark.parametrize("name", ["agent", "agent-mqtt", "agent-shared"])
def test_the_configurations_of_the_agent_are_right(name: str) -> None:
    file = ROOT / f"systemd/{name}.toml"
    check_agent(read_toml(file), str(file))


@pytest.mark.parametrize("name", ["aggregator", "aggregator-mqtt"])
def test_the_configurations_of_the_aggregator_are_right(name: str) -> None:
    configuration = load_aggregator(ROOT / f"systemd/{name}.toml", {}, {})
    assert configuration.public_faults.namespaces == ("mindx-dl", "cluster-system")
    assert configuration.rank_tables.namespaces == ("*",)


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
        "MANIFEST.in",
        "README.md",
        "pyproject.toml",
        "release",  # builds the packages
        "requirements.lock",
        "service",
    }
