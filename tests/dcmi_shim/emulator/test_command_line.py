"""``vigil emulator`` and ``vigil simulate`` as a person runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dcmi_shim.emulator.install import LIBRARY
from tests.dcmi_shim.emulator.driver import Driver, wait_until
from tests.parts.verbs import vigil_process

if TYPE_CHECKING:
    from tests.dcmi_shim.emulator.conftest import Server

pytestmark = pytest.mark.daemon

ROOT = Path(__file__).parents[3]


def _status(server: Server) -> dict[str, Any]:
    result = vigil_process("emulator", "status", "--json", VIGIL_EMULATOR_DIR=server.emulator_dir)
    assert result.returncode == 0
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_install_and_everything_after_it(tmp_path: Path) -> None:
    result = vigil_process("emulator", "install", tmp_path / "driver", "--profile", "a3")
    assert (result.returncode, result.stderr) == (0, "")
    assert f"VIGIL_EMULATOR_DIR={tmp_path}/driver/emulator" in result.stdout
    driver = Driver(tmp_path / "driver" / LIBRARY)
    assert driver.init() == 0
    assert driver.health(7, 1) == 0
    place = ("--emulator-dir", tmp_path / "driver" / "emulator")
    assert vigil_process("simulate", "occur", 15, "80E18402", *place).returncode == 0
    wait_until(lambda: driver.codes(7, 1) == ["80E18402"])
    result = vigil_process("emulator", "status", *place)
    assert "profile a3" in result.stdout
    assert "chip 15  card 7 device 1  health 3, 80E18402 severity 3" in result.stdout
    assert vigil_process("emulator", "start", *place).returncode == 0
    assert driver.health(7, 1) == -8001 or driver.health(7, 1) == -8007
    assert driver.health(7, 0) == 0


def test_start_makes_a_directory_that_was_not_installed(tmp_path: Path) -> None:
    place = {"VIGIL_EMULATOR_DIR": str(tmp_path / "another")}
    result = vigil_process("emulator", "start", "--profile", "a3", **place)
    assert (result.returncode, result.stderr) == (0, "")
    assert vigil_process("simulate", "occur", "15", "80E18402", **place).returncode == 0
    assert "80E18402" in vigil_process("emulator", "status", **place).stdout


def test_state_where_the_environment_sets_it(tmp_path: Path) -> None:
    place = tmp_path / "state"
    result = vigil_process("emulator", "install", tmp_path / "driver", VIGIL_EMULATOR_DIR=place)
    assert result.returncode == 0
    assert (place / "state").is_file()
    assert not (tmp_path / "driver" / "emulator").exists()


def test_every_verb(a2: Server) -> None:
    def simulate(*arguments: object) -> None:
        result = vigil_process("simulate", *arguments, VIGIL_EMULATOR_DIR=a2.emulator_dir)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")

    simulate("occur", 3, "0x80e01801")
    simulate("occur", 4, "80E18402", "--severity", "Minor")
    simulate("once", 4, "80E18402")
    simulate("drop", 1)
    simulate("drop", 2, "--hard")
    simulate("hang", "dcmi_get_device_voltage")
    simulate("slow", "get_device_temperature", 20, "--chip", 5)
    simulate("fail", "get_device_temperature", -8005, "--chip", 5)
    simulate("link", 6, "down", "--quietly")
    simulate("tool", "hccn_tool", "slow", 20, "--chip", 5)
    simulate("tool", "hccn_tool", "fail", 3, "not now")
    simulate("tool", "ipmitool", "hang")
    now = _status(a2)
    assert [chip["link"] for chip in now["chips"][5:]] == ["up", "down", "up"]
    assert [chip["dropped"] for chip in now["chips"][:3]] == [None, "health", "hard"]
    active = [[fault["code"] for fault in chip["active"]] for chip in now["chips"]]
    assert active[3:5] == [["80E01801"], ["80E18402"]]
    assert now["chips"][4]["active"][0]["severity"] == 1
    assert [(h["function"], h["chip"]) for h in now["hooks"]] == [
        ("dcmi_get_device_temperature", 5),
        ("dcmi_get_device_voltage", None),
    ]
    assert (now["hooks"][0]["slow_ms"], now["hooks"][0]["return_code"]) == (20, -8005)
    shown = vigil_process("emulator", "status", VIGIL_EMULATOR_DIR=a2.emulator_dir).stdout
    assert "dcmi_get_device_voltage on every chip: hangs\n" in shown
    assert "dcmi_get_device_temperature on chip 5: 20 ms slower, answers -8005\n" in shown
    assert "chip  2  card 2 device 0  health 0, dropped (hard)\n" in shown
    assert "chip  6  card 6 device 0  health 1, link down, 81078603 severity 1\n" in shown
    assert "hccn_tool, every run: exit status 3 not now\n" in shown
    assert "hccn_tool, runs for chip 5: 20 ms slower\n" in shown
    assert "ipmitool, every run: hang\n" in shown
    simulate("tool", "hccn_tool", "ok")
    simulate("tool", "ipmitool", "ok")
    simulate("link", 6, "up")
    assert _status(a2)["tools"] == []
    simulate("recover", 3, "80E01801")
    simulate("return", 1)
    simulate("clear", "get_device_voltage")
    simulate("clear", "get_device_temperature", "--chip", 5)
    now = _status(a2)
    assert now["chips"][3]["active"] == []
    assert now["chips"][1]["dropped"] is None
    assert now["hooks"] == []
    simulate("reset")
    assert _status(a2)["chips"][2]["dropped"] is None


def test_a_scenario_from_the_command_line(a2: Server, tmp_path: Path) -> None:
    scenario_file = tmp_path / "scenario.toml"
    scenario_file.write_text('steps = [{at_ms = 0, do = "drop", chip = 6}]')
    environment = {"VIGIL_EMULATOR_DIR": a2.emulator_dir}
    a2.emulator.drop(0)
    assert vigil_process("simulate", "play", scenario_file, **environment).returncode == 0
    assert [a2.driver.health(card) for card in (0, 6)] == [-8012, -8012]
    assert (
        vigil_process("emulator", "start", "--scenario", scenario_file, **environment).returncode
        == 0
    )
    assert [a2.driver.health(card) for card in (0, 6)] == [0, -8012]
    result = vigil_process(
        "emulator", "start", "--profile", "a3", "--scenario", scenario_file, **environment
    )
    assert (result.returncode, a2.driver.health(6)) == (2, -8012)
    assert "--profile" in result.stderr


WRONG = [
    (("simulate", "occur", 8, "80E01801"), "8 is not a chip"),
    (("simulate", "occur", 0, "80E01801", "--severity", "bad"), "'bad' is none of suggestion"),
    (("simulate", "occur", "one", "80E01801"), "CHIP"),
    (("simulate", "link", 1, "sideways"), "sideways"),
    (("simulate", "link", 8, "up"), "8 is not a chip"),
    (("simulate", "jump"), "jump"),
    (("emulator", "start", "--profile", "a9"), "'a9' is unknown"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_use(a2: Server, arguments: tuple[object, ...], message: str) -> None:
    before = _status(a2)
    result = vigil_process(*arguments, VIGIL_EMULATOR_DIR=a2.emulator_dir)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert _status(a2) == before


def test_no_place_is_known() -> None:
    result = vigil_process("simulate", "reset")
    assert result.returncode == 2
    assert "set VIGIL_EMULATOR_DIR" in result.stderr


def test_impossible_changes_end_with_status_1(a2: Server, tmp_path: Path) -> None:
    result = vigil_process("simulate", "recover", 0, "80E01801", VIGIL_EMULATOR_DIR=a2.emulator_dir)
    assert (result.returncode, result.stderr) == (
        1,
        "vigil: chip 0 has no fault 80E01801 to recover from\n",
    )
    result = vigil_process("emulator", "status", VIGIL_EMULATOR_DIR=tmp_path)
    assert result.returncode == 1
    assert "run vigil emulator install" in result.stderr
