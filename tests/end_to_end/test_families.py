"""Servers of other families: 910A with everything, 310P and 310 without events and networks."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.chip_codes import LINK_DOWN
from contract.codes.levels import Severity
from tests.end_to_end.node import Node
from tests.parts.deadlines import patience
from tests.parts.places import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FAULT, UNKNOWN = "80E01801", "80ABCDEF"
FAULTS = "huawei.com/Ascend310P-Fault"


@pytest.fixture
def make_node(tmp_path: Path, built: Path) -> Iterator[Callable[[str], Node]]:
    """Yield a function that makes the node of a profile; its agent is not started."""
    made: list[Node] = []

    def make(profile: str) -> Node:
        node = Node(tmp_path, built, Folder(tmp_path / "store"), profile=profile)
        node.environment |= {
            "VIGIL_LINKS_PERIOD_SECONDS": "0.5",
            "VIGIL_HANG_PERIOD_SECONDS": "0.2",
            "VIGIL_CHIP_FAULTS_HEALTH_PERIOD_SECONDS": "0.5",
        }
        made.append(node)
        return node

    yield make
    for node in made:
        node.close()


def _devices(node: Node) -> dict[str, Any]:
    data = node.place.read(node.document)
    if data is None:
        return {}
    devices: dict[str, Any] = json.loads(data["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    return devices


def _levels(node: Node, key: str) -> dict[str, dict[str, str]]:
    return {
        fault["npu_name"]: {
            code: entry["fault_level"] for code, entry in fault["fault_time_and_level_map"].items()
        }
        for fault in json.loads(_devices(node).get(key, "[]"))
    }


@pytest.mark.parametrize(("profile", "kind"), [("310p", "Ascend310P"), ("310", "Ascend310")])
def test_polls_must_do_where_there_are_no_events(
    make_node: Callable[[str], Node], profile: str, kind: str
) -> None:
    node = make_node(profile)
    free, faults = f"huawei.com/{kind}", "huawei.com/Ascend310P-Fault"
    names = [f"{kind}-{chip}" for chip in range(4)]
    node.emulator.occur(1, UNKNOWN, Severity.MAJOR)
    node.start()
    node.wait(lambda: _devices(node).get(free) == ",".join([names[0], *names[2:]]), "the others")
    # A chip that has not answered yet is in no list.
    node.wait(lambda: names[1] in _levels(node, faults), "and the faulty one")
    # As serious as the health word; upstream takes it for severity 0 (K08).
    assert _levels(node, faults) == {names[1]: {UNKNOWN: "SeparateNPU"}}
    node.emulator.occur(3, UNKNOWN, Severity.MINOR)
    node.wait(lambda: names[3] in _levels(node, faults), "a minor one", 3)
    assert _levels(node, faults)[names[3]] == {UNKNOWN: "NotHandleFault"}
    assert names[3] in _devices(node)[free]
    node.emulator.recover(3, UNKNOWN)
    node.wait(lambda: names[3] not in _levels(node, faults), "and it is gone", 3)
    assert "-8255" in node.status()["driver"]["polling_reason"]
    node.emulator.occur(2, FAULT)
    node.wait(lambda: FAULT in _levels(node, faults).get(names[2], {}), "a poll finds it", 3)
    # A code of a network that these chips have not ends when the list does not have it any more.
    node.emulator.occur(0, LINK_DOWN)
    node.wait(lambda: LINK_DOWN in _levels(node, faults).get(names[0], {}), "it is listed", 3)
    node.emulator.recover(0, LINK_DOWN)
    node.wait(lambda: names[0] not in _levels(node, faults), "and not any more", 4)
    node.emulator.recover(1, UNKNOWN)
    node.wait(lambda: names[1] not in _levels(node, faults), "and that it is gone", 3)
    devices = _devices(node)
    assert f"{free}-NetworkUnhealthy" not in devices or not devices[f"{free}-NetworkUnhealthy"]
    # On a busy machine a call may miss its deadline.
    node.wait(
        lambda: not any(chip["blind"] for chip in node.status()["chips"]),
        "no network is no blindness",
    )
    status = node.status()
    assert status["blind"] == [] or {one["source"] for one in status["blind"]} == {"bmc"}


@pytest.mark.alone
def test_a_list_is_polled_every_second_and_that_is_shown(make_node: Callable[[str], Node]) -> None:
    node = make_node("310p")
    del node.environment["VIGIL_CHIP_FAULTS_HEALTH_PERIOD_SECONDS"]
    node.start()
    names = [f"Ascend310P-{chip}" for chip in range(4)]
    node.wait(lambda: _devices(node).get("huawei.com/Ascend310P") == ",".join(names), "all free")
    # A scrape is good for a second, and the end of a round comes after its document.
    shown = "npu_vigil_driver_list_period_seconds 1.0"
    node.wait(lambda: shown in node.ask("/metrics")[1], "the period is shown", 5)
    node.emulator.occur(2, FAULT)
    took = node.wait(lambda: names[2] in _levels(node, FAULTS), "a poll finds it", 3)
    assert took <= patience(1.2)


def test_a_health_word_that_is_not_given_isolates_what_no_table_has(
    make_node: Callable[[str], Node],
) -> None:
    node = make_node("310p")
    name, free = "Ascend310P-2", "huawei.com/Ascend310P"
    node.start()
    node.wait(lambda: name in _devices(node).get(free, ""), "it is free")
    node.emulator.hang("dcmi_get_device_health", 2)
    node.emulator.occur(2, UNKNOWN, Severity.MINOR)
    node.wait(lambda: name in _levels(node, FAULTS), "the list is read", 5)
    node.wait(lambda: _levels(node, FAULTS)[name] == {UNKNOWN: "SeparateNPU"}, "no word", 6)
    node.emulator.clear("dcmi_get_device_health", 2)
    node.wait(lambda: _levels(node, FAULTS)[name] == {UNKNOWN: "NotHandleFault"}, "a word", 20)
    assert name in _devices(node)[free]


def test_a_hang_where_there_is_neither_hbm_nor_network(make_node: Callable[[str], Node]) -> None:
    node = make_node("310p")
    node.emulator.load(3, aicore=0, processes=[os.getppid()])
    node.start()
    levels = {"Ascend310P-3": {"200001002": "NotHandleFault"}}
    node.wait(lambda: _levels(node, "huawei.com/Ascend310P-Fault") == levels, "it hangs", 20)
    assert _devices(node)["huawei.com/Ascend310P"].endswith("Ascend310P-3"), "and is healthy"
    node.emulator.load(3, aicore=90)
    node.wait(lambda: not _levels(node, "huawei.com/Ascend310P-Fault"), "it works")


def test_910a_has_events_and_links(make_node: Callable[[str], Node]) -> None:
    node = make_node("910a")
    node.start()
    node.healthy()
    assert node.status()["driver"]["family"] == "Ascend910"
    node.emulator.occur(3, FAULT)
    assert node.until(lambda now: now.codes(3) == {FAULT}, "the fault is shown") < patience(1)
    node.emulator.lose_everything_next()
    node.emulator.link(5, up=False)
    node.until(lambda now: now.codes(5) == {"81078603"}, "the tool finds the link down", 5)
    assert node.status()["driver"]["polling_reason"] is None
