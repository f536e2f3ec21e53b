"""A webhook labels or changes what is ours, and people add to it, on a real API server."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from dcmi_shim.emulator.bmc import BmcAlarm
from tests.aggregator.daemon import Daemon
from tests.end_to_end.node import WITHIN_A_SECOND, Node
from tests.parts.admission import Webhook
from tests.parts.deadlines import let_time_pass, nothing_happens_for, patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane
    from tests.parts.places import Cluster

    Object = dict[str, Any]

pytestmark = pytest.mark.apiserver

FAULT = "80E01801"
DEVICE_INFO = "/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-node-1"
CLUSTER_INFO = "/api/v1/namespaces/mindx-dl/configmaps/cluster-info-device-0"
BEAT = "/apis/coordination.k8s.io/v1/namespaces/mindx-dl/leases/npu-vigil-node-1"
LEADER = "/apis/coordination.k8s.io/v1/namespaces/mindx-dl/leases/npu-vigil-aggregator"
NODE = "/api/v1/nodes/node-1"
SWITCH_INFO = {
    "FaultCode": [],
    "FaultLevel": "SeparateNPU",
    "UpdateTime": 1_795_000_000,
    "NodeStatus": "UnHealthy",
}
ADDED = {"labels": {"team": "a"}, "annotations": {"audit": "yes"}}


@pytest.fixture
def node(
    request: pytest.FixtureRequest, tmp_path: Path, built: Path, cluster: Cluster
) -> Iterator[Node]:
    """Yield a node whose agent is not started, and create its Node object.

    The parameter of the fixture may name a profile.
    """
    cluster.any_labels = True
    cluster.plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}})
    profile = getattr(request, "param", "a2")
    node = Node(tmp_path / "node-1", built, cluster, profile=profile)
    node.options += ["--heartbeat-interval-seconds", "1"]
    yield node
    node.close()


@pytest.fixture
def aggregator(tmp_path: Path, cluster: Cluster) -> Iterator[Daemon]:
    """Yield an aggregator that is not started."""
    daemon = Daemon(tmp_path / "aggregator", *cluster.options)
    yield daemon
    daemon.stop()


def add(found: Object) -> None:
    """Add a label, an annotation and, to a ConfigMap, a data key."""
    for part, content in ADDED.items():
        found["metadata"].setdefault(part, {}).update(content)
    if found["kind"] == "ConfigMap":
        found.setdefault("data", {})["note"] = "x"


def differs(name: str, what: str) -> str:
    """Return the message about a document that a webhook changes."""
    return (
        f"the answer to our own write of {name} differs from what was written: {what}; an "
        "admission webhook or policy changes it"
    )


def configure(plane: ControlPlane) -> None:
    """Write a public fault of chip 5, which the aggregator keeps and counts."""
    now_ms = time.time_ns() // 1_000_000
    fault: Object = {"faultId": "link-to-5", "faultType": "NPU", "faultCode": "220001001"}
    fault |= {"faultTime": now_ms, "assertion": "occur"}
    fault |= {"influence": [{"nodeName": "node-1", "deviceIds": [5]}]}
    message: Object = {"id": f"message-{now_ms}", "timestamp": now_ms, "version": "1.0"}
    message |= {"resource": "CCAE", "faults": [fault]}
    metadata = {"name": "from-the-network", "labels": {"mc-consumer-publicfault": "true"}}
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata | {"namespace": "mindx-dl"},
            "data": {"PublicFault": json.dumps(message)},
        }
    )


def has_added(cluster: Cluster, path: str) -> bool:
    found = cluster.plane.request("GET", path)
    parts = (found["metadata"].get(part, {}).items() >= ADDED[part].items() for part in ADDED)
    return all(parts) and (found["kind"] != "ConfigMap" or found["data"].get("note") == "x")


def in_cluster_info(cluster: Cluster, chip: str) -> bool:
    found = cluster.plane.request("GET", CLUSTER_INFO)
    return chip in found["data"]["cluster-info-device-0"] and FAULT in json.dumps(found["data"])


def test_label_added_by_a_webhook_is_no_foreign_change(
    node: Node, aggregator: Daemon, cluster: Cluster
) -> None:
    with Webhook(cluster.plane, add):
        node.start()
        node.healthy()
        aggregator.start()
        for chip in (1, 2):
            node.emulator.occur(chip, FAULT)
            node.until(lambda now, chip=chip: now.codes(chip) == {FAULT}, "it is shown")  # type: ignore[misc]
            node.wait(
                lambda chip=chip: in_cluster_info(cluster, f"Ascend910-{chip}"),  # type: ignore[misc]
                "it is shown there",
            )
        for path in (DEVICE_INFO, CLUSTER_INFO, BEAT, LEADER, NODE):
            # Each is written by a part of its own.
            node.wait(partial(has_added, cluster, path), path)
        listed = "/api/v1/namespaces/mindx-dl/configmaps?labelSelector=npu-vigil/state"
        for one in cluster.plane.request("GET", listed)["items"]:
            assert one["data"]["note"] == "x"
    # No webhook adds them any more: our writes keep what is there.
    node.emulator.occur(3, FAULT)
    node.until(lambda now: now.codes(3) == {FAULT}, "it is shown")
    node.wait(lambda: in_cluster_info(cluster, "Ascend910-3"), "it is shown there")
    nothing_happens_for(4, because="beats and renewals of the Lease are written meanwhile")
    for path in (DEVICE_INFO, CLUSTER_INFO, BEAT, LEADER, NODE):
        assert has_added(cluster, path), path
    assert node.ask("/readyz")[0] == 200
    assert aggregator.ask("/readyz") == (200, {"ready": True, "reasons": []})
    assert node.status()["publications"][0]["foreign_writes"] == 0
    assert aggregator.metric("npu_vigil_publication_foreign_writes_total") == 0
    assert "conflict" not in node.logged() + aggregator.log.read_text()


def change_data(found: Object) -> None:
    if found["kind"] == "ConfigMap" and "DeviceInfoCfg" in found["data"]:
        found["data"]["DeviceInfoCfg"] = "{}"


def change_label(found: Object) -> None:
    if found["metadata"]["name"] == "mindx-dl-deviceinfo-node-1":
        found["metadata"]["labels"] = {"mx-consumer-cim": "no"}


@pytest.mark.parametrize(
    ("change", "what"),
    [(change_data, "key DeviceInfoCfg"), (change_label, "label mx-consumer-cim")],
)
def test_a_webhook_that_changes_what_is_ours_is_a_conflict_that_is_reported(
    change: Callable[[Object], None], what: str, node: Node, cluster: Cluster
) -> None:
    with Webhook(cluster.plane, change):
        node.start()
        node.wait(lambda: "conflict" in node.logged(), "the conflict")
        expected = (
            "the answer to our own write of mindx-dl-deviceinfo-node-1 differs from what was "
            f"written: {what}; an admission webhook or policy changes it"
        )
        node.waits_for_text(f"conflict: {expected}")
        node.wait(lambda: expected in json.dumps(node.ask("/readyz")[1]), "it says so there, too")
        assert (
            'npu_vigil_foreign_writer{document="device-info",store="kubernetes:",writer="admission"}'
            in (node.ask("/metrics")[1])
        )
        node.emulator.occur(1, FAULT)
    node.until(lambda now: now.codes(1) == {FAULT}, "the next try shows it", 40)


def test_a_webhook_that_changes_cluster_info_is_a_conflict_that_is_reported(
    node: Node, aggregator: Daemon, cluster: Cluster
) -> None:
    def change(found: Object) -> None:
        if found["metadata"]["name"] == "cluster-info-device-0":
            found["data"]["cluster-info-device-0"] = "{}"

    node.start()
    node.healthy()
    with Webhook(cluster.plane, change):
        aggregator.spawn()
        expected = differs("cluster-info-device-0", "key cluster-info-device-0")
        log = aggregator.log
        node.wait(lambda: f"conflict: {expected}" in log.read_text(), "the conflict")


def test_a_webhook_that_changes_node_info_is_a_conflict_that_is_reported(
    node: Node, cluster: Cluster, tmp_path: Path
) -> None:
    def change(found: Object) -> None:
        if found["metadata"]["name"] == "mindx-dl-nodeinfo-node-1":
            found["data"]["NodeInfo"] = "{}"

    node.give_bmc(tmp_path)
    node.emulator.bmc.occur(BmcAlarm("06000025", "Fan", 3))
    with Webhook(cluster.plane, change):
        node.start()
        expected = differs("mindx-dl-nodeinfo-node-1", "key NodeInfo")
        node.wait(lambda: f"conflict: {expected}" in node.logged(), "the conflict")
        node.wait(lambda: expected in json.dumps(node.ask("/readyz")[1]), "it says so there, too")
        assert (
            'npu_vigil_foreign_writer{document="node-info",store="kubernetes:",writer="admission"}'
            in (node.ask("/metrics")[1])
        )
        node.emulator.occur(1, FAULT)
        node.until(
            lambda now: now.codes(1) == {FAULT}, "device-info is not held up", WITHIN_A_SECOND
        )
    node.wait(
        lambda: "06000025" in (node.node_info() or {}).get("NodeInfo", ""),
        "the next try shows it",
        40,
    )
    assert node.parts() == [("Fan", 3, ["06000025"])]


SPOILT = (
    "cluster-info-switch-0",
    "cluster-info-node-cm",
    "statistic-fault-info",
    "npu-vigil-state-public-faults-",
)
"""Documents of the cluster of each kind that a webhook spoils here, by how they begin."""


@pytest.mark.parametrize("node", ["a3"], indirect=True)
def test_a_webhook_that_changes_what_the_cluster_needs_is_a_conflict_that_is_reported(
    node: Node, aggregator: Daemon, cluster: Cluster
) -> None:
    """In documents with readers, and also in those that only the next leader reads."""
    plane = cluster.plane

    def change(found: Object) -> None:
        name = found["metadata"]["name"]
        if found["kind"] == "ConfigMap" and name.startswith(SPOILT):
            found["data"] = dict.fromkeys(found["data"], '{"by":"webhook"}')

    def warnings() -> str:
        return json.dumps(aggregator.ask("/readyz")[1])

    node.start()
    node.wait(lambda: bool(node.place.read(node.document)), "device-info")
    with Webhook(plane, change):
        aggregator.spawn()
        configure(plane)
        log = aggregator.log
        for name, key in (
            ("cluster-info-switch-0", "cluster-info-switch-0"),
            ("cluster-info-node-cm", "cluster-info-node-cm"),
            ("statistic-fault-info", "PublicFaults, key FaultNum"),
        ):
            expected = f"conflict: {differs(name, f'key {key}')}"
            node.wait(lambda expected=expected: expected in log.read_text(), f"{name} in the log")  # type: ignore[misc]
            node.wait(lambda expected=expected: expected in warnings(), f"{name} in /readyz")  # type: ignore[misc]
        state = "npu-vigil-state-public-faults-"
        expected = "conflict: the answer to our own write of " + state
        node.wait(lambda: expected in log.read_text(), "kept state in the log")
        node.wait(lambda: expected in warnings(), "kept state in /readyz")
        (kept,) = (
            one
            for one in aggregator.ask("/api/v1/leader")[1]["kept"]
            if one["name"] == "public-faults"
        )
        assert any("an admission webhook or policy changes it" in why for why in kept["problems"])
        writes = log.read_text().count(state)
        nothing_happens_for(3, because="state is written again after _SPACING_MS, 500")
        assert log.read_text().count(state) == writes, "it is named once"
    node.wait(lambda: state not in warnings(), "it is kept again", 60)
    listed = plane.request(
        "GET", "/api/v1/namespaces/mindx-dl/configmaps?labelSelector=npu-vigil/state=public-faults"
    )
    assert "link-to-5" in json.dumps(listed)


def test_a_webhook_that_changes_leases_is_named_and_silences_no_faults(
    node: Node, aggregator: Daemon, cluster: Cluster
) -> None:
    def change(found: Object) -> None:
        if found["kind"] == "Lease":
            found["spec"]["holderIdentity"] = "webhook"

    with Webhook(cluster.plane, change):
        node.start()
        node.healthy()
        aggregator.spawn()
        text = "the answer to our own write differs from what was written (renew Lease"
        node.wait(lambda: text in json.dumps(node.ask("/readyz")[1]), "it is named")
        for chip in (1, 2, 3):
            node.emulator.occur(chip, FAULT)
            node.until(
                lambda now, chip=chip: now.codes(chip) == {FAULT},  # type: ignore[misc]
                "it is shown",
                WITHIN_A_SECOND,
            )
            let_time_pass(1)
        text = "differs from what was written (write Lease mindx-dl/npu-vigil-aggregator): holder"
        node.wait(lambda: text in aggregator.log.read_text(), "the aggregator names it")
    aggregator.process.wait_until(lambda: aggregator.ask("/readyz")[0] == 200, 40)


def test_foreign_keys_that_readers_act_on_are_removed_and_others_stay(
    node: Node, aggregator: Daemon, cluster: Cluster
) -> None:
    node.start()
    node.healthy()
    aggregator.start()
    plane = cluster.plane
    metadata = {part: dict(content) for part, content in ADDED.items()}
    for path in (DEVICE_INFO, CLUSTER_INFO):
        plane.request("PATCH", path, {"metadata": metadata, "data": {"note": "x"}})
    for body in (
        {
            "metadata": {"labels": {"mc-consumer-publicfault": "true"}},
            "data": {"PublicFault": "{}"},
        },
        {"data": {"SwitchInfoCfg": json.dumps(SWITCH_INFO)}},
        {"metadata": {"labels": {"jobID": "a"}}, "data": {"hccl.json": "{}"}},
    ):
        begin = time.monotonic()
        plane.request("PATCH", DEVICE_INFO, body)

        def is_gone(body: Object = body) -> bool:
            found = plane.request("GET", DEVICE_INFO)
            labels = body.get("metadata", {}).get("labels", {})
            there = found["metadata"]["labels"].keys() & labels.keys()
            return not there and not found["data"].keys() & body.get("data", {}).keys()

        node.wait(is_gone, f"{body} is removed", 5)
        assert time.monotonic() - begin < patience(WITHIN_A_SECOND)
    assert node.status()["publications"][0]["foreign_writes"] == 3
    node.emulator.occur(1, FAULT)
    node.wait(lambda: in_cluster_info(cluster, "Ascend910-1"), "a fault is shown")
    assert has_added(cluster, DEVICE_INFO)
    assert has_added(cluster, CLUSTER_INFO)
