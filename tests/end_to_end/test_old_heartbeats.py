"""Heartbeats for readers of old releases, from a real agent to a real aggregator.

What an old consumer verifies is computed here by itself, from the text as it stands.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from dcmi_shim.emulator.bmc import BmcAlarm
from tests.aggregator.daemon import Daemon
from tests.parts.deadlines import nothing_happens_for, patience, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.end_to_end.node import Node
    from tests.parts.places import Cluster

pytestmark = pytest.mark.apiserver

FAN = BmcAlarm("06000025", "Fan", 3)
NODE = "/api/v1/nodes/node-1"
CLUSTER = "/api/v1/namespaces/mindx-dl/configmaps/cluster-info-node-cm"
OF_C = re.compile(
    r'\{"NodeInfo":(\{"FaultDevList":(\[.*\]),"HeartbeatTime":(\d+),"HeartbeatInterval":(\d+),'
    r'"NodeStatus":"(\w+)"\}),"CheckCode":"([0-9a-f]{64})"\}'
)
OF_B = re.compile(
    r'\{"NodeInfo":(\{"HeartbeatTime":(\d+),"HeartbeatInterval":(\d+)\}),'
    r'"CheckCode":"([0-9a-f]{64})"\}'
)


def as_consumer_c(data: dict[str, str] | None) -> tuple[list[Any], int, int, str] | None:
    """Decode node-info as a consumer of 6.0.RC does, which refuses any other form."""
    if data is None:
        return None
    assert set(data) == {"NodeInfo"}
    found = OF_C.fullmatch(data["NodeInfo"])
    assert found is not None, data
    assert hashlib.sha256(found[1].encode()).hexdigest() == found[6]
    return json.loads(found[2]), int(found[3]), int(found[4]), found[5]


def as_consumer_b(data: dict[str, str] | None) -> tuple[int, int] | None:
    """Decode node-info as a consumer of 5.0.x does, which refuses any other form."""
    if data is None:
        return None
    found = OF_B.fullmatch(data["NodeInfo"])
    assert found is not None, data
    assert hashlib.sha256(found[1].encode()).hexdigest() == found[4]
    return int(found[2]), int(found[3])


@pytest.fixture
def node(cluster_node: Node, cluster: Cluster, tmp_path: Path) -> Node:
    cluster.plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
    cluster.plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}})
    cluster_node.give_bmc(tmp_path)
    cluster_node.options += ["--heartbeat-interval-seconds", "1"]
    return cluster_node


@pytest.fixture
def aggregator(cluster: Cluster, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(
        tmp_path / "aggregator",
        *("--store", "kubernetes:", "--kubeconfig", str(cluster.plane.kubeconfig)),
        *("--touch-period-seconds", "1"),
    )
    yield daemon
    daemon.stop()


def patch(cluster: Cluster, path: str, metadata: dict[str, Any]) -> None:
    kind = "application/merge-patch+json"
    status, answer = cluster.plane.ask("PATCH", path, {"metadata": metadata}, kind)
    assert status == 200, answer


def entry(cluster: Cluster) -> Any:
    status, found = cluster.plane.ask("GET", CLUSTER)
    text = found["data"]["cluster-info-node-cm"] if status == 200 else ""
    return json.loads(text).get("mindx-dl-nodeinfo-node-1") if text else None


def test_generation_c_from_the_bmc_to_the_cluster(
    node: Node, cluster: Cluster, aggregator: Daemon
) -> None:
    node.options += ["--heartbeat-generation", "cm-v6rc"]
    aggregator.start()
    node.start()
    node.wait(lambda: node.node_info() is not None, "the first beat", 15)
    first = as_consumer_c(node.node_info())
    assert first is not None
    assert (first[0], first[2], first[3]) == ([], 1, "Healthy")
    assert abs(first[1] - time.time()) < patience(5)
    node.wait(lambda: as_consumer_c(node.node_info()) != first, "the next beat", 3)
    missing = "label nodeDEnable=on of node node-1: it is not there"
    node.wait(lambda: missing in str(node.status()["heartbeat"]["old"]["label"]), "it is reported")
    node.waits_for_text(missing)
    assert node.logged().count(missing) == 1
    assert "npu_vigil_legacy_heartbeat_label_missing 1.0" in node.ask("/metrics")[1]
    patch(cluster, NODE, {"labels": {"nodeDEnable": "on"}})
    node.wait(lambda: node.status()["heartbeat"]["old"]["label"] is None, "it is seen")
    node.emulator.bmc.occur(FAN)

    def shows_fan() -> bool:
        found = as_consumer_c(node.node_info())
        return found is not None and found[0] == [
            {
                "DeviceType": "Fan",
                "DeviceId": 3,
                "FaultCode": ["06000025"],
                "FaultLevel": "PreSeparateFault",
            }
        ]

    node.wait(shows_fan, "the alarm, within a poll and not a beat", 3)
    node.wait(
        lambda: (entry(cluster) or {}).get("FaultDevList") is not None, "and in the cluster", 3
    )
    assert entry(cluster)["FaultDevList"][0]["FaultCode"] == ["06000025"]

    def beats_alone_are_no_writes() -> bool:
        # A write is counted after its document is shown, and an exposition is a second old.
        writes = aggregator.metric("npu_vigil_publication_writes_total")
        nothing_happens_for(2.5, because="two intervals of one second pass")
        return aggregator.metric("npu_vigil_publication_writes_total") == writes

    node.wait(beats_alone_are_no_writes, "beats alone are no writes", 10)
    assert len(node.journal("publication")) < 12, "beats are no history"
    node.emulator.bmc.clear()
    node.wait(lambda: not shows_fan(), "the recovery")
    assert node.node_info() is not None, "it is never deleted"
    node.wait(lambda: aggregator.node("node-1")["heartbeat"] == "alive", "its own heartbeat")


def test_a_node_of_an_old_release_that_falls_silent_is_lost(
    cluster: Cluster, aggregator: Daemon
) -> None:
    """The test writes by hand what an old agent wrote."""
    cluster.plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
    for name, heart in (("node-1", "on"), ("node-2", "off")):
        metadata = {"name": name, "labels": {"nodeDEnable": heart}}
        cluster.plane.request("POST", "/api/v1/nodes", {"metadata": metadata})

    def beat(value: int) -> None:
        annotations = {"noded/heartbeat": str(value), "noded/heartbeat-interval": "1"}
        for name in ("node-1", "node-2"):
            patch(cluster, f"/api/v1/nodes/{name}/status", {"annotations": annotations})

    def lost() -> Any:
        return aggregator.ask("/api/v1/liveness")[1]["liveness"]["lost"]

    def alive() -> float:
        return aggregator.metric('npu_vigil_heartbeats{state="alive"}')

    numbers = count(1000)

    def beats_until(happened: Callable[[], bool]) -> float:
        """Beat until it happened; return a moment before the last beat."""
        began = 0.0

        def beats_and_looks() -> bool:
            nonlocal began
            began = time.monotonic()
            beat(next(numbers))
            return happened()

        # One beat is alive for three seconds only, which a busy machine may miss.
        wait_until(beats_and_looks, "the beats count", 10, 0.3)
        return began

    beat(next(numbers))
    aggregator.start()
    nothing_happens_for(6, because="an interval that is not known counts as FALLBACK_MS, 5000")
    assert lost() == [], "what was there before proves nothing"
    begin = beats_until(lambda: alive() == 1)
    aggregator.process.wait_until(lambda: lost() == ["node-1"], seconds=10)
    assert time.monotonic() - begin > 2.9, "three intervals"
    aggregator.process.wait_until(
        lambda: (entry(cluster) or {}).get("NodeStatus") == "UnHealthy", seconds=5
    )
    # The next run knows whom it had lost, and who was proven.
    aggregator.stop()
    aggregator.start()
    nothing_happens_for(2, because="the liveness rules look at least every second")
    assert lost() == ["node-1"]
    beats_until(lambda: lost() == [] and aggregator.node("node-1")["heartbeat"] == "alive")
    listed = {one["node"] for one in aggregator.ask("/api/v1/nodes")[1]["nodes"]}
    assert listed == {"node-1"}, "who has not the label is none of ours"


def test_generation_b_and_back_to_none(node: Node, cluster: Cluster) -> None:
    node.emulator.bmc.occur(FAN)
    node.options += ["--heartbeat-generation", "cm-v5"]
    node.start()
    node.wait(lambda: as_consumer_b(node.node_info()) is not None, "the first beat", 15)
    first = as_consumer_b(node.node_info())
    assert first is not None
    assert first[1] == 1
    node.wait(lambda: as_consumer_b(node.node_info()) != first, "the next beat", 3)
    path = "/api/v1/namespaces/mindx-dl/configmaps/mindx-dl-nodeinfo-node-1"
    uid = cluster.plane.request("GET", path)["metadata"]["uid"]
    node.kill()
    node.options[-1] = "lease"
    node.start()
    node.wait(lambda: node.parts() == [("Fan", 3, ["06000025"])], "a modern document", 20)
    assert cluster.plane.request("GET", path)["metadata"]["uid"] != uid, "deleted and created"


def test_the_annotation_beats_and_its_refusal_is_not_ready(node: Node, cluster: Cluster) -> None:
    patch(cluster, NODE, {"labels": {"nodeDEnable": "on"}})
    node.options += ["--heartbeat-generation", "annotation"]
    node.start()

    def shown() -> dict[str, str]:
        found: dict[str, str] = cluster.plane.request("GET", NODE)["metadata"]
        annotations: Any = found.get("annotations", {})
        return {key: text for key, text in annotations.items() if key.startswith("noded/")}

    node.wait(lambda: "noded/heartbeat" in shown(), "the first beat", 15)
    first = shown()
    assert first["noded/heartbeat-interval"] == "1"
    assert abs(int(first["noded/heartbeat"]) - time.time()) < patience(5)
    node.wait(lambda: shown() != first, "the next beat", 3)
    node.healthy()
    node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready")
    cluster.plane.request("DELETE", NODE)
    node.wait(
        lambda: "the heartbeat on the Node fails" in str(node.ask("/readyz")[1]), "it says so"
    )
    assert "npu_vigil_legacy_heartbeat_failing 1.0" in node.ask("/metrics")[1]
    assert "npu_vigil_heartbeat_failing 0.0" in node.ask("/metrics")[1]
    assert node.status()["heartbeat"]["beats"] > 1
