"""Pods on an API server without kubelets: made, bound and ended by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.parts.controlplane import ControlPlane

_PODS = "/api/v1/namespaces/default/pods"


def make(
    plane: ControlPlane,
    name: str,
    node: str | None,
    chips: str = "",
    *,
    annotations: dict[str, str] | None = None,
    asking: tuple[str, ...] = (),
    labels: dict[str, str] | None = None,
    owner: dict[str, object] | None = None,
) -> None:
    """Create a pod, on a node or on none yet; an annotation lists its ``chips`` if there are any.

    ``asking`` names the containers that ask for a chip each; see ``owned_by``.
    """
    containers: list[dict[str, object]] = [{"name": "c", "image": "x"}]
    for container in asking:
        resources = {"limits": {"huawei.com/Ascend910": "1"}}
        containers.append({"name": container, "image": "x", "resources": resources})
    spec: dict[str, object] = {"containers": containers}
    if node is not None:
        spec["nodeName"] = node
    merged = (annotations or {}) | ({"huawei.com/AscendReal": chips} if chips else {})
    metadata: dict[str, object] = {"name": name, "annotations": merged, "labels": labels or {}}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    plane.request("POST", _PODS, {"metadata": metadata, "spec": spec})


def owned_by(uid: str, name: str, kind: str = "AscendJob") -> dict[str, object]:
    """Return the reference to a controlling owner."""
    version = "apps/v1" if kind == "DaemonSet" else "mindxdl.gitee.com/v1"
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}


def annotate(plane: ControlPlane, name: str, chips: str) -> None:
    """Give it chips."""
    annotations = {"huawei.com/AscendReal": chips}
    plane.request("PATCH", f"{_PODS}/{name}", {"metadata": {"annotations": annotations}})


def end(plane: ControlPlane, name: str, phase: str) -> None:
    """End a pod: set its phase to ``Succeeded`` or ``Failed``."""
    plane.request("PATCH", f"{_PODS}/{name}/status", {"status": {"phase": phase}})


def delete(plane: ControlPlane, name: str) -> None:
    """Take it away at once."""
    plane.request("DELETE", f"{_PODS}/{name}?gracePeriodSeconds=0")
