"""Who writes device-info beside the vendor's Device Plugin, on a real API server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from aggregator.processors.separation_documents import CHIPS_NAME, POLICY_NAME
from aggregator.public_faults import fault_table
from aggregator.public_faults.published_faults import STATISTIC_LABEL, STATISTIC_NAME
from contract.documents.forget_record import FORGET_LABEL
from contract.names import (
    CLUSTER_DEVICE_PREFIX,
    CLUSTER_LABEL,
    CLUSTER_NODE_NAME,
    CLUSTER_SWITCH_PREFIX,
    NODE_INFO_PREFIX,
    PUBLIC_FAULT_LABEL,
    PUBLIC_FAULT_PREFIXES,
    REPORT_LABEL,
    STATE_LABEL,
    STATE_PREFIX,
    SWITCH_INFO_PREFIX,
)
from contract.operator_rules.fault_configuration import CONFIG_MAPS
from tests.parts import vendors_plugin
from tests.parts.controlplane import CHIEF_TOKEN, path_of
from tests.parts.deadlines import wait_until
from tests.parts.kustomize import apply, build, build_with, take_back
from tests.parts.vendors_plugin import COLLECTION, ENDINGS, RBAC, VERBS, account_of, vendors_objects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane

OVERLAY = "overlays/beside-device-plugin"
CREATED, OK, FORBIDDEN = 201, 200, 403
NAME = "mindx-dl-deviceinfo-worker-1"


def write(plane: ControlPlane, kubeconfig: Path, name: str = NAME) -> int:
    """Write a ConfigMap; return the status of the answer, which has the reason where it
    is refused.
    """
    status, answer = vendors_plugin.write(plane, kubeconfig, name, {"DeviceInfoCfg": "{}"})
    if status == FORBIDDEN:
        assert "device-info is written by NPU Vigil" in answer or "cannot" in answer
    return status


@pytest.fixture
def overlay(control_plane: ControlPlane) -> Iterator[list[dict[str, Any]]]:
    """Apply the overlay; it is taken away afterwards."""
    items = apply(control_plane, OVERLAY)
    yield items
    take_back(control_plane, items)


@pytest.mark.apiserver
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_plugin_of_each_release_may_not_write_until_npu_vigil_is_gone(
    control_plane: ControlPlane, ending: str
) -> None:
    vendors = vendors_objects(ending)
    items: list[dict[str, Any]] = []
    try:
        for item in vendors:
            control_plane.apply(item)
        plugin = control_plane.service_account("kube-system", account_of(ending), "worker-1")
        assert _soon(control_plane, plugin, CREATED), "the policy of the test before has ended"
        items = apply(control_plane, OVERLAY)
        assert _soon(control_plane, plugin, FORBIDDEN), "a change of what is there"
        control_plane.request("DELETE", f"{COLLECTION}/{NAME}")
        assert write(control_plane, plugin) == FORBIDDEN
        assert write(control_plane, plugin, f"{NAME}.{'x' * 8}") == FORBIDDEN
        assert write(control_plane, plugin, "reset-config-job") == CREATED, "its other documents"
        role = control_plane.request("GET", path_of(vendors[1]))
        assert role["rules"] == vendors[1]["rules"], "nothing of the vendor's is changed"
        take_back(control_plane, items)
        items = []
        assert _soon(control_plane, plugin, CREATED)
        assert control_plane.request("GET", path_of(vendors[1]))["rules"] == vendors[1]["rules"]
    finally:
        take_back(control_plane, [*items, *vendors])


def _soon(plane: ControlPlane, kubeconfig: Path, status: int) -> bool:
    """Wait until writes get this answer: policies take effect after a short time."""
    return wait_until(lambda: write(plane, kubeconfig) == status, f"{status}", 15, 0.1)


@pytest.mark.apiserver
def test_agents_and_operators_may_write(
    control_plane: ControlPlane, overlay: list[dict[str, Any]]
) -> None:
    agent = control_plane.service_account("mindx-dl", "npu-vigil-agent", "worker-1")
    stranger = control_plane.kubeconfig_of("stranger-token")
    rights = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": "config-maps", "namespace": "kube-system"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": VERBS}],
    }
    bindings: list[dict[str, Any]] = [
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": "kube-system"},
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "stranger"}],
        }
        for kind, name in (
            ("Role", "config-maps"),
            ("ClusterRole", "npu-vigil-device-info-writer"),
        )
    ]
    try:
        control_plane.apply(rights)
        control_plane.apply(bindings[0])
        assert _soon(control_plane, agent, CREATED) or _soon(control_plane, agent, OK)
        assert _soon(control_plane, stranger, FORBIDDEN), "any right to ConfigMaps is not enough"
        assert write(control_plane, control_plane.kubeconfig_of(CHIEF_TOKEN)) == OK
        control_plane.apply(bindings[1])
        assert _soon(control_plane, stranger, OK)
        assert write(control_plane, agent) == OK
    finally:
        take_back(control_plane, [rights, *bindings])


@pytest.mark.server
def test_the_policy_names_the_documents_that_npu_vigil_reads() -> None:
    """An account of kube-system could else write a document that was added later."""
    (policy,) = (
        item
        for item in build(OVERLAY)
        if item["kind"] == "ValidatingAdmissionPolicy" and "writers" in item["metadata"]["name"]
    )
    expression = policy["spec"]["matchConditions"][0]["expression"]
    texts = set(re.findall(r'"([^"]*)"', expression)) - {""}
    names = {
        *(NODE_INFO_PREFIX, SWITCH_INFO_PREFIX, *PUBLIC_FAULT_PREFIXES.values(), STATE_PREFIX),
        *(CLUSTER_DEVICE_PREFIX, CLUSTER_SWITCH_PREFIX, CLUSTER_NODE_NAME),
        *(config_map.name for config_map in CONFIG_MAPS),
        *(POLICY_NAME, CHIPS_NAME, STATISTIC_NAME, fault_table.NAME),
    }
    assert [name for name in names if not name.startswith(tuple(texts))] == []
    labels = (PUBLIC_FAULT_LABEL, REPORT_LABEL, CLUSTER_LABEL, STATISTIC_LABEL, FORGET_LABEL)
    assert {STATE_LABEL, *(label for label, _ in labels)} <= texts


@pytest.mark.server
def test_all_objects_are_ours_by_their_label() -> None:
    """``kubectl delete -l`` takes these away, and nothing else."""
    for item in build(OVERLAY):
        assert item["metadata"]["labels"]["app.kubernetes.io/name"] == "npu-vigil"
        assert "ascend" not in item["metadata"]["name"]


@pytest.mark.server
def test_older_clusters_get_roles_of_every_release(tmp_path: Path) -> None:
    items = build_with(tmp_path, OVERLAY, "device-plugin-roles", "without-own-node-only")
    kinds = {item["kind"] for item in items}
    assert not any(kind.startswith("Validating") for kind in kinds)
    roles = {item["metadata"]["name"]: item for item in items if item["kind"] == "ClusterRole"}
    for ending in ENDINGS:
        role = roles[f"pods-node-ascend-device-plugin-role{ending}"]
        assert "app.kubernetes.io/name" not in role["metadata"].get("labels", {})
        writable = [
            rule["resources"] for rule in role["rules"] if {"create", "update"} & {*rule["verbs"]}
        ]
        assert ["configmaps"] not in writable
        assert ["events"] not in writable
