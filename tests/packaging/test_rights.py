"""Agent and aggregator with the tokens of their service accounts: what is granted is what is used.

Everything they do in a cluster is done once, on a real API server with RBAC with an audit log.
Nothing may be refused, and nothing may be granted that was not requested.
"""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING

import pytest

from contract.operator_rules.fault_configuration import CONFIG_MAPS
from dcmi_shim.emulator.bmc import BmcAlarm
from tests.end_to_end.node import Node
from tests.packaging.accounts import (
    AGENT,
    AGGREGATOR,
    MANIFESTS,
    NAMESPACE,
    REFUSED,
    AgentPod,
    Granted,
    applied,
    asked,
    granted,
)
from tests.parts import pod_groups, pods
from tests.parts.processes import Running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane

SYSTEM = "cluster-system"


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield the API server with the overlay that grants most applied."""
    with applied(control_plane, MANIFESTS):
        pod_groups.install(control_plane)
        yield control_plane
        pod_groups.uninstall(control_plane)


@pytest.fixture
def node(plane: ControlPlane, tmp_path: Path, built: Path) -> Iterator[Node]:
    """Return a node whose agent has the rights of the manifests; not started."""
    account = Granted(plane)
    # The agent's own check must not come before the policy is in force.
    AgentPod(plane, account.kubeconfig).until(REFUSED)
    node = Node(tmp_path / "node", built, account)
    node.give_bmc(tmp_path / "node")
    node.environment["VIGIL_HEARTBEAT_INTERVAL_SECONDS"] = "1"
    node.options = ["--heartbeat-generation", "annotation"]
    yield node
    node.close()


@pytest.fixture
def aggregator(plane: ControlPlane, tmp_path: Path) -> Iterator[Path]:
    """Run an aggregator with the rights of the manifests; return its log."""
    _separate(plane)
    log = tmp_path / "aggregator.log"
    running = Running(
        [
            *(sys.executable, "-m", "vigil", "aggregator", "--store", "kubernetes:"),
            *("--kubeconfig", plane.service_account(NAMESPACE, AGGREGATOR)),
            *("--state-dir", tmp_path / "aggregator", "--touch-period-seconds", "1"),
        ],
        log,
    )
    yield log
    running.stop()


def _put(
    plane: ControlPlane, namespace: str, name: str, data: dict[str, str], **labels: str
) -> str:
    """Apply a ConfigMap; its path."""
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    return f"/api/v1/namespaces/{namespace}/configmaps/{name}"


def _report(plane: ControlPlane, assertion: str) -> None:
    """Report a public fault of chip 5 in a namespace that the manifests name."""
    now_ms = time.time_ns() // 1_000_000
    influence = [{"nodeName": "node-1", "deviceIds": [5]}]
    fault: dict[str, object] = {
        "faultId": "link-to-5",
        "faultType": "NPU",
        "faultCode": "220001001",
    }
    fault |= {"faultTime": now_ms, "assertion": assertion, "influence": influence}
    message: dict[str, object] = {"id": f"message-{now_ms}", "timestamp": now_ms, "version": "1.0"}
    message |= {"resource": "CCAE", "faults": [fault]}
    data = {"PublicFault": json.dumps(message)}
    _put(plane, SYSTEM, "from-the-network", data, **{"mc-consumer-publicfault": "true"})


def _separate(plane: ControlPlane) -> None:
    """Create a chip that ClusterD has separated, before the aggregator begins."""
    policy = "enabled: true\nseparate: {fault_window_hours: 24, fault_threshold: 3}\n"
    policy += "release: {fault_free_hours: 48}\n"
    _put(plane, SYSTEM, "clusterd-config-cm", {"manually_separate_policy.conf": policy})
    why: dict[str, object] = {"FaultCode": "80E01801", "FaultLevel": "ManuallySeparateNPU"}
    why |= {"LastSeparateTime": time.time_ns() // 1_000_000}
    separated = {"Total": ["Ascend910-6"], "Detail": {"Ascend910-6": [why]}}
    _put(plane, SYSTEM, "clusterd-manual-info-cm", {"node-1": json.dumps(separated)})


def _public_faults(plane: ControlPlane, node: Node, cluster: Callable[[str], str]) -> None:
    """Send a public fault, overwrite what is shown of it, and end it."""
    view = f"/api/v1/namespaces/{SYSTEM}/configmaps/statistic-fault-info"

    def shown() -> bool:
        status, answer = plane.ask("GET", view)
        return status == 200 and "link-to-5" in answer["data"].get("PublicFaults", "")

    _report(plane, "occur")
    node.wait(lambda: "220001001" in cluster("cluster-info-device-0"), "it is in the cluster")
    node.wait(shown, "it is in the statistic")
    plane.request("PATCH", view, {"data": {"PublicFaults": "{}"}})
    node.wait(shown, "the statistic is repaired")
    _report(plane, "recover")
    node.wait(lambda: "220001001" not in cluster("cluster-info-device-0"), "it is gone", 15)
    node.wait(lambda: not shown(), "it is gone from the statistic")


def _release(plane: ControlPlane, node: Node, cluster: Callable[[str], str]) -> None:
    """Release, as the operator, the chip that was separated."""
    view = f"/api/v1/namespaces/{SYSTEM}/configmaps/clusterd-manual-info-cm"
    assert "ManuallySeparateNPU" in cluster("cluster-info-device-0")
    plane.request("PATCH", view, {"data": {"node-1": '{"Total":[],"Detail":{}}'}})
    node.wait(lambda: "ManuallySep" not in cluster("cluster-info-device-0"), "it is released")
    node.wait(lambda: plane.ask("GET", view)[0] == 404, "the view is gone")


def _relation_fault(plane: ControlPlane, node: Node) -> None:
    """Take a link down, with what makes that serious."""

    def labels() -> dict[str, str]:
        pod = plane.request("GET", "/api/v1/namespaces/default/pods/train-0")
        found: dict[str, str] = pod["metadata"].get("labels", {})
        return found

    node.emulator.link(0, up=False)
    node.emulator.occur(0, "8C1F860B")
    node.wait(lambda: labels().get("fault-type") == "Separate", "the pod has the label", 15)
    kept = (
        f"/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector=npu-vigil/state=relation-faults"
    )
    node.wait(lambda: bool(plane.request("GET", kept)["items"]), "the fault is kept")
    pods.delete(plane, "train-0")
    node.wait(lambda: not plane.request("GET", kept)["items"], "and not without its job", 30)


def _take_the_label_away(plane: ControlPlane, node: Node) -> None:
    """Remove the label of the document; wait until the aggregator has restored it.

    The aggregator treats it as deleted until its write is refused.
    """
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/cluster-info-device-0"
    label = "mx-consumer-volcano"
    plane.request("PATCH", path, {"metadata": {"labels": {label: None}}})
    node.wait(
        lambda: label in plane.request("GET", path)["metadata"].get("labels", {}),
        "the label is there again",
    )


def _make_immutable(plane: ControlPlane, node: Node) -> None:
    """Make device-info immutable; wait until the agent has replaced it.

    Only its deletion repairs it. The right to delete is granted for no other document.
    """
    path = "/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-node-1"
    uid = plane.request("GET", path)["metadata"]["uid"]
    plane.request("PATCH", path, {"immutable": True})

    def is_replaced() -> bool:
        status, answer = plane.ask("GET", path)
        return status == 200 and answer["metadata"]["uid"] != uid

    node.wait(is_replaced, "it is deleted and created again")
    assert "immutable" not in plane.request("GET", path)


@pytest.mark.apiserver
@pytest.mark.timeout(120)
def test_granted_rights_are_exactly_those_that_are_used(
    plane: ControlPlane, node: Node, aggregator: Path
) -> None:
    def read(name: str, key: str) -> str | None:
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"
        status, answer = plane.ask("GET", path)
        return None if status == 404 else answer["data"].get(key, "")

    def cluster(name: str) -> str:
        return read(name, name) or ""

    def server() -> str | None:
        return read("mindx-dl-nodeinfo-node-1", "NodeInfo")

    job = pods.owned_by("11111111-1111-1111-1111-111111111111", "train")
    pods.make(plane, "train-0", "node-1", "Ascend910-0", owner=job)
    for config_map in CONFIG_MAPS:
        metadata = {"name": config_map.name, "namespace": config_map.namespace}
        data = dict.fromkeys(config_map.documents, "is not JSON")
        plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    node.start()
    node.until(lambda now: len(now.free) == 7, "all chips but the one in use are free", 20)
    node.emulator.occur(3, "80E3A201")
    node.wait(lambda: "80E3A201" in cluster("cluster-info-device-0"), "the fault is in the cluster")
    node.emulator.bmc.occur(BmcAlarm("2C000031", "System"))
    node.wait(lambda: "2C000031" in (server() or ""), "node-info is created")
    node.wait(lambda: "2C000031" in cluster("cluster-info-node-cm"), "the alarm is in the cluster")
    node.emulator.bmc.occur(BmcAlarm("28000053", "System"))
    node.wait(lambda: "28000053" in (server() or ""), "node-info is updated")
    node.emulator.bmc.clear()
    node.wait(lambda: server() is None, "it is deleted")
    node.stop()
    node.wait(lambda: "UnHealthy" in cluster("cluster-info-node-cm"), "the node is lost", 15)
    node.start()
    node.wait(lambda: "UnHealthy" not in cluster("cluster-info-node-cm"), "the node is back", 15)

    def beats() -> dict[str, str]:
        node_object = plane.request("GET", "/api/v1/nodes/node-1")
        annotations: dict[str, str] = node_object["metadata"]["annotations"]
        return annotations

    assert beats()["noded/heartbeat-interval"] == "1"
    # The annotation follows the heartbeat, by which the node is back.
    node.wait(
        lambda: abs(int(beats()["noded/heartbeat"]) - time.time()) < 10,
        "the annotation is of the agent that runs",
    )
    _public_faults(plane, node, cluster)
    _release(plane, node, cluster)
    _relation_fault(plane, node)
    _take_the_label_away(plane, node)
    _make_immutable(plane, node)
    assert "own-node-only" not in node.logged(), "it is in force"
    for account, log in ((AGENT, node.log), (AGGREGATOR, aggregator)):
        may = granted(account)
        # What is granted everywhere may be used in one namespace.
        used = {one if one in may else ("", *one[1:]) for one in asked(plane, account)}
        assert used <= may, f"not granted: {used - may}"
        assert used == may, f"granted for nothing: {may - used}"
        assert re.search(r"\b403\b", log.read_text()) is None
