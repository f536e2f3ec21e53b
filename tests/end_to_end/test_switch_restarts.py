"""A real agent on an A3: faults of its on-board switches in device-info."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.switch_codes import parse_switch_code
from dcmi_shim.emulator.switch_faults import EmulatedSwitchFault
from tests.end_to_end.node import Node
from tests.parts.deadlines import let_time_pass, patience
from tests.parts.places import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESTART = EmulatedSwitchFault(parse_switch_code("[0x00f1fef5,155914,npu,na]"), 2, 7, 3)
NOTICE = EmulatedSwitchFault(parse_switch_code("[0x00f1ff06,155910,na,na]"), 1, 2, 0)
CLEAN: tuple[list[str], str, str] = ([], "", "Healthy")


@pytest.fixture
def node(tmp_path: Path, built_a3: Path) -> Iterator[Node]:
    node = Node(tmp_path, built_a3, Folder(tmp_path / "store"), profile="a3")
    yield node
    node.close()


def switches(node: Node) -> tuple[list[str], str, str] | None:
    """Return codes, level and node status of ``SwitchInfoCfg``; ``None`` before switches answer."""
    data = node.place.read(node.document)
    info: dict[str, Any] = {} if data is None else json.loads(data["SwitchInfoCfg"])
    if data is None or info["FaultCode"] is None:
        return None
    codes = [json.loads(event)["AssembledFaultCode"] for event in info["FaultCode"]]
    device_info = json.loads(data["DeviceInfoCfg"])["DeviceInfo"]
    assert info["UpdateTime"] == device_info["UpdateTime"]
    return codes, info["FaultLevel"], info["NodeStatus"]


@pytest.mark.daemon
def test_faults_of_switches_come_go_and_outlive_restarts(node: Node) -> None:
    node.start()
    node.wait(lambda: switches(node) == CLEAN, "the clean document")
    node.wait(lambda: "switch" in node.status()["answered"], "the switches have answered")
    node.emulator.switch_occur(RESTART)
    faulty = (["[0x00f1fef5,155914,npu,na]"], "RestartRequest", "UnHealthy")
    assert node.wait(lambda: switches(node) == faulty, "the fault is shown") < patience(1)
    (fault,) = node.status()["faults"]
    assert (fault["subject"], fault["part"]) == ("switch 2", "7/1/3")
    assert fault["device_fault"] is False
    node.emulator.switch_once(NOTICE)
    node.wait(lambda: "SubHealth" not in str(switches(node)), "the worst level stays")
    node.wait(lambda: len((switches(node) or ([], "", ""))[0]) == 2, "the notice is shown")
    node.wait(lambda: switches(node) == faulty, "the notice is released")
    for forgets in (False, True):
        node.kill()
        if forgets:
            shutil.rmtree(node.state_dir)
        node.start()
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            assert switches(node) == faulty
            let_time_pass(0.01)
        node.up()
        node.wait(lambda: "switch" in node.status()["answered"], "the switches have answered")
    node.emulator.switch_recover(RESTART)
    assert node.wait(lambda: switches(node) == CLEAN, "the recovery is shown") < patience(1)
