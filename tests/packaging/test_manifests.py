"""The manifests: what the real API server makes of them, and what they grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from aggregator.config import load_aggregator
from tests.parts.controlplane import path_of
from tests.parts.kustomize import MANIFESTS, apply, build, take_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.parts.controlplane import ControlPlane

OVERLAYS = sorted(f"overlays/{folder.name}" for folder in (MANIFESTS / "overlays").iterdir())
WRITING = ["base", *(overlay for overlay in OVERLAYS if overlay != "overlays/shadow")]
AGENT = "system:serviceaccount:mindx-dl:npu-vigil-agent"


@pytest.fixture
def applied(
    control_plane: ControlPlane, request: pytest.FixtureRequest
) -> Iterator[list[dict[str, Any]]]:
    """Apply the objects of one folder and return them; they are deleted afterwards."""
    items = apply(control_plane, request.param)
    yield items
    take_back(control_plane, items)


@pytest.mark.server
@pytest.mark.parametrize("folder", WRITING)
def test_public_faults_count_from_the_namespaces_of_the_system_only(folder: str) -> None:
    for item in build(folder):
        if item["kind"] == "Deployment":
            (container,) = item["spec"]["template"]["spec"]["containers"]
            environment = {one["name"]: one["value"] for one in container["env"]}
            configuration = load_aggregator(None, environment, {})
            assert configuration.public_faults.namespaces == ("mindx-dl", "cluster-system")
            assert configuration.rank_tables.namespaces == ("*",)
            return
    raise AssertionError("there is no aggregator")


@pytest.mark.server
@pytest.mark.parametrize("folder", ["base", *OVERLAYS])
def test_namespaces_are_applied_before_what_is_in_them(folder: str) -> None:
    """A label distinguishes them from the rest, so that they stay when NPU Vigil goes."""
    there = {"kube-system"}
    for item in build(folder):
        metadata = item["metadata"]
        if item["kind"] == "Namespace":
            there.add(metadata["name"])
        assert metadata.get("namespace", "kube-system") in there
        assert ("kubernetes.io/metadata.name" in metadata.get("labels", {})) == (
            item["kind"] == "Namespace"
        )
    assert there == {"kube-system", "mindx-dl", "cluster-system"}


def test_every_object_of_a_component_has_the_label_of_an_uninstall() -> None:
    """Except the roles of the vendor's plugin, which an uninstall leaves."""
    without = {
        (file.parent.name, item["kind"])
        for file in MANIFESTS.glob("components/*/*.yaml")
        if file.name != "kustomization.yaml"
        for item in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        if item["metadata"].get("labels", {}).get("app.kubernetes.io/name") != "npu-vigil"
    }
    assert without == {("device-plugin-roles", "ClusterRole")}


@pytest.mark.apiserver
@pytest.mark.parametrize("applied", ["base", *OVERLAYS], indirect=True)
def test_the_api_server_takes_every_object_as_it_is(
    control_plane: ControlPlane, applied: list[dict[str, Any]], request: pytest.FixtureRequest
) -> None:
    in_shadow = "shadow" in request.node.callspec.id
    kinds = sorted(item["kind"] for item in applied)
    assert kinds.count("DaemonSet") == 1
    assert kinds.count("Deployment") == (0 if in_shadow else 1), "an aggregator publishes"
    for item in applied:
        stored = control_plane.request("GET", path_of(item))
        if item["kind"] == "DaemonSet":
            [container] = stored["spec"]["template"]["spec"]["containers"]
            assert container["resources"] == {
                "requests": {"cpu": "10m", "memory": "96Mi"},
                "limits": {"memory": "160Mi"},
            }


@pytest.mark.apiserver
@pytest.mark.parametrize("applied", ["overlays/shadow"], indirect=True)
def test_in_shadow_it_may_write_nothing(
    control_plane: ControlPlane, applied: list[dict[str, Any]]
) -> None:
    assert not any("aggregator" in item["metadata"]["name"] for item in applied)
    resources = {
        *("configmaps", "secrets", "pods", "nodes", "nodes/status", "events"),
        *("coordination.k8s.io/leases", "events.k8s.io/events"),
    }
    for verb in ("create", "update", "patch", "delete"):
        for resource in resources:
            for namespace in ("kube-system", "mindx-dl", "default"):
                assert not control_plane.may(AGENT, verb, resource, namespace)
    granted = {
        verb
        for item in applied
        if item["kind"] in ("Role", "ClusterRole")
        for rule in item["rules"]
        for verb in rule["verbs"]
    }
    assert granted == {"list", "watch"}


@pytest.mark.apiserver
@pytest.mark.parametrize("applied", WRITING, indirect=True)
def test_the_agent_may_write_nothing_but_its_documents_and_its_heartbeat(
    control_plane: ControlPlane, applied: list[dict[str, Any]], request: pytest.FixtureRequest
) -> None:
    only_node_info = "node-info-only" in request.node.callspec.id
    assert control_plane.may(AGENT, "update", "configmaps", "mindx-dl")
    may_write = control_plane.may(AGENT, "update", "configmaps", "kube-system")
    assert may_write is not only_node_info
    for namespace in ("kube-system", "mindx-dl"):
        assert control_plane.may(AGENT, "create", "events", namespace) is not only_node_info
    for verb in ("get", "list", "create", "update", "patch", "delete"):
        assert not control_plane.may(AGENT, verb, "configmaps", "default")
        assert not control_plane.may(AGENT, verb, "secrets", "kube-system")
        may_read_pods = verb == "list" and not only_node_info
        assert control_plane.may(AGENT, verb, "pods", "kube-system") is may_read_pods
        assert control_plane.may(AGENT, verb, "nodes") is (verb == "list")
        if verb != "create":
            assert not control_plane.may(AGENT, verb, "events", "mindx-dl")
    grants = [
        rule
        for item in applied
        if item["kind"] in ("Role", "ClusterRole") and "agent" in item["metadata"]["name"]
        for rule in item["rules"]
    ]
    assert any("nodes/status" in rule["resources"] for rule in grants)
    assert not any("*" in rule["verbs"] + rule["resources"] for rule in grants)
