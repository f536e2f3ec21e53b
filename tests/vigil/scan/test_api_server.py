"""``vigil scan`` and the API server: is it there, what may the agent do, who else writes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from agent.config import load_agent
from dcmi_shim.emulator.bmc import BmcAlarm
from stores.kubernetes_api.access import Access
from tests.end_to_end.places import Cluster
from tests.packaging.test_rights import AGENT, granted
from tests.parts.kustomize import apply, take_back
from vigil.scan.store import rights_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane
    from tests.vigil.scan.conftest import Server


@pytest.mark.server
@pytest.mark.parametrize(
    ("folder", "options"),
    [
        ("base", {}),
        ("overlays/node-info-only", {"documents": "node-info"}),
        ("overlays/shadow", {"shadow": True}),
        ("overlays/with-heartbeat-annotations", {"heartbeat.generation": "annotation"}),
    ],
)
def test_the_rights_that_are_asked_about_are_those_of_the_manifests(
    folder: str, options: dict[str, object]
) -> None:
    configuration = load_agent(None, {}, {"node_name": "node-1", **options})
    asked, may = {right[:4] for right in rights_of(configuration)}, granted(AGENT, folder)
    assert asked <= may
    # Of an overlay that takes something away another test says what is used.
    assert asked == may or folder == "overlays/node-info-only"


def counted(plane: ControlPlane) -> int:
    """Count the ConfigMaps, namespaces and Leases."""
    paths = ("/api/v1/configmaps", "/api/v1/namespaces", "/apis/coordination.k8s.io/v1/leases")
    return sum(len(plane.request("GET", path)["items"]) for path in paths)


@pytest.mark.apiserver
def test_a_cluster_that_is_well(server: Server, control_plane: ControlPlane) -> None:
    control_plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
    server.place = Cluster(control_plane)
    before = counted(control_plane)
    scanned = server.scan()
    assert scanned.check("api-server")["found"].startswith("Kubernetes v1.")
    for name in ("namespaces", "rights", "other-writers", "fault-configuration"):
        assert scanned.check(name)["state"] == "ok", scanned.check(name)
    missing = scanned.check("own-node-only")
    assert missing["state"] == "problem", "an administrator is held to no node"
    assert "daemonset/base" in missing["advice"]
    assert counted(control_plane) == before


@pytest.mark.apiserver
def test_a_driver_that_would_be_evicted_by_a_taint_is_named(
    server: Server, control_plane: ControlPlane
) -> None:
    server.place = Cluster(control_plane)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ascend-plugin", "uid": "u"}
    pod = {
        "metadata": {"name": "plugin", "ownerReferences": [owner]},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "one", "image": "ascend-k8sdeviceplugin"}],
            "volumes": [{"name": "v", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
        },
    }
    pods = "/api/v1/namespaces/default/pods"
    control_plane.request("POST", pods, pod)
    row = server.scan().check("taint-tolerations")
    control_plane.request("DELETE", f"{pods}/plugin?gracePeriodSeconds=0")
    assert "DaemonSet default/ascend-plugin" in row["found"]
    assert "kubectl -n default patch daemonset ascend-plugin" in row["advice"]
    assert row["facts"] == {"daemon_sets": ["default/ascend-plugin"]}
    row = server.scan().check("taint-tolerations")
    assert (row["state"], row["facts"]) == ("ok", {})


@pytest.mark.apiserver
def test_an_agent_that_is_held_to_its_own_node(
    server: Server, control_plane: ControlPlane, request: pytest.FixtureRequest
) -> None:
    items = apply(control_plane, "base")
    request.addfinalizer(lambda: take_back(control_plane, items))
    kubeconfig = control_plane.service_account("mindx-dl", AGENT, "node-1")

    async def is_in_force() -> bool | None:
        access = Access(str(kubeconfig))
        try:
            return await access.is_own_node_only("node-1")
        finally:
            await access.close()

    server.wait(lambda: asyncio.run(is_in_force()) is True, "the policy is in force")
    before = counted(control_plane)
    scanned = server.scan("--store", "kubernetes:", "--kubeconfig", str(kubeconfig))
    for name in ("namespaces", "rights", "own-node-only"):
        assert scanned.check(name)["state"] == "ok", scanned.check(name)
    asked = rights_of(load_agent(None, {}, {"node_name": "node-1"}))
    assert scanned.check("rights")["facts"]["rights"] == len(asked)
    shadow = server.scan("--store", "kubernetes:", "--kubeconfig", str(kubeconfig), "--shadow")
    assert shadow.check("own-node-only")["state"] == "not-applicable"
    assert counted(control_plane) == before


@pytest.mark.apiserver
def test_rights_that_are_missing_are_named_with_what_they_are_for(
    server: Server, control_plane: ControlPlane, tmp_path: Path
) -> None:
    server.environment["KUBECONFIG"] = str(control_plane.kubeconfig_of("stranger-token"))
    scanned = server.scan("--store", "kubernetes:")
    assert scanned.status == 1
    missing = scanned.check("rights")["facts"]["missing"]
    assert "create events in kube-system (Events about chips)" in missing
    assert (
        "patch leases.coordination.k8s.io/npu-vigil-node-1 in mindx-dl (the heartbeat)" in missing
    )
    assert scanned.check("namespaces")["state"] == "not-applicable"


@pytest.mark.apiserver
def test_another_program_writes_our_document(server: Server, control_plane: ControlPlane) -> None:
    server.place = Cluster(control_plane)
    metadata = {"name": server.document, "labels": {"mx-consumer-cim": "true"}}
    path = "/api/v1/namespaces/kube-system/configmaps?fieldManager=device-plugin"
    written = {"metadata": metadata, "data": {"DeviceInfoCfg": "{}"}}
    control_plane.request("POST", path, written)
    scanned = server.scan()
    assert scanned.status == 1
    assert "other-writers" in scanned.problems()
    assert server.document in scanned.check("other-writers")["found"]
    shadow = server.scan("--shadow")
    assert shadow.check("other-writers")["state"] == "not-applicable"


@pytest.mark.parametrize(("kubeconfig", "status"), [("nowhere", 2), ("nobody-listens", 3)])
def test_no_api_server(server: Server, tmp_path: Path, kubeconfig: str, status: int) -> None:
    file = tmp_path / kubeconfig
    if kubeconfig == "nobody-listens":
        file.write_text(
            '{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],'
            ' "users": [], "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],'
            ' "current-context": "c"}'
        )
    server.emulator.bmc.occur(BmcAlarm("2C000031", "System"))
    scanned = server.scan("--store", "kubernetes:", "--kubeconfig", str(file))
    assert scanned.status == status
    assert "api-server" in scanned.problems()
    assert scanned.check("rights")["state"] == "not-applicable"
    assert scanned.check("bmc")["facts"]["alarms"] == 1, "the rest is looked at"
