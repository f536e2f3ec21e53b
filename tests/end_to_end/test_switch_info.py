"""A real agent on an A3: faults of its on-board switches, from their library to the document."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dcmi_shim.emulator.install import SWITCH_LIBRARY, install
from dcmi_shim.emulator.switch_faults import EmulatedSwitchFault, code_of
from tests.end_to_end.node import Node
from tests.parts.deadlines import nothing_happens_for, patience
from tests.parts.places import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.daemon

CODE = "[0x00f1fef5,155912,cpu,na]"
PORT = EmulatedSwitchFault(code_of(CODE), chip=2, port=3, peer_port=4)
OTHER = EmulatedSwitchFault(code_of("[0x00f1fef5,155914,npu,na]"), chip=5, port=7, peer_port=1)
LIST = "lq_dcmi_get_fault_info"
CHIP_FAULT = "80E01801"


@pytest.fixture
def a3(tmp_path: Path, built_a3: Path) -> Iterator[Node]:
    node = Node(tmp_path, built_a3, Folder(tmp_path / "store"))
    node.emulator.start("a3")
    node.environment["VIGIL_SWITCH_AUDIT_PERIOD_SECONDS"] = "0.3"
    yield node
    node.close()


def switch_info(node: Node) -> dict[str, Any]:
    data = node.place.read(node.document)
    found: dict[str, Any] = {} if data is None else json.loads(data["SwitchInfoCfg"])
    return found


def codes(node: Node) -> list[str]:
    return [
        json.loads(event)["AssembledFaultCode"]
        for event in switch_info(node).get("FaultCode") or []
    ]


def up(node: Node) -> None:
    node.start()
    node.until(lambda now: len(now.free) == 16, "all chips are free", 20)
    node.wait(lambda: "switch" in node.status()["answered"], "the switches have answered")


def blind(node: Node) -> list[str]:
    return [one["reason"] for one in node.status()["blind"] if one["source"] == "switch"]


def test_a_port_fails_and_recovers(a3: Node) -> None:
    up(a3)
    a3.emulator.switch_occur(PORT)
    assert a3.wait(lambda: codes(a3) == [CODE], "the fault is shown") < patience(1)
    now = switch_info(a3)
    assert (now["FaultLevel"], now["NodeStatus"]) == ("Separate", "UnHealthy")
    assert list(now["FaultTimeAndLevelMap"]) == [f"{CODE}_2_3"]
    event = json.loads(now["FaultCode"][0])
    assert (event["PeerPortId"], event["Severity"], event["Assertion"]) == (4, 2, 1)
    a3.emulator.switch_recover(PORT)
    assert a3.wait(lambda: codes(a3) == [], "the recovery is shown") < patience(1)
    now = switch_info(a3)
    assert (now["FaultLevel"], now["NodeStatus"]) == ("", "Healthy")


def test_switch_faults_of_a_restart_and_lost_events_are_found_by_the_list(a3: Node) -> None:
    up(a3)
    a3.emulator.switch_occur(PORT)
    a3.wait(lambda: codes(a3) == [CODE], "the fault is shown")
    a3.kill()
    a3.emulator.switch_recover(PORT)
    a3.emulator.switch_occur(OTHER)
    a3.start()
    a3.wait(lambda: codes(a3) == ["[0x00f1fef5,155914,npu,na]"], "the list counts")
    a3.emulator.lose_next_event()
    a3.emulator.switch_recover(OTHER)
    a3.wait(lambda: codes(a3) == [], "an audit finds the lost recovery")


def test_a_blind_switch_keeps_what_is_known(a3: Node) -> None:
    up(a3)
    a3.emulator.switch_occur(PORT)
    a3.wait(lambda: codes(a3) == [CODE], "the fault is shown")
    a3.emulator.hang(LIST)
    a3.wait(lambda: LIST in str(blind(a3)), "the switches are blind")
    a3.emulator.occur(3, CHIP_FAULT)
    assert a3.until(lambda now: now.codes(3) == {CHIP_FAULT}, "chips go on") < patience(1)
    a3.emulator.switch_recover(PORT)
    nothing_happens_for(0.5, because="the switches are asked every 0.3 s")
    assert codes(a3) == [CODE]
    a3.emulator.clear(LIST)
    a3.wait(lambda: codes(a3) == [], "the recovery counts", 15)
    # A later query may miss its deadline on a busy machine.
    a3.wait(lambda: blind(a3) == [], "the switches are seen")


def test_a_library_that_hangs_at_start_holds_nothing_up_for_long(a3: Node) -> None:
    a3.emulator.hang(LIST)
    a3.emulator.occur(3, CHIP_FAULT)
    a3.start()
    assert a3.until(lambda now: now.codes(3) == {CHIP_FAULT}, "chips go on", 20) < patience(8)
    a3.wait(lambda: LIST in str(blind(a3)), "the switches are blind", 20)
    assert switch_info(a3)["NodeStatus"] == ""
    a3.emulator.clear(LIST)
    a3.wait(lambda: switch_info(a3)["NodeStatus"] == "Healthy", "they answer", 20)
    a3.emulator.hang(LIST)
    a3.wait(lambda: LIST in str(blind(a3)), "the switches are blind again", 20)
    status, seconds = a3.stop()
    assert (status, seconds < patience(4)) == (0, True)


def test_no_library(a3: Node, tmp_path: Path) -> None:
    install(tmp_path / "driver", tmp_path / "own", "a3")
    (tmp_path / "driver" / "lib64" / "driver" / SWITCH_LIBRARY.name).unlink()
    a3.driver_root = tmp_path / "driver"
    a3.start()
    a3.until(lambda now: len(now.free) == 16, "chips need no switches", 20)
    a3.wait(lambda: "no usable liblingqu-dcmi.so" in str(blind(a3)), "the reason is reported")
    now = switch_info(a3)
    assert (now["FaultCode"], now["NodeStatus"]) == (None, ""), "nobody knows that it is healthy"
    status, _ = a3.stop()
    assert status == 0
    assert a3.logged().count("blind: no usable liblingqu-dcmi.so") == 1


def test_another_level_table_is_in_force_at_once(a3: Node) -> None:
    """Also where the level of the whole stays the same, which upstream would not write.

    Source: docs/spec/device-plugin.md#5.3.
    """
    up(a3)
    a3.emulator.switch_occur(PORT)
    a3.emulator.switch_occur(OTHER)

    def levels() -> list[str]:
        entries = switch_info(a3).get("FaultTimeAndLevelMap") or {}
        return [entry["fault_level"] for _, entry in sorted(entries.items())]

    def give(text: str) -> None:
        a3.place.write("mindx-dl-fault-config", {"SwitchFaultCode.json": text})

    a3.wait(lambda: levels() == ["Separate", "RestartRequest"], "the shipped levels")
    lists = {"SeparateFaultCodes": [CODE], "SubHealthFaultCodes": ["[0x00f1fef5,155914,npu,na]"]}
    give(json.dumps(lists))
    a3.wait(lambda: levels() == ["Separate", "SubHealthFault"], "the milder one is milder")
    assert switch_info(a3)["FaultLevel"] == "Separate"
    give('{"PreSeparateFaultCodes": ["[0x00f1fef5,155912,cpu,na]"]}')
    a3.wait(lambda: switch_info(a3)["FaultLevel"] == "PreSeparate", "a code without a level is out")
    assert levels() == ["PreSeparate"]
    give("[]")
    a3.wait(lambda: a3.status()["fault_configuration"]["problems"] != [], "it is reported")
    assert levels() == ["PreSeparate"], "what cannot be decoded changes nothing"
    a3.place.delete("mindx-dl-fault-config")
    a3.wait(lambda: levels() == ["Separate", "RestartRequest"], "the shipped levels again")


def test_seventeen_ports_are_not_less_serious_than_sixteen(a3: Node) -> None:
    """K23: upstream looks for exactly 16."""
    up(a3)
    code = code_of("[0x08520003,na,L2,na]")
    for port in range(17):
        a3.emulator.switch_occur(EmulatedSwitchFault(code, 4, port, port))
    a3.wait(lambda: len(codes(a3)) == 17, "all ports are shown")
    now = switch_info(a3)
    assert (now["FaultLevel"], now["NodeStatus"]) == ("Separate", "UnHealthy")
    for port in (15, 16):
        a3.emulator.switch_recover(EmulatedSwitchFault(code, 4, port, port))
    a3.wait(lambda: switch_info(a3)["FaultLevel"] == "NotHandle", "15 are no plane")


def test_the_list_is_asked_while_nothing_is_known_to_be_faulty(a3: Node) -> None:
    """K23: upstream asks only while its list is not empty."""
    up(a3)
    a3.emulator.lose_next_event()
    a3.emulator.switch_occur(PORT)
    a3.wait(lambda: codes(a3) == [CODE], "a lost occurrence is found", 3)


def test_an_error_empties_nothing_without_a_subscription(a3: Node) -> None:
    """K23: upstream's list is the answer of the last query, also when that was empty."""
    a3.emulator.fail("lq_dcmi_subscribe_fault_event", -8014)
    a3.emulator.switch_occur(PORT)
    up(a3)
    a3.wait(lambda: codes(a3) == [CODE], "the list is enough", 20)
    a3.emulator.fail(LIST, -8005)
    a3.wait(lambda: blind(a3) != [], "the switches are blind", 20)
    a3.emulator.occur(3, CHIP_FAULT)
    a3.until(lambda now: now.codes(3) == {CHIP_FAULT}, "it is written again")
    assert codes(a3) == [CODE]
    a3.emulator.switch_recover(PORT)
    a3.emulator.clear(LIST)
    a3.wait(lambda: codes(a3) == [], "it recovers when the list says so", 20)
