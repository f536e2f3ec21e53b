"""``vigil lint --live``: what runs is judged with the rights of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from contract.scheduling import GROUP_ANNOTATION
from tests.elastic.jobs import as_written, vcjob
from tests.parts import pod_groups
from tests.parts.definitions import VCJOBS
from tests.parts.volcano import JOBS
from tests.vigil.lint.case_files import CASES
from tests.vigil.lint.live_server import lint_live
from tests.vigil.lint.manifests import RESOURCE

if TYPE_CHECKING:
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver


def pod_without_card_names(group: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Send requests that make a running pod with chips, whose names no Device Plugin wrote."""
    container = {"name": "c", "image": "i", "resources": {"limits": {RESOURCE: "8"}}}
    pod = {
        "metadata": {"name": f"{group}-0", "annotations": {GROUP_ANNOTATION: group}},
        "spec": {"nodeName": "n1", "containers": [container]},
    }
    path = "/api/v1/namespaces/default/pods"
    running = {"status": {"phase": "Running"}}
    return [("POST", path, pod), ("PATCH", f"{path}/{group}-0/status", running)]


def test_running_objects_are_judged_and_missing_rights_are_named(
    control_plane: ControlPlane,
) -> None:
    pod_groups.install(control_plane)
    try:
        deployment = yaml.safe_load((CASES / "MIN_AVAILABLE_MISSING.wrong.yaml").read_text())
        deployment["spec"]["selector"] = {"matchLabels": {"app": "infer"}}
        control_plane.request("POST", "/apis/apps/v1/namespaces/default/deployments", deployment)
        labels = {"fault-scheduling": "Force"}
        group = {"metadata": {"name": "group", "labels": labels}, "spec": {"minMember": 1}}
        group |= {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
        control_plane.request("POST", groups, group)
        for change in pod_without_card_names("group"):
            control_plane.request(*change)
        status, findings, errors = lint_live(control_plane.kubeconfig)
        shown = [(one["file"], one["line"], one["object"], one["code"]) for one in findings]
        assert shown == [
            ("kubernetes:Deployment", 0, "Deployment default/infer", "MIN_AVAILABLE_MISSING"),
            ("kubernetes:Deployment", 0, "Deployment default/infer", "PROCESS_FAULT_NOT_HANDLED"),
            ("kubernetes:PodGroup", 0, "PodGroup default/group", "FAULT_SCHEDULING_UNSUPPORTED"),
            ("kubernetes:scheduler", 0, "PodGroup default/group", "NO_ASCENDREAL"),
        ]
        assert status == 1
        assert "not known: AscendJob:" in errors
        assert "not known: PodGroup" not in errors
    finally:
        control_plane.ask("DELETE", "/apis/apps/v1/namespaces/default/deployments/infer")
        control_plane.ask("DELETE", "/api/v1/namespaces/default/pods/group-0")
        pod_groups.uninstall(control_plane)


def test_what_controllers_make_and_pods_without_chips_are_right(
    control_plane: ControlPlane,
) -> None:
    """The API server fills in default-scheduler; a PodGroup and a ReplicaSet are copies."""
    pod_groups.install(control_plane)
    VCJOBS.install(control_plane)
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    sets = "/apis/apps/v1/namespaces/default/statefulsets"
    groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
    made = [f"{deployments}/web", f"{sets}/store", f"{groups}/elastic-1", f"{JOBS}/elastic"]
    container = {"name": "web", "image": "registry.example/web:1"}
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    try:
        web = {"metadata": {"name": "web", "labels": labels}, "spec": spec}
        control_plane.request("POST", deployments, web)
        store = {"metadata": {"name": "store"}, "spec": {**spec, "serviceName": "store"}}
        control_plane.request("POST", sets, store)
        job = as_written(vcjob("elastic", phase=""))
        control_plane.request("POST", JOBS, job)
        owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "elastic"}
        owners = [owner | {"uid": "u", "controller": True}]
        metadata = {"name": "elastic-1", "labels": job["metadata"]["labels"]}
        group: dict[str, Any] = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        group |= {"metadata": metadata | {"ownerReferences": owners}, "spec": {"minMember": 2}}
        control_plane.request("POST", groups, group)
        _, findings, errors = lint_live(control_plane.kubeconfig)
        assert [one for one in findings if "elastic" not in one["object"]] == []
        assert [one for one in findings if one["object"].startswith("PodGroup")] == []
        assert "not judged: StatefulSet 1" in errors
    finally:
        for path in made:
            control_plane.ask("DELETE", path)
        VCJOBS.uninstall(control_plane)
        pod_groups.uninstall(control_plane)


def test_missing_rights_that_keep_elastic_training_from_ending_pods_are_found(
    control_plane: ControlPlane,
) -> None:
    """Without its daemon, with a daemon and no rights of a part, and with all of it."""
    VCJOBS.install(control_plane)
    deployments = "/apis/apps/v1/namespaces/mindx-dl/deployments"
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    parts = ("network-faults", "dead-nodes")
    made: list[str] = [f"{JOBS}/elastic"]
    control_plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
    try:
        control_plane.request("POST", JOBS, as_written(vcjob("elastic", phase="")))
        both = {"ELASTIC_NETWORK_FAULT", "ELASTIC_DEAD_NODE"}
        assert _of_elastic(control_plane, "vigil elastic is not installed") == both
        arguments = ["elastic", "--act", *(f"--{part}" for part in parts)]
        container = {"name": "elastic", "image": "any", "args": arguments}
        labels = {"app": "elastic"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        daemon = {"metadata": {"name": "npu-vigil-elastic"}, "spec": spec}
        control_plane.request("POST", deployments, daemon)
        made.append(f"{deployments}/npu-vigil-elastic")
        for name in ("npu-vigil-elastic", "npu-vigil-elastic-dead-nodes"):
            control_plane.request("POST", roles, {"metadata": {"name": name}})
            made.append(f"{roles}/{name}")
        missing = "there is no ClusterRole npu-vigil-elastic-network-faults"
        assert _of_elastic(control_plane, missing) == {"ELASTIC_NETWORK_FAULT"}
        name = "npu-vigil-elastic-network-faults"
        control_plane.request("POST", roles, {"metadata": {"name": name}})
        made.append(f"{roles}/{name}")
        assert _of_elastic(control_plane, "") == set()
    finally:
        for path in made:
            control_plane.ask("DELETE", path)
        VCJOBS.uninstall(control_plane)


def _of_elastic(control_plane: ControlPlane, why: str) -> set[str]:
    """Return the codes about the parts of elastic training; each names ``why``."""
    _, findings, _ = lint_live(control_plane.kubeconfig)
    codes = ("ELASTIC_NETWORK_FAULT", "ELASTIC_DEAD_NODE")
    found = [one for one in findings if one["code"] in codes]
    assert all(why in one["happens"] for one in found), found
    return {one["code"] for one in found}


def test_without_rights_nothing_is_known(control_plane: ControlPlane) -> None:
    file = control_plane.kubeconfig_of("stranger-token")
    status, findings, errors = lint_live(file)
    assert (status, findings) == (0, [])
    assert errors.count("not known:") == 16
