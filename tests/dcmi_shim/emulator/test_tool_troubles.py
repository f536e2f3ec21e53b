"""Tools that hang, are slow, fail, print rubbish, and where they find their hardware."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from contract.errors import ConfigurationError
from dcmi_shim.emulator.install import HCCN_TOOL, LIBRARY
from dcmi_shim.emulator.scenario import parse_scenario, play
from tests.parts.deadlines import let_time_pass, nothing_happens_for, patience

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dcmi_shim.emulator.conftest import Server

UP = (0, b"link status: UP\n", b"")


def _tool(server: Server) -> Path:
    return server.library.parents[len(LIBRARY.parts) - 1] / HCCN_TOOL


def _start(server: Server, chip: int = 0) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [_tool(server), "-i", str(chip), "-link", "-g"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
    )


def _end(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    stdout, stderr = process.communicate(timeout=patience(10))
    return process.returncode, stdout, stderr


def _ask(server: Server, chip: int = 0) -> tuple[int, bytes, bytes]:
    return _end(_start(server, chip))


def _troubles(server: Server) -> list[dict[str, Any]]:
    found = server.emulator.status()["tools"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("how", ["ok", "reset", "start"])
def test_a_hang_on_one_chip_and_its_end(a2: Server, how: str) -> None:
    a2.emulator.tool("hccn_tool", "hang", 3)
    stuck = _start(a2, 3)
    assert _ask(a2, 2) == UP
    nothing_happens_for(0.05, because="the tool answers within milliseconds")
    assert stuck.poll() is None
    if how == "ok":
        a2.emulator.tool("hccn_tool", "ok", 2)
        nothing_happens_for(0.02, because="a tool that is let go answers within milliseconds")
        assert stuck.poll() is None
        a2.emulator.tool("hccn_tool", "ok", 3)
    elif how == "reset":
        a2.emulator.reset()
    else:
        a2.emulator.start("a2")
    assert _end(stuck) == UP
    assert _troubles(a2) == []


def test_slow_and_failing_and_garbled(a2: Server) -> None:
    a2.emulator.tool("hccn_tool", "slow", delay_ms=200)
    began = time.monotonic()
    assert _ask(a2) == UP
    assert 0.2 <= time.monotonic() - began < patience(2)
    a2.emulator.tool("hccn_tool", "ok")
    a2.emulator.tool("hccn_tool", "fail", 1, exit_status=3, text='say "no" \\ never')
    a2.emulator.tool("hccn_tool", "garble", 2)
    assert _ask(a2, 0) == UP
    assert _ask(a2, 1) == (3, b"", b'say "no" \\ never\n')
    status, stdout, stderr = _ask(a2, 2)
    assert (status, stderr) == (0, b"")
    assert stdout
    assert b"link status" not in stdout
    normal: dict[str, object] = {
        "tool": "hccn_tool",
        "hang": False,
        "slow_ms": 0,
        "garble": False,
        "busy": False,
        "other_chip": False,
        "exit_status": 0,
        "text": "",
    }
    assert _troubles(a2) == [
        {**normal, "chip": 1, "exit_status": 3, "text": 'say "no" \\ never'},
        {**normal, "chip": 2, "garble": True},
    ]
    a2.emulator.tool("hccn_tool", "ok")
    assert _troubles(a2) == []
    assert _ask(a2, 1) == UP


def test_it_answers_for_another_chip(a2: Server) -> None:
    a2.emulator.link(4, up=False)
    a2.emulator.tool("hccn_tool", "other-chip", 3)
    assert _ask(a2, 3) == (0, b"[devid 4]link status: DOWN\n", b"")
    assert _ask(a2, 4) == (0, b"link status: DOWN\n", b"")


def test_it_refuses_a_run_beside_another(a2: Server) -> None:
    a2.emulator.tool("hccn_tool", "hang", 3)
    first = _start(a2, 3)
    let_time_pass(0.05)
    assert _ask(a2, 2) == UP
    a2.emulator.tool("hccn_tool", "busy")
    assert _ask(a2, 2) == (11, b"hccn_tool is busy, please try again.\n", b"")
    first.kill()
    _end(first)
    assert _ask(a2, 2) == UP


def test_a_scenario_with_links_and_tools(a2: Server) -> None:
    text = """
    steps = [
        {at_ms = 0, do = "link", chip = 1, state = "down", quietly = true},
        {at_ms = 0, do = "link", chip = 2, state = "down"},
        {at_ms = 0, do = "link", chip = 2, state = "up"},
        {at_ms = 0, do = "tool", tool = "hccn_tool", trouble = "slow", delay_ms = 1},
        {at_ms = 0, do = "tool", tool = "hccn_tool", trouble = "hang", chip = 3},
        {at_ms = 0, do = "tool", tool = "hccn_tool", trouble = "ok", chip = 3},
        {at_ms = 9, do = "tool", tool = "hccn_tool", trouble = "fail", exit_status = 3, chip = 4},
    ]
    """
    play(parse_scenario(text, "scenario.toml"), a2.emulator)
    assert _ask(a2, 1)[1] == b"link status: DOWN\n"
    assert [_ask(a2, chip)[0] for chip in (2, 3, 4)] == [0, 0, 3]


WRONG: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("npu-smi", "hang"), {}, "'npu-smi' is unknown; there are hccn_tool, ipmitool"),
    (("hccn_tool", "sleep"), {}, "'sleep' is unknown; there are ok, hang"),
    (("hccn_tool", "hang", -2), {}, "-2 is not a chip"),
    (("hccn_tool", "hang", 8), {}, "8 is not a chip of this server"),
    (("ipmitool", "hang", 1), {}, "ipmitool is not about a chip"),
    (("hccn_tool", "slow"), {}, "None is not between 1 and 3600000"),
    (("hccn_tool", "fail"), {"exit_status": 256}, "256 is not between 1 and 255"),
    (("hccn_tool", "hang"), {"delay_ms": 1}, "belongs to slow, not to hang"),
    (("hccn_tool", "ok"), {"exit_status": 1}, "belong to fail, not ok"),
    (("hccn_tool", "fail"), {"exit_status": 1, "text": "x" * 120}, "at most 119 characters"),
]


@pytest.mark.parametrize(("arguments", "values", "message"), WRONG, ids=[w[2] for w in WRONG])
def test_wrong_troubles(
    a2: Server, arguments: tuple[Any, ...], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        a2.emulator.tool(*arguments, **values)
    assert message in str(caught.value)
    assert _troubles(a2) == []


def test_wrong_steps_are_named() -> None:
    text = """
    steps = [
        {at_ms = 0, do = "tool", tool = "hccn_tool", trouble = "slow"},
        {at_ms = 0, do = "tool", trouble = "hang"},
        {at_ms = 0, do = "link", chip = 9, state = "up"},
        {at_ms = 0, do = "link", chip = 1, state = "sideways"},
    ]
    """
    with pytest.raises(ConfigurationError) as caught:
        parse_scenario(text, "scenario.toml")
    assert [str(problem) for problem in caught.value.problems] == [
        "steps[0]: delay_ms: None is not between 1 and 3600000",
        "steps[1].tool: is missing",
        "steps[3].state: must be 'up' or 'down'",
        "steps[2].chip: a2 has the chips 0 to 7, not 9",
    ]


CALLER = "import subprocess, sys; print(subprocess.run(sys.argv[1:], env={}, capture_output=True))"


def _copy(server: Server, place: Path) -> list[object]:
    """Copy the tool to ``place``, with its own hardware; return the arguments for a request."""
    shutil.copy(_tool(server), place / "hccn_tool")
    shutil.copy(server.emulator_dir / "state", place / "state")
    (place / "emulator-dir").write_text(f"{place}\n")
    return [place / "hccn_tool", "-i", "0", "-link", "-g"]


@pytest.mark.slow
def test_where_it_finds_its_hardware(a2: Server, tmp_path: Path) -> None:
    command = _copy(a2, tmp_path)
    a2.emulator.link(0, up=False)
    environment = {"VIGIL_EMULATOR_DIR": str(a2.emulator_dir)}

    def run(command: list[Any], environment: dict[str, str]) -> bytes:
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    assert run(command, {}) == b"link status: UP\n"
    assert run(command, environment) == b"link status: DOWN\n"
    assert b"status: DOWN" in run([sys.executable, "-c", CALLER, *command], environment)
    assert b"status: UP" in run([sys.executable, "-c", CALLER, *command], {})


def test_hardware_that_is_gone(a2: Server, tmp_path: Path) -> None:
    command: list[Any] = _copy(a2, tmp_path)
    (tmp_path / "state").unlink()
    result = subprocess.run(command, env={}, capture_output=True)
    assert (result.returncode, result.stdout) == (1, b"")
    assert b"the emulated hardware cannot be used: No such file" in result.stderr
