"""A real agent with a BMC: node-info comes, goes, and never goes without the BMC's word."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest

from dcmi_shim.emulator.bmc import BmcAlarm
from tests.parts.deadlines import let_time_pass, nothing_happens_for, patience
from tests.parts.places import Cluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.end_to_end.node import Node

FAN = BmcAlarm("06000025", "Fan", 3)
MEMORY = BmcAlarm("0100000D", "Memory", 5)
UNKNOWN = BmcAlarm("7F0000A1", "PSU", 1)
FAULTY = [("Fan", 3, ["06000025"])]
CHIP_FAULT = "80E01801"


@pytest.fixture(autouse=True)
def bmc(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Give each node a BMC."""
    name = next(name for name in ("node", "cluster_node") if name in request.fixturenames)
    request.getfixturevalue(name).give_bmc(tmp_path)


def shows_fan(node: Node) -> None:
    node.wait(lambda: node.parts() == FAULTY, "the alarm is shown")


def test_alarms_come_and_go(node: Node) -> None:
    node.emulator.bmc.occur(UNKNOWN)
    node.start()
    node.healthy()
    node.wait(lambda: "bmc" in node.status()["answered"], "the BMC has answered")
    assert node.node_info() is None
    node.emulator.bmc.occur(FAN)
    assert node.wait(lambda: node.parts() == FAULTY, "the alarm is shown") < patience(1)
    node.emulator.bmc.occur(MEMORY)
    both = [*FAULTY, ("Memory", 5, ["0100000D"])]
    node.wait(lambda: node.parts() == both, "both alarms are shown")
    faults = {(one["subject"], one["part"]): one for one in node.status()["faults"]}
    assert set(faults) == {("host 3", "Fan"), ("host 5", "Memory"), ("host 1", "PSU")}
    assert faults["host 3", "Fan"]["level"] == "PreSeparateFault"
    assert faults["host 1", "PSU"]["level"] == ""
    metrics = node.ask("/metrics")[1]
    assert 'npu_vigil_faults{chip="",code="06000025",device_fault="false"' in metrics
    node.emulator.bmc.clear()
    node.wait(lambda: node.node_info() is None, "the document is deleted")
    node.wait(lambda: not node.status()["faults"], "no fault is left")


def test_a_restart_with_a_standing_alarm_never_deletes(node: Node) -> None:
    node.emulator.bmc.occur(FAN)
    node.start()
    shows_fan(node)
    before = node.status()["faults"]
    # The journal commits beside the publication, and an agent that is killed begins with it.
    node.wait(lambda: node.journal("changes") != [], "the alarm is journaled")
    for forgets in (False, True):
        node.kill()
        if forgets:
            shutil.rmtree(node.state_dir)
        node.start()
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            assert node.parts() == FAULTY
            let_time_pass(0.01)
        node.up()
        node.wait(lambda: "bmc" in node.status()["answered"], "the BMC has answered")
        if not forgets:
            assert node.status()["faults"] == before
    assert node.parts() == FAULTY


@pytest.mark.parametrize("forgets", [False, True], ids=["journal", "no journal"])
def test_a_blind_bmc_after_a_restart_changes_nothing(node: Node, forgets: bool) -> None:
    node.emulator.bmc.occur(FAN)
    node.start()
    shows_fan(node)
    before = node.node_info()
    node.kill()
    if forgets:
        shutil.rmtree(node.state_dir)
    node.emulator.bmc.fail(0xC1)
    node.emulator.bmc.clear()
    node.start()
    node.up()
    node.wait(
        lambda: [one["source"] for one in node.status()["blind"]] == ["bmc"], "the BMC is blind"
    )
    node.wait(lambda: node.ask("/readyz")[0] == 200, "the agent is ready all the same")
    nothing_happens_for(0.5, because="the BMC is asked again meanwhile")
    assert node.node_info() == before
    assert 'npu_vigil_blind{chip="",source="bmc"} 1.0' in node.ask("/metrics")[1]
    node.emulator.bmc.ok()
    node.wait(lambda: node.node_info() is None, "its word deletes the document")
    node.wait(lambda: node.status()["blind"] == [], "the BMC answers", 5)


def test_foreign_node_info_is_repaired(node: Node) -> None:
    name = f"mindx-dl-nodeinfo-{node.name}"
    node.place.write(name, {"NodeInfo": "no JSON"})
    node.emulator.bmc.occur(FAN)
    node.start()
    shows_fan(node)
    node.place.write(name, {"NodeInfo": "{}", "extra": "1"})
    node.wait(
        lambda: (node.node_info() or {}).keys() == {"NodeInfo", "updateTime"}, "the repair", 2
    )
    assert node.parts() == FAULTY
    node.emulator.bmc.clear()
    node.wait(lambda: node.node_info() is None, "the document is deleted")
    node.place.write(name, {"NodeInfo": "{}"})
    node.wait(lambda: node.node_info() is None, "what was put there is deleted", 2)


@pytest.mark.apiserver
def test_a_deletion_outlives_an_outage(cluster_node: Node) -> None:
    node, place = cluster_node, cluster_node.place
    assert isinstance(place, Cluster)
    node.emulator.bmc.occur(FAN)
    node.start()
    shows_fan(node)
    place.plane.stop_apiserver()
    node.emulator.bmc.clear()
    node.wait(
        lambda: any(one["trouble"] for one in node.status()["publications"]),
        "the outage is reported",
    )
    place.plane.recover()
    node.wait(lambda: node.node_info() is None, "the document is deleted", 20)


def test_document_of_another_owner_is_left_alone(node: Node) -> None:
    node.environment["VIGIL_DOCUMENTS"] = "node-info"
    theirs = {"DeviceInfoCfg": "{}", "note": "the vendor's"}
    node.place.write(node.document, theirs)
    node.emulator.bmc.occur(FAN)
    node.emulator.occur(3, CHIP_FAULT)
    node.emulator.once(4, "80E3A201")
    node.start()
    shows_fan(node)
    node.wait(lambda: len(node.status()["faults"]) == 2, "a one-off fault is released, too")
    assert node.place.read(node.document) == theirs
    assert [one["kind"] for one in node.status()["publications"]] == ["node-info"]
    node.stop()
    node.environment["VIGIL_DOCUMENTS"] = "device-info"
    before = node.node_info()
    node.emulator.bmc.clear()
    node.start()
    node.until(lambda now: now.codes(3) == {CHIP_FAULT}, "the chip's fault is shown")
    node.wait(lambda: "bmc" in node.status()["answered"], "the BMC has answered")
    nothing_happens_for(0.3, because="the BMC is asked again meanwhile")
    assert node.node_info() == before
