"""Switch faults as people cause them: command line and scenario files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from contract.errors import ConfigurationError
from dcmi_shim.emulator.scenario import parse_scenario, play
from tests.parts.verbs import vigil_process

if TYPE_CHECKING:
    import subprocess

    from tests.dcmi_shim.emulator.conftest import Server

MEMBERS = ("event_type", "sub_type", "peer", "chip", "port", "severity")
ROOT = Path(__file__).parents[3]
SCENARIO = """
profile = "a3"
steps = [
    {at_ms = 0, do = "switch_occur", code = "[0x00F1FEF5,155912,cpu,na]", chip = 2, port = 3},
    {at_ms = 0, do = "switch_occur", code = "[0x08520003,na,L2,na]", chip = 1, severity = "minor"},
    {at_ms = 0, do = "switch_once", code = "[0x00f1ff06,155910,na,na]", chip = 6},
    {at_ms = 10, do = "switch_recover", code = "[0x00f1fef5,155912,cpu,na]", chip = 2, port = 3},
]
"""


def _vigil(server: Server, *arguments: object) -> subprocess.CompletedProcess[str]:
    return vigil_process(*arguments, VIGIL_EMULATOR_DIR=server.emulator_dir)


def _faults(server: Server) -> list[tuple[int, ...]]:
    status: Any = server.emulator.status()
    return [tuple(fault[key] for key in MEMBERS) for fault in status["switch"]["faults"]]


@pytest.mark.daemon
def test_from_the_command_line(a3: Server) -> None:
    def simulate(*arguments: object) -> None:
        result = _vigil(a3, "simulate", "switch", *arguments)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")

    code = "[0x00f1fef5,155912,cpu,na]"
    simulate("occur", code, "--chip", 2, "--port", 3, "--peer-port", 4)
    simulate(
        *("occur", "0x08520003", "na", "--chip", 1, "--port", 7),
        *("--peer", "l2", "--severity", "critical"),
    )
    simulate("occur", "00f103b6", 155909, "--chip", 6)
    simulate("once", code, "--chip", 0, "--port", 0, "--severity", "minor")
    assert _faults(a3) == [
        (0x00F1FEF5, 155912, 0, 2, 3, 2),
        (0x08520003, 0xFFFFFFFF, 2, 1, 7, 3),
        (0x00F103B6, 155909, 65535, 6, 65535, 2),
    ]
    shown = _vigil(a3, "emulator", "status").stdout.splitlines()
    assert [line for line in shown if line.startswith("switch chip")] == [
        "switch chip 2 port 3  [0x00f1fef5,155912,cpu,na] peer port 4 severity 2",
        "switch chip 1 port 7  [0x08520003,na,L2,na] peer port 0 severity 3",
        "switch chip 6 whole chip  [0x00f103b6,155909,na,na] peer port 0 severity 2",
    ]
    simulate("recover", code, "--chip", 2, "--port", 3, "--peer-port", 4)
    assert len(_faults(a3)) == 2
    again = _vigil(a3, "simulate", "switch", "recover", code, "--chip", 2, "--port", 3)
    assert again.returncode == 1
    assert "switch chip 2 port 3 has no fault [0x00f1fef5,155912,cpu,na]" in again.stderr
    assert _vigil(a3, "simulate", "reset").returncode == 0
    assert _faults(a3) == []


@pytest.mark.daemon
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fef5", "--chip", 1), "'fef5' is neither an event type"),
        (("[0x00f1fef5,155912,gpu,na]", "--chip", 1), "'gpu' is not a valid peer"),
        (("[0x00f1fef5,155912,na]", "--chip", 1), "is not a switch code"),
        (("0x00f1fef5", 4294967296, "--chip", 1), "has more than 32 bits"),
        (("[0x00f1fef5,155912,cpu,na]", "na", "--chip", 1), "contains sub-type and peer already"),
        (("0x00000000", "na", "--chip", 1), "the event type 0 is none"),
        (("0x00f1fef5", "na", "--chip", 9), "9 is not a valid switch chip"),
        (("0x00f1fef5", "na"), "--chip"),
        (("0x00f1fef5", "na", "--chip", 1, "--severity", "bad"), "'bad' is none of"),
    ],
)
def test_wrong_use(a3: Server, arguments: tuple[object, ...], message: str) -> None:
    result = _vigil(a3, "simulate", "switch", "occur", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert _faults(a3) == []


@pytest.mark.daemon
def test_a_server_without_switches(a2: Server) -> None:
    result = _vigil(a2, "simulate", "switch", "occur", "0x00f1fef5", "na", "--chip", 1)
    assert result.returncode == 2
    assert "this server has no on-board switches; an a3 has" in result.stderr


def test_a_scenario(a3: Server) -> None:
    play(parse_scenario(SCENARIO, "scenario.toml"), a3.emulator)
    assert _faults(a3) == [(0x08520003, 0xFFFFFFFF, 2, 1, 65535, 1)]
    status: Any = a3.emulator.status()
    assert status["switch"]["events"] >= 4


def test_all_problems_of_a_scenario() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_scenario(
            """
profile = "a2"
steps = [
    {at_ms = 0, do = "switch_occur", code = "[0x00f1fef5,155912,cpu]", chip = 2},
    {at_ms = 0, do = "switch_occur", code = "[0x00f1fef5,155912,cpu,na]", chip = 7},
    {at_ms = 0, do = "switch_once", code = "[0x00f1fef5,155912,cpu,na]", chip = 0, port = 48},
    {at_ms = 5, do = "switch_recover", code = "[0x08520003,na,L2,na]", chip=0, severity="major"},
]""",
            "scenario.toml",
        )
    problems = "\n".join(map(str, caught.value.problems))
    assert "steps[0].code: '[0x00f1fef5,155912,cpu]' is not a switch code" in problems
    assert "steps[1].chip: must be less than 7" in problems
    assert "steps[2]: 48 is not a valid port of a switch; there are 0 to 47" in problems
    assert "steps[3]: a recovery has no severity" in problems
    assert problems.count("a2 has no switches") == 4
