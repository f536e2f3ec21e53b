"""Conditions and taints of Nodes on a real API server: ours alone change, of one version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from contract.errors import StoreConflict, StoreNotFound
from contract.node_signals import NO_SCHEDULE, TAINT_KEY, NodeCondition, NodeTaint
from stores.kubernetes_api.uninstall import UninstallRequests

if TYPE_CHECKING:
    from stores.base import Store
    from stores.cluster import Cluster
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

NODE = "/api/v1/nodes/n1"
AT = "2026-01-01T00:00:00Z"
READY = {"type": "Ready", "status": "True", "lastTransitionTime": AT, "lastHeartbeatTime": AT}
AT_MS = 1_767_225_600_000
OURS = NodeTaint(TAINT_KEY, NO_SCHEDULE, "SeparateNPU")


@pytest.fixture
def cluster(control_plane: ControlPlane, kubernetes: Store) -> Cluster:
    control_plane.ask("DELETE", NODE)
    taint = {"key": "other", "effect": "NoExecute", "value": "v"}
    node = {"metadata": {"name": "n1"}, "spec": {"taints": [taint]}}
    control_plane.request("POST", "/api/v1/nodes", node)
    patch(control_plane, "/status", {"status": {"conditions": [READY]}})
    assert kubernetes.cluster is not None
    return kubernetes.cluster


def patch(plane: ControlPlane, subresource: str, body: dict[str, Any]) -> None:
    status, answer = plane.ask(
        "PATCH", NODE + subresource, body, "application/strategic-merge-patch+json"
    )
    assert status == 200, answer


async def test_conditions_of_others_stay(control_plane: ControlPlane, cluster: Cluster) -> None:
    seen = await cluster.node_signals("n1")
    assert seen.conditions == ()
    faulty = NodeCondition("NPUHealthy", "False", "Hbm", "chip 3", AT_MS, AT_MS + 1000)
    written = await cluster.set_conditions("n1", seen, [faulty], [])
    assert written.conditions == (faulty,)
    stored = control_plane.request("GET", NODE)["status"]["conditions"]
    ready = next(condition for condition in stored if condition["type"] == "Ready")
    assert ready == READY
    later = await cluster.set_conditions("n1", written, [], ["NPUHealthy"])
    assert later.conditions == ()
    assert [c["type"] for c in control_plane.request("GET", NODE)["status"]["conditions"]] == [
        "Ready"
    ]


async def test_taints_of_others_stay(control_plane: ControlPlane, cluster: Cluster) -> None:
    seen = await cluster.node_signals("n1")
    others = tuple(taint for taint in seen.taints if taint.key == "other")
    assert len(others) == 1
    written = await cluster.set_taints("n1", seen, [*seen.taints, OURS])
    assert written.fault_taints == (OURS,)
    later = await cluster.set_taints("n1", written, others)
    assert later.taints == others
    assert (await cluster.set_taints("n1", later, [])).taints == ()


async def test_a_write_for_another_version_or_another_node_is_refused(
    control_plane: ControlPlane, cluster: Cluster
) -> None:
    seen = await cluster.node_signals("n1")
    patch(control_plane, "", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(StoreConflict):
        await cluster.set_taints("n1", seen, [OURS])
    with pytest.raises(StoreConflict):
        await cluster.set_conditions("n1", seen, [NodeCondition("NPUHealthy", "True")], [])
    now = await cluster.node_signals("n1")
    other = msgspec.structs.replace(now, uid="00000000-0000-0000-0000-000000000000")
    with pytest.raises(StoreConflict):
        await cluster.set_taints("n1", other, [OURS])
    with pytest.raises(StoreConflict):
        await cluster.set_conditions("n1", other, [NodeCondition("NPUHealthy", "True")], [])
    control_plane.request("DELETE", NODE)
    with pytest.raises(StoreNotFound):
        await cluster.set_taints("n1", now, [OURS])
    with pytest.raises(StoreNotFound):
        await cluster.node_signals("n1")


async def test_who_wrote_the_taints_last(control_plane: ControlPlane, cluster: Cluster) -> None:
    seen = await cluster.node_signals("n1")
    others = [taint for taint in seen.taints if taint.key == "other"]
    both = await cluster.set_taints("n1", seen, [*others, OURS])
    one = await cluster.set_taints("n1", both, others)
    await cluster.set_taints("n1", one, [*others, OURS])
    body = {"spec": {"taints": [msgspec.to_builtins(taint) for taint in others]}}
    path = f"{NODE}?fieldManager=kubectl-taint"
    assert control_plane.ask("PATCH", path, body, "application/merge-patch+json")[0] == 200
    assert await cluster.last_taint_manager("n1") == "kubectl-taint"


async def test_uninstalling_removes_conditions_and_taints_of_ours_alone(
    control_plane: ControlPlane, cluster: Cluster
) -> None:
    seen = await cluster.node_signals("n1")
    faulty = NodeCondition("NPUHealthy", "False", "Hbm", "chip 3", AT_MS, AT_MS)
    written = await cluster.set_conditions("n1", seen, [faulty], [])
    written = await cluster.set_taints("n1", written, [*seen.taints, OURS])
    requests = UninstallRequests(str(control_plane.kubeconfig))
    left = await requests.nodes_with_signals()
    assert left == {"n1": written}
    await requests.remove_signals("n1", left["n1"])
    after = await cluster.node_signals("n1")
    assert (after.conditions, after.taints) == ((), seen.taints)
    types = [c["type"] for c in control_plane.request("GET", NODE)["status"]["conditions"]]
    assert types == ["Ready"]
    assert await requests.nodes_with_signals() == {}
    with pytest.raises(StoreConflict):
        await requests.remove_signals("n1", written)
    await requests.close()
