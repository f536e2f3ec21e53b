"""The components for conditions and taints: switched on, and what the aggregator may write.

Rows are tried one by one with the token of the aggregator's account.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from aggregator.config import load_aggregator
from contract.node_signals import CONDITION_TYPES, TAINT_KEY
from stores.address import open_store
from tests.aggregator.daemon import Daemon
from tests.aggregator.nodes import T0, faulty, healthy, report
from tests.packaging.accounts import FORBIDDEN, OK, REFUSED, AgentPod
from tests.parts.deadlines import until, wait_until
from tests.parts.kustomize import aggregator_container, build_with, take_back

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane

STATUS, SPEC = "/api/v1/nodes/worker-1/status", "/api/v1/nodes/worker-1"
AT = "2026-01-01T00:00:00Z"
READY = {"type": "Ready", "status": "True", "lastTransitionTime": AT, "lastHeartbeatTime": AT}
OTHER_TAINT = {"key": "other", "value": "v", "effect": "NoExecute", "timeAdded": AT}
OURS = {"key": TAINT_KEY, "value": "SeparateNPU", "effect": "NoSchedule"}
COMPONENTS = ("node-conditions", "node-taints")


def conditions(*types: str) -> list[dict[str, Any]]:
    return [{"type": type_, "status": "False", "reason": "Any"} for type_ in types]


class Row(NamedTuple):
    """A change of a Node, and how it is answered."""

    about: str
    path: str
    change: dict[str, Any]
    status: int


ROWS = (
    Row("conditions of ours", STATUS, {"conditions": conditions(*CONDITION_TYPES)}, OK),
    Row("a condition of the kubelet", STATUS, {"conditions": conditions("Ready")}, REFUSED),
    Row("a condition of no known type", STATUS, {"conditions": conditions("Other")}, REFUSED),
    Row(
        "a condition of another one is removed",
        STATUS,
        {"conditions": [{"$patch": "delete", "type": "Ready"}]},
        REFUSED,
    ),
    Row("capacity", STATUS, {"capacity": {"huawei.com/Ascend910": "99"}}, REFUSED),
    Row("addresses", STATUS, {"addresses": [{"type": "Hostname", "address": "a"}]}, REFUSED),
    Row("a label by way of the status", STATUS, {"labels": {"a": "b"}}, REFUSED),
    Row("an annotation by way of the status", STATUS, {"annotations": {"a": "b"}}, REFUSED),
    Row("our taint", SPEC, {"taints": [OTHER_TAINT, OURS]}, OK),
    Row(
        "our taint that evicts",
        SPEC,
        {"taints": [OTHER_TAINT, OURS | {"effect": "NoExecute"}]},
        OK,
    ),
    Row("our taint and another one is lost", SPEC, {"taints": [OURS]}, REFUSED),
    Row(
        "a taint of another one is changed",
        SPEC,
        {"taints": [OTHER_TAINT | {"effect": "NoSchedule"}, OURS]},
        REFUSED,
    ),
    Row(
        "a taint of Kubernetes",
        SPEC,
        {"taints": [OTHER_TAINT, {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]},
        REFUSED,
    ),
    Row("a cordon", SPEC, {"unschedulable": True}, REFUSED),
    Row("an address of pods", SPEC, {"podCIDR": "10.0.0.0/24"}, REFUSED),
    Row("a label", SPEC, {"labels": {"node-role.kubernetes.io/control-plane": ""}}, REFUSED),
    Row("an annotation", SPEC, {"annotations": {"a": "b"}}, REFUSED),
    Row("a finalizer", SPEC, {"finalizers": ["example.com/never"]}, REFUSED),
)


def body(row: Row) -> dict[str, Any]:
    if row.change.keys() & {"labels", "annotations", "finalizers"}:
        return {"metadata": row.change}
    return {"status" if row.path == STATUS else "spec": row.change}


class Aggregator(AgentPod):
    """Asks with the token of the aggregator's account; nothing is kept of it."""

    def refuses(self, row: Row) -> bool:
        return self.status_of(row)[0] == REFUSED

    def status_of(self, row: Row) -> tuple[int, str]:
        kind = "strategic-merge-patch" if row.path == STATUS else "merge-patch"
        self.patch_type = f"application/{kind}+json"
        return self.ask("PATCH", row.path, body(row))


@pytest.fixture(scope="module")
def plane(
    running_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Give the API server both components for the tests of this file.

    Their policies concern the account of the aggregator only.
    """
    plane = running_control_plane
    plane.recover()
    plane.clean()
    items = build_with(tmp_path_factory.mktemp("manifests"), "base", *COMPONENTS)
    try:
        for item in items:
            plane.apply(item)
        metadata = {"name": "worker-1", "labels": {"kept": "yes"}, "annotations": {"kept": "yes"}}
        plane.request("POST", "/api/v1/nodes", {"metadata": metadata})
        # In place of the one that the API server gives to a new Node, which is not ready.
        plane.request("PATCH", SPEC, {"spec": {"taints": [OTHER_TAINT]}})
        status = {"conditions": [READY], "capacity": {"cpu": "1", "huawei.com/Ascend910": "8"}}
        plane.request("PATCH", STATUS, {"status": status})
        yield plane
    finally:
        take_back(plane, items)


@pytest.mark.apiserver
def test_each_right_is_as_the_table_states(plane: ControlPlane) -> None:
    account = plane.service_account("mindx-dl", "npu-vigil-aggregator")
    aggregator = Aggregator(plane, account)
    for refused in (ROWS[1], ROWS[13]):
        # Policies come with a delay.
        wait_until(partial(aggregator.refuses, refused))
    found = []
    for row in ROWS:
        status, answer = aggregator.status_of(row)
        if status != row.status or (status == REFUSED and "the aggregator may" not in answer):
            found.append((row, status, answer))
    assert found == []
    # The agents have none of these rights.
    agent = AgentPod(plane, plane.service_account("mindx-dl", "npu-vigil-agent", "worker-1"))
    assert agent.ask("PATCH", SPEC, {"spec": {"unschedulable": True}})[0] == FORBIDDEN
    assert agent.ask("PATCH", STATUS, {"status": {"conditions": [READY]}})[0] in (OK, REFUSED)
    # Whoever is not the aggregator is not concerned.
    change = {"spec": {"unschedulable": True}}
    assert plane.ask("PATCH", f"{SPEC}?dryRun=All", change, "application/merge-patch+json")[0] == OK


@pytest.mark.apiserver
async def test_the_aggregator_can_do_what_it_has_to_and_nothing_is_refused(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """With the rights of both components and their policies, an eviction included."""
    kubeconfig = plane.service_account("mindx-dl", "npu-vigil-aggregator")
    store = open_store("kubernetes:", plane.kubeconfig)
    await store.put(report("worker-1", faulty()))
    daemon = Daemon(tmp_path / "state", "--store", "kubernetes:", "--kubeconfig", str(kubeconfig))
    daemon.environment = {
        "VIGIL_NODE_CONDITIONS_ENABLED": "true",
        "VIGIL_NODE_TAINTS_ENABLED": "true",
        "VIGIL_NODE_TAINTS_CHIPS": "any",
        "VIGIL_NODE_TAINTS_NO_EXECUTE_LEVELS": "RestartNPU",
    }

    def effects() -> list[str]:
        taints = plane.request("GET", SPEC)["spec"].get("taints", ())
        return [taint["effect"] for taint in taints if taint["key"] == TAINT_KEY]

    def is_false() -> bool:
        stored = plane.request("GET", SPEC)["status"]["conditions"]
        return any(c["type"] == "NPUHealthy" and c["status"] == "False" for c in stored)

    try:
        daemon.start()
        await until(is_false)
        await until(lambda: effects() == ["NoExecute"], seconds=40)
        await store.put(report("worker-1", healthy(update_time=T0 + 1)))
        await until(lambda: effects() == [])
        for status in daemon.ask("/api/v1/scheduler-signals")[1]["signals"]:
            assert (status["outcomes"]["refused"], status["problem"]) == (0, None)
        assert not any("node_" in text for text in daemon.ask("/readyz")[1].get("warnings", ()))
    finally:
        daemon.stop()
        await store.close()


@pytest.mark.server
def test_each_component_switches_its_option_on(tmp_path: Path) -> None:
    for component in COMPONENTS:
        items = build_with(tmp_path, "overlays/beside-device-plugin", component)
        environment = {
            one["name"]: one["value"] for one in aggregator_container(items).get("env", [])
        }
        configuration = load_aggregator(None, environment, {})
        assert configuration.node_conditions.enabled is (component == "node-conditions")
        assert configuration.node_taints.enabled is (component == "node-taints")
