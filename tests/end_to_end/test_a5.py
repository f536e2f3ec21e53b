"""A real agent on an Ascend 950: a library of DCMI v2 and its own kind of ``hccn_tool``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.end_to_end.node import Node

SOURCE = Path(__file__).parents[1] / "dcmi_shim" / "drivers" / "second_generation.c"
TOOL = """\
#!/bin/sh
case "$2" in
    -dev_info)
        echo "+--------+--------+-------+----------+-------------+"
        echo "| UdieID | PortID | Speed | PortType | Link Status |"
        echo "+--------+--------+-------+----------+-------------+"
        echo "| 0      | 4      | 200   | ETH      | UP          |"
        echo "| 1      | 7      | 200   | UB       | $(cat {ub}) |"
        echo "+--------+--------+-------+----------+-------------+" ;;
    -port_info) echo "port_enable: on" ;;
    *) exit 3 ;;
esac
"""


@pytest.fixture
def a5(folder_node: Node, tmp_path: Path) -> Node:
    """Return a node with the chips 4 and 5; ``events/event`` makes the driver report a UB port of
    5.
    """
    root = tmp_path / "a5"
    library, tool = root / "lib64/driver/libdcmi.so", root / "tools/hccn_tool"
    for place in (library, tool):
        place.parent.mkdir(parents=True)
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-lpthread"]
    subprocess.run(command, check=True)
    (tmp_path / "ub").write_text("UP")
    tool.write_text(TOOL.format(ub=tmp_path / "ub"))
    tool.chmod(0o755)
    (tmp_path / "steering").mkdir()
    folder_node.driver_root = root
    folder_node.environment |= {
        "VIGIL_TEST_DRIVER": str(tmp_path / "steering"),
        "VIGIL_LINKS_PERIOD_SECONDS": "0.5",
    }
    return folder_node


def _devices(node: Node) -> dict[str, Any]:
    data = node.place.read(node.document)
    if data is None:
        return {}
    found: dict[str, Any] = json.loads(data["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    return found


def _codes(node: Node) -> dict[str, set[str]]:
    return {
        fault["npu_name"]: set(fault["fault_time_and_level_map"])
        for fault in json.loads(_devices(node).get("huawei.com/npu-Fault", "[]"))
    }


def test_ub_ports_by_event_and_by_tool(a5: Node, tmp_path: Path) -> None:
    a5.start()
    a5.wait(lambda: _devices(a5).get("huawei.com/npu") == "npu-4,npu-5", "both are free", 20)
    assert a5.status()["driver"]["family"] == "Ascend910A5"
    for name in ("fault-1", "event"):
        (tmp_path / "steering" / name).touch()
    alone = {"npu-5": {"81B18603", "020001002"}}
    a5.wait(lambda: _codes(a5) == alone, "the event of one chip", 1)
    assert _devices(a5)["huawei.com/npu-Unhealthy"] == "npu-5"
    (tmp_path / "ub").write_text("DOWN")
    plane = {f"npu-{chip}": {"81B18603", "020000002"} for chip in (4, 5)}
    a5.wait(lambda: _codes(a5) == plane, "the tool finds the whole plane down", 10)
    assert _devices(a5)["huawei.com/npu"] == "npu-4,npu-5"
    (tmp_path / "ub").write_text("UP")
    a5.wait(lambda: _codes(a5) == alone, "and only one chip again", 10)
