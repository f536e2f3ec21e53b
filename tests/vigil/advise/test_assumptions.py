"""Texts of ``--what-if``, and the documents as our daemons would publish them."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.options import AdvisorOptions
from advisor.snapshot import StoredConfigMap
from advisor.what_if.assume import assume
from advisor.what_if.assumptions import CHIP_LEVELS, parse, parse_all
from contract.codes.families import FAMILIES
from contract.documents import device_info
from contract.documents.cluster_device import device_record
from contract.documents.cluster_info import (
    verify_device_value,
    verify_node_value,
    verify_switch_value,
)
from contract.documents.device_info import DeviceInfo
from contract.documents.node_info import decode_node_info, encode_node_info
from contract.documents.switch_info import decode_switch_info
from contract.errors import ConfigurationError
from tests.vigil.advise.cluster import CHIPS, UPDATED, as_list, two_pods_on_two_of_three_nodes
from vigil.advise.dump import sessions

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.snapshot import ClusterSnapshot


@pytest.fixture
def snapshot(tmp_path: Path) -> ClusterSnapshot:
    """Return the small cluster."""
    file = tmp_path / "dump.json"
    file.write_text(as_list(two_pods_on_two_of_three_nodes()))
    (found,) = sessions([str(file)])
    return found


def assumed(snapshot: ClusterSnapshot, *texts: str, direct: bool = False) -> ClusterSnapshot:
    """Return ``snapshot`` with what ``texts`` assume."""
    return assume(snapshot, parse_all(texts), AdvisorOptions(use_cluster_info=not direct))


def entry(snapshot: ClusterSnapshot, name: str, key: str) -> dict[str, Any]:
    """Return an entry of a cluster-info document."""
    (text,) = (one.data[name] for one in snapshot.configmaps if one.name == name)
    found: dict[str, Any] = json.loads(text)[key]
    return found


def device(snapshot: ClusterSnapshot, node: str) -> dict[str, Any]:
    """Return the device entry of a node, with its lists and faults read."""
    found = entry(snapshot, "cluster-info-device-0", f"mindx-dl-deviceinfo-{node}")
    lists = found["DeviceList"]
    found["Fault"] = json.loads(lists["huawei.com/Ascend910-Fault"])
    for word in ("Unhealthy", "NetworkUnhealthy", "Recovering"):
        found[word] = list(filter(None, lists[f"huawei.com/Ascend910-{word}"].split(",")))
    found["free"] = list(filter(None, lists["huawei.com/Ascend910"].split(",")))
    return found


@pytest.mark.parametrize(
    ("level", "in_use", "idle"),
    [
        ("NotHandleFault", False, False),
        ("SubHealthFault", False, False),
        ("RestartRequest", True, True),
        ("RestartBusiness", True, True),
        ("FreeRestartNPU", True, True),
        ("RestartNPU", True, True),
        ("PreSeparateNPU", False, True),
        ("SeparateNPU", True, True),
        ("ManuallySeparateNPU", True, True),
    ],
)
def test_a_level_puts_a_chip_into_the_lists_of_1_10(
    snapshot: ClusterSnapshot, level: str, in_use: bool, idle: bool
) -> None:
    for node, unhealthy in {"n1": in_use, "n3": idle}.items():
        before = device(snapshot, node)
        found = device(assumed(snapshot, f"chip 3 of {node} {level}"), node)
        assert found["Unhealthy"] == (["Ascend910-3"] if unhealthy else [])
        (fault,) = found["Fault"]
        assert (fault["npu_name"], fault["fault_type"]) == ("Ascend910-3", "CardUnhealthy")
        assert fault["fault_handling"] == fault["fault_level"] == level
        assert bool(fault["fault_code"]) is (level != "ManuallySeparateNPU")
        stays = node == "n3" and not unhealthy
        assert ("Ascend910-3" in found["free"]) is stays
        assert set(found["free"]) - {"Ascend910-3"} == set(before["free"]) - {"Ascend910-3"}
        assert found["UpdateTime"] > before["UpdateTime"]
    assert level in {one.value for one in CHIP_LEVELS}


def test_a_code_has_the_level_of_the_table(snapshot: ClusterSnapshot) -> None:
    found = device(assumed(snapshot, "code 0x80e01801 on chip 0 of n3"), "n3")
    (fault,) = found["Fault"]
    assert (fault["fault_code"], fault["fault_level"]) == ("80E01801", "RestartBusiness")
    assert found["Unhealthy"] == ["Ascend910-0"]


def test_a_network_code_makes_the_network_unhealthy(snapshot: ClusterSnapshot) -> None:
    found = device(assumed(snapshot, "code 110001024 on chip 0 of n3"), "n3")
    (fault,) = found["Fault"]
    assert fault["fault_type"] == "CardNetworkUnhealthy"
    assert found["NetworkUnhealthy"] == ["Ascend910-0"]


def test_two_faults_of_a_chip_are_merged(snapshot: ClusterSnapshot) -> None:
    texts = ("chip 3 of n3 SubHealthFault", "chip 3 of n3 SeparateNPU")
    (fault,) = device(assumed(snapshot, *texts), "n3")["Fault"]
    assert fault["fault_level"] == "SeparateNPU"
    assert len(fault["fault_code"].split(",")) == 2


@pytest.mark.parametrize(
    ("word", "node", "status", "part"),
    [
        ("UnHealthy", "n1", "UnHealthy", "SeparateFault"),
        ("PreSeparate", "n1", "Healthy", "PreSeparateFault"),
        ("PreSeparate", "n3", "UnHealthy", "PreSeparateFault"),
        ("silent", "n1", "UnHealthy", None),
    ],
)
def test_a_node_in_trouble(
    snapshot: ClusterSnapshot, word: str, node: str, status: str, part: str | None
) -> None:
    found = entry(
        assumed(snapshot, f"{node} {word}"), "cluster-info-node-cm", f"mindx-dl-nodeinfo-{node}"
    )
    assert found["NodeStatus"] == status
    assert [one["FaultLevel"] for one in found["FaultDevList"] or []] == ([part] if part else [])


@pytest.mark.parametrize(
    ("word", "node", "status"),
    [
        ("UnHealthy", "n1", "UnHealthy"),
        ("SubHealthy", "n1", "SubHealthy"),
        ("PreSeparate", "n1", "Healthy"),
        ("PreSeparate", "n3", "UnHealthy"),
    ],
)
def test_switches_in_trouble(snapshot: ClusterSnapshot, word: str, node: str, status: str) -> None:
    after = assumed(snapshot, f"switch of {node} {word}")
    found = entry(after, "cluster-info-switch-0", f"mindx-dl-switchinfo-{node}")
    assert found["NodeStatus"] == status


def test_nodes_that_are_not_ready_or_gone(snapshot: ClusterSnapshot) -> None:
    after = assumed(snapshot, "n1 NotReady", "n2 gone")
    assert [(one.name, one.is_ready) for one in after.nodes] == [("n1", False), ("n3", True)]
    assert after.configmaps == snapshot.configmaps


def test_healing_takes_all_faults_away(snapshot: ClusterSnapshot) -> None:
    texts = ("chip 3 of n3 SeparateNPU", "n3 UnHealthy", "switch of n3 UnHealthy", "n3 NotReady")
    after = assumed(snapshot, *texts, "heal n3")
    found = device(after, "n3")
    assert (found["free"], found["Unhealthy"], found["Fault"]) == (CHIPS, [], [])
    switch = entry(after, "cluster-info-switch-0", "mindx-dl-switchinfo-n3")
    server = entry(after, "cluster-info-node-cm", "mindx-dl-nodeinfo-n3")
    assert (switch["NodeStatus"], server["NodeStatus"]) == ("Healthy", "Healthy")
    assert after.nodes == snapshot.nodes


def test_healing_leaves_used_chips_out_of_the_free_list(snapshot: ClusterSnapshot) -> None:
    assert device(assumed(snapshot, "heal n1"), "n1")["free"] == []


@pytest.mark.parametrize(
    ("policy", "code", "phase", "ended", "last"),
    [
        ("Never", 137, "Failed", 137, None),
        ("Never", 0, "Succeeded", 0, None),
        ("OnFailure", 0, "Succeeded", 0, None),
        ("OnFailure", 1, "Running", None, 1),
        ("Always", 0, "Running", None, 0),
        ("Always", 137, "Running", None, 137),
    ],
)
def test_a_pod_that_exits(
    snapshot: ClusterSnapshot,
    policy: str,
    code: int,
    phase: str,
    ended: int | None,
    last: int | None,
) -> None:
    pods = tuple(msgspec.structs.replace(one, restart_policy=policy) for one in snapshot.pods)
    given_pods = msgspec.structs.replace(snapshot, pods=pods)
    pod = assumed(given_pods, f"pod default/j-0 exits {code}").pods[0]
    (container,) = pod.containers
    assert (pod.phase, container.exit_code, container.last_exit_code) == (phase, ended, last)
    assert container.restarts == (1 if phase == "Running" else 0)


def test_an_assumed_document_is_the_newest_and_its_readers_read_it(
    snapshot: ClusterSnapshot,
) -> None:
    texts = ("chip 3 of n3 SeparateNPU", "n1 UnHealthy", "switch of n2 SubHealthy")
    after = assumed(snapshot, *texts)
    assert [(one.name, one.resource_version) for one in after.configmaps] == [
        ("cluster-info-device-0", "14"),
        ("cluster-info-node-cm", "15"),
        ("cluster-info-switch-0", "16"),
    ]
    texts_by_name = {one.name: one.data[one.name] for one in after.configmaps}
    verify_device_value(texts_by_name["cluster-info-device-0"], "d", 3)
    verify_switch_value(texts_by_name["cluster-info-switch-0"], "s", 3)
    verify_node_value(texts_by_name["cluster-info-node-cm"], "n", 1)
    unchanged = device(snapshot, "n1")
    assert device(after, "n1") == unchanged


def test_documents_of_agents_in_direct_mode(snapshot: ClusterSnapshot) -> None:
    info = DeviceInfo("Ascend910", tuple(CHIPS), (), (), (), (), UPDATED)
    labels = {"mx-consumer-cim": "true"}
    devices = StoredConfigMap(
        "kube-system",
        "mindx-dl-deviceinfo-n3",
        device_info.encode(info, FAMILIES["Ascend910B"]),
        labels,
        resource_version="1",
    )
    parts = encode_node_info((), "Healthy", "2026-11-23T17:00:00Z")
    server = StoredConfigMap(
        "mindx-dl", "mindx-dl-nodeinfo-n3", parts, labels, resource_version="2"
    )
    direct = msgspec.structs.replace(snapshot, configmaps=(devices, server))
    after = assumed(
        direct,
        "chip 3 of n3 SeparateNPU",
        "n3 PreSeparate",
        "switch of n3 UnHealthy",
        "n3 silent",
        direct=True,
    )
    maps = {one.name: one.data for one in after.configmaps}
    record = device_record(device_info.decode(maps["mindx-dl-deviceinfo-n3"], "d"))
    assert record.unhealthy == ("Ascend910-3",)
    assert [(one.chip, one.level) for one in record.faults] == [("Ascend910-3", "SeparateNPU")]
    switch = decode_switch_info("d", maps["mindx-dl-deviceinfo-n3"])
    assert switch is not None
    assert switch.status == "UnHealthy"
    assert decode_node_info("n", maps["mindx-dl-nodeinfo-n3"]).status == "PreSeparate"


def test_a_document_that_is_not_there_is_made(snapshot: ClusterSnapshot) -> None:
    bare = msgspec.structs.replace(snapshot, configmaps=snapshot.configmaps[:1])
    after = assumed(bare, "n1 UnHealthy", "switch of n1 UnHealthy")
    made = {one.name: one for one in after.configmaps}
    assert made["cluster-info-node-cm"].labels == {"mx-consumer-volcano": "true"}
    assert (
        entry(after, "cluster-info-switch-0", "mindx-dl-switchinfo-n1")["NodeStatus"] == "UnHealthy"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is none of: chip NUMBER"),
        ("node-7", "is none of: chip NUMBER"),
        ("chip 3 of n1", "is none of: chip NUMBER"),
        ("chip 3 of n1 Broken", "'Broken' is none of ManuallySeparateNPU"),
        ("chip 3 of n1 NormalNPU", "'NormalNPU' is none of"),
        ("chip -3 of n1 SeparateNPU", "is none of: chip NUMBER"),
        ("chip ٣ of n1 SeparateNPU", "is none of: chip NUMBER"),
        ("chip 99999999999999999999 of n1 SeparateNPU", "is not the physical id"),
        ("code XYZ on chip 3 of n1", "'XYZ' is not a valid fault code"),
        ("n1 Unhealthy", "'Unhealthy' is none of UnHealthy"),
        ("switch of n1 gone", "'gone' is none of UnHealthy"),
        ("N1 gone", "'N1' is not a Kubernetes node name"),
        ("pod a/b exits 256", "256 is not a valid exit code"),
        ("pod a exits 1", "is none of: chip NUMBER"),
        ("pod a/b exits -1", "is none of: chip NUMBER"),
    ],
)
def test_texts_that_prove_nothing(text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_all([text, "n1 gone"])
    assert expected in str(raised.value)
    assert str(raised.value).startswith("--what-if: 1 problem")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("chip 3 of n9 SeparateNPU", "there is no Node n9"),
        ("heal n9", "there is no Node n9"),
        ("chip 8 of n1 SeparateNPU", "n1 has no Ascend910-8, its chips are Ascend910-0, "),
        ("pod default/x exits 1", "there is no such pod"),
    ],
)
def test_an_assumption_about_an_unknown_object_is_refused(
    snapshot: ClusterSnapshot, text: str, expected: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        assumed(snapshot, text)
    assert f"{text}: {expected}" in str(raised.value)


def test_chips_of_a_node_without_a_document(snapshot: ClusterSnapshot) -> None:
    bare = msgspec.structs.replace(snapshot, configmaps=())
    with pytest.raises(ConfigurationError, match="no document has the chips of n1"):
        assumed(bare, "chip 3 of n1 SeparateNPU")


@given(st.text())
def test_any_text_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse(text) == parse(f" {text}  ")
