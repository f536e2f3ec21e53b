"""The fault configuration of the server's parts in a real agent (``docs/spec/noded.md#3``)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from contract.errors import ConfigurationError
from contract.operator_rules.node_levels import NODE_CONFIGURATION_KEY as KEY
from contract.operator_rules.node_levels import read_node_levels
from dcmi_shim.emulator.bmc import BmcAlarm
from tests.fault_texts import recorded_texts
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.end_to_end.node import Node
    from tests.parts.places import Cluster

NAME = "mindx-dl-node-fault-config"
FAN, DISK = BmcAlarm("06000025", "Fan", 1), BmcAlarm("7F0000A1", "Disk", 2)


@pytest.fixture(autouse=True)
def bmc(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Give each node a BMC with two alarms; delete the ConfigMap of the test afterwards."""
    known = ("node", "cluster_node", "folder_node")
    node = request.getfixturevalue(next(name for name in known if name in request.fixturenames))
    node.give_bmc(tmp_path)
    node.emulator.bmc.alarms([FAN, DISK])
    yield
    if request.node.get_closest_marker("apiserver") is not None:
        plane = request.getfixturevalue("control_plane")
        plane.ask("DELETE", f"/api/v1/namespaces/mindx-dl/configmaps/{NAME}")


def table(**lists: list[str]) -> dict[str, str]:
    lists = {f"{level}FaultCodes": codes for level, codes in lists.items()}
    return {KEY: json.dumps({"FaultTypeCode": lists})}


def levels(node: Node) -> dict[str, str]:
    """Return the level of each part in node-info."""
    data = node.node_info()
    if data is None:
        return {}
    parts = json.loads(data["NodeInfo"])["NodeInfo"]["FaultDevList"]
    return {part["DeviceType"]: part["FaultLevel"] for part in parts}


def shows(node: Node, seconds: float = 5.0, **wanted: str) -> float:
    full = {part: f"{level}Fault" for part, level in wanted.items()}
    return node.wait(lambda: levels(node) == full, f"node-info has {full}", seconds)


def configuration(node: Node) -> Any:
    found = node.status()["fault_configuration"]
    (document,) = (one for one in found["documents"] if one["document"] == KEY)
    return document["source"], document["kept"], [one["where"] for one in found["problems"]]


@pytest.mark.timeout(90)
def test_levels_follow_the_config_map_at_once(node: Node) -> None:
    """Created after the start (D-08), changed and deleted while faults stand (D-14): the BMC is
    not asked for it."""
    node.environment["VIGIL_BMC_PERIOD_SECONDS"] = "60"
    node.start()
    shows(node, 20, Fan="PreSeparate")
    node.place.write(NAME, table(Separate=[FAN.code], NotHandle=[DISK.code]))
    assert shows(node, Fan="Separate", Disk="NotHandle") < patience(1)
    node.place.write(NAME, table(NotHandle=[FAN.code.lower()]))
    assert shows(node, Fan="NotHandle") < patience(1)
    node.place.write(NAME, {KEY: '{"FaultTypeCode":{}}'})
    assert node.wait(lambda: node.node_info() is None, "no code is known", 5) < patience(1)
    faults = {one["part"]: one["level"] for one in node.status()["faults"]}
    assert faults == {"Fan": "", "Disk": ""}
    assert configuration(node) == ("configmap", False, [])
    node.place.delete(NAME)
    assert shows(node, Fan="PreSeparate") < patience(1)
    assert configuration(node) == ("shipped", False, [])


@pytest.mark.timeout(90)
def test_refused_fault_configuration_changes_nothing(folder_node: Node) -> None:
    """The recorded documents that the real program refuses, and one without its key."""
    node = folder_node
    good = table(PreSeparate=[FAN.code], Separate=["2C000031"])
    node.place.write(NAME, good)
    node.start()
    shows(node, 20, Fan="PreSeparate")
    bad = [text for text in recorded_texts(KEY) if _is_refused(text)]
    assert len(bad) == 10
    for data in [*({KEY: text} for text in bad), {"other.json": good[KEY]}]:
        node.place.write(NAME, data)
        node.wait(lambda: configuration(node)[:2] == ("configmap", True), "it is refused")
        assert configuration(node)[2]
        assert levels(node) == {"Fan": "PreSeparateFault"}
        node.place.write(NAME, good)
        node.wait(lambda: configuration(node) == ("configmap", False, []), "all is well again")
    text = recorded_texts(KEY)[0].replace("0100000D", "2C000031").replace("06000025", "1")
    node.place.write(NAME, {KEY: text})
    node.wait(lambda: len(configuration(node)[2]) == 2, "a bad code and a code on two levels")
    assert f'fault_configuration_problems{{document="{KEY}"}} 2.0' in node.ask("/metrics")[1]
    node.kill()
    node.start()
    node.up()
    node.wait(lambda: len(configuration(node)[2]) == 2, "still there")
    shows(node, Fan="PreSeparate")
    texts = [row.get("node") for row in node.journal("fault-configuration")]
    assert set(texts) == {good[KEY]}


def _is_refused(text: str) -> bool:
    try:
        read_node_levels(text)
    except ConfigurationError:
        return True
    return False


@pytest.mark.timeout(60)
def test_no_difference_with_another_table(node: Node) -> None:
    """Neither a start nor a restart judges alarms by a table that is not in force (D-03)."""
    node.place.write(NAME, table(Separate=[DISK.code]))
    for _ in range(2):
        node.start()
        shows(node, 20, Disk="Separate")
        node.wait(lambda: bool(node.journal("changes")), "it is in the journal too")
        node.kill()
    changes = node.changes()
    assert {one["new_level"] for one in changes if one["code"] == DISK.code} == {"SeparateFault"}
    assert {one["new_level"] for one in changes if one["code"] == FAN.code} <= {""}


@pytest.mark.timeout(60)
def test_malformed_at_the_very_first_start(folder_node: Node) -> None:
    node = folder_node
    node.place.write(NAME, {KEY: "{broken"})
    node.start()
    shows(node, 20, Fan="PreSeparate")
    node.wait(lambda: configuration(node) == ("shipped", True, ["$"]), "it is reported")
    node.place.write(NAME, table(Separate=[FAN.code]))
    shows(node, Fan="Separate")


@pytest.mark.timeout(60)
def test_a_file_where_there_is_no_config_map(folder_node: Node) -> None:
    node = folder_node
    directory = node.state_dir.parent / "fault-config"
    directory.mkdir()
    (directory / KEY).write_text(table(Separate=[DISK.code])[KEY])
    node.environment["VIGIL_FAULT_CONFIG_DIR"] = str(directory)
    node.start()
    shows(node, 20, Disk="Separate")
    node.place.write(NAME, table(NotHandle=[DISK.code]))
    shows(node, Disk="NotHandle")
    (directory / KEY).write_text(table(PreSeparate=[DISK.code])[KEY])
    node.place.delete(NAME)
    shows(node, Disk="PreSeparate")
    (directory / KEY).unlink()
    shows(node, Fan="PreSeparate")


@pytest.mark.apiserver
@pytest.mark.timeout(90)
def test_an_api_server_that_comes_later(cluster_node: Node, cluster: Cluster) -> None:
    """At the first start the shipped table counts until the ConfigMap can be read (D-08)."""
    node = cluster_node
    node.place.write(NAME, table(Separate=[FAN.code], PreSeparate=[DISK.code]))
    cluster.plane.kill_apiserver()
    node.start()
    node.up()
    node.wait(lambda: len(node.status()["faults"]) == 2, "the BMC is asked all the same")
    assert {one["level"] for one in node.status()["faults"]} == {"PreSeparateFault", ""}
    node.wait(lambda: bool(node.status()["fault_configuration"]["trouble"]), "it is not watched")
    cluster.plane.start_apiserver()
    shows(node, 30, Fan="Separate", Disk="PreSeparate")
