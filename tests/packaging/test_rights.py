"""Agent and aggregator with the tokens of their service accounts: what is granted is what is used.

Everything they do in a cluster is done once, on a real API server with RBAC that writes down who
asked for what. Nothing may be refused, and nothing may be granted that nobody asked for.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from contract.fault_configuration import CONFIG_MAPS
from dcmi_shim.emulator.bmc import BmcAlarm
from stores.address import open_store
from tests.end_to_end.node import Node
from tests.end_to_end.places import Cluster
from tests.parts import pod_groups, pods
from tests.parts.controlplane import ControlPlane
from tests.parts.kustomize import apply, build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMESPACE = "mindx-dl"
SYSTEM = "cluster-system"
MANIFESTS = "overlays/with-heartbeat-annotations"
AGENT, AGGREGATOR = "npu-vigil-agent", "npu-vigil-aggregator"

Right: TypeAlias = tuple[str, str, str, str]
"""Namespace (empty: everywhere), API group, resource, verb."""


class Granted(Cluster):
    """The API server as the pod of an agent reaches it."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self._kubeconfig = plane.service_account(NAMESPACE, AGENT, "node-1")

    @property
    def options(self) -> list[str]:
        return ["--store", "kubernetes:", "--kubeconfig", str(self._kubeconfig)]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """An API server of its own, audited, with the overlay that grants most applied."""
    directory = tmp_path / "control-plane"
    directory.mkdir()
    with ControlPlane(directory, audited=True) as plane:
        apply(plane, MANIFESTS)
        pod_groups.install(plane)
        yield plane


@pytest.fixture
def node(plane: ControlPlane, tmp_path: Path, built: Path) -> Iterator[Node]:
    """A node whose agent has the rights of the manifests; not started."""
    node = Node(tmp_path / "node", built, Granted(plane))
    node.give_bmc(tmp_path / "node")
    node.environment["VIGIL_HEARTBEAT_INTERVAL_SECONDS"] = "1"
    node.options = ["--heartbeat-generation", "annotation"]
    yield node
    node.close()


@pytest.fixture
def aggregator(plane: ControlPlane, tmp_path: Path) -> Iterator[Path]:
    """An aggregator with the rights of the manifests, and a part that keeps and shows; its log."""
    log = tmp_path / "aggregator.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.aggregator.counting", "aggregator"),
                *("--store", "kubernetes:"),
                *("--kubeconfig", str(plane.service_account(NAMESPACE, AGGREGATOR))),
                *("--state-dir", str(tmp_path / "aggregator"), "--touch-period-seconds", "1"),
            ],
            stdout=output,
            stderr=output,
        )
    yield log
    process.terminate()
    process.wait(10)


def granted(account: str, folder: str = MANIFESTS) -> set[Right]:
    """What the manifests of ``folder`` grant to ``account``."""
    items = build(folder)
    rules: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for item in items:
        if item["kind"] in ("Role", "ClusterRole"):
            metadata = item["metadata"]
            rules[metadata.get("namespace", ""), metadata["name"]] = item["rules"]
    rights: set[Right] = set()
    for item in items:
        if item["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        if any(subject["name"] == account for subject in item["subjects"]):
            namespace = item["metadata"].get("namespace", "")
            for rule in rules[namespace, item["roleRef"]["name"]]:
                rights |= {
                    (namespace, group, resource, verb)
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    return rights


def asked(plane: ControlPlane, account: str) -> set[Right]:
    """What ``account`` asked of the API server; nothing of it may have been refused."""
    used: set[Right] = set()
    for event in plane.audit():
        if event["user"]["username"] != f"system:serviceaccount:{NAMESPACE}:{account}":
            continue
        what = event.get("objectRef")
        assert what is not None, event["requestURI"]
        assert event["responseStatus"]["code"] != 403, event
        resource = "/".join(filter(None, (what["resource"], what.get("subresource"))))
        used.add((what.get("namespace", ""), what.get("apiGroup", ""), resource, event["verb"]))
    return used


def _make_views(plane: ControlPlane, node: Node) -> None:
    """The aggregator's part keeps and shows something, and then nothing any more."""
    views = f"/api/v1/namespaces/{SYSTEM}/configmaps"
    state = f"/api/v1/namespaces/{NAMESPACE}/configmaps/npu-vigil-state-counts-one"
    metadata = {"name": "one", "namespace": SYSTEM, "labels": {"count": "me"}}
    plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    def shown() -> object:
        status, answer = plane.ask("GET", f"{views}/total")
        return answer.get("data") if status == 200 else None

    node.wait(lambda: shown() == {"one": "1"}, "the view is there")
    node.wait(lambda: plane.ask("GET", state)[0] == 200, "the state is kept")
    plane.request("PATCH", f"{views}/total", {"data": {"one": "9"}})
    node.wait(lambda: shown() == {"one": "1"}, "the view is repaired")
    plane.request("DELETE", f"{views}/one")
    node.wait(lambda: shown() is None, "the view is gone")
    node.wait(lambda: plane.ask("GET", state)[0] == 404, "the state is gone")


def _take_the_label_away(plane: ControlPlane, node: Node) -> None:
    """So the aggregator takes the document for deleted, until its write is refused."""
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/cluster-info-device-0"
    label = "mx-consumer-volcano"
    plane.request("PATCH", path, {"metadata": {"labels": {label: None}}})
    node.wait(
        lambda: label in plane.request("GET", path)["metadata"].get("labels", {}),
        "the label is there again",
    )


@pytest.mark.apiserver
@pytest.mark.timeout(120)
def test_what_is_granted_is_what_is_used(plane: ControlPlane, node: Node, aggregator: Path) -> None:
    def read(name: str, key: str) -> str | None:
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"
        status, answer = plane.ask("GET", path)
        return None if status == 404 else answer["data"].get(key, "")

    def cluster(name: str) -> str:
        return read(name, name) or ""

    async def label() -> None:
        """As a relation fault does."""
        store = open_store("kubernetes:", plane.service_account(NAMESPACE, AGGREGATOR))
        assert store.cluster is not None
        await store.cluster.label_pod("default", "train", {"fault-type": "Separate"})
        await store.close()

    def server() -> str | None:
        return read("mindx-dl-nodeinfo-node-1", "NodeInfo")

    pods.make(plane, "train", "node-1", "Ascend910-0")
    asyncio.run(label())
    for config_map in CONFIG_MAPS:
        metadata = {"name": config_map.name, "namespace": config_map.namespace}
        data = dict.fromkeys(config_map.documents, "is no JSON")
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
    beats = plane.request("GET", "/api/v1/nodes/node-1")["metadata"]["annotations"]
    assert beats["noded/heartbeat-interval"] == "1"
    assert abs(int(beats["noded/heartbeat"]) - time.time()) < 10
    _make_views(plane, node)
    _take_the_label_away(plane, node)
    for account, log in ((AGENT, node.log), (AGGREGATOR, aggregator)):
        may = granted(account)
        # What is granted everywhere may be used in one namespace.
        used = {one if one in may else ("", *one[1:]) for one in asked(plane, account)}
        assert used <= may, f"not granted: {used - may}"
        assert used == may, f"granted for nothing: {may - used}"
        assert "403" not in log.read_text()
