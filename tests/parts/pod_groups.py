"""Volcano's PodGroups on an API server: their definition, and some of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.parts.controlplane import ControlPlane

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAME = "podgroups.scheduling.volcano.sh"
_GROUPS = "/apis/scheduling.volcano.sh/v1beta1"
_SECONDS = 20.0


def install(plane: ControlPlane) -> None:
    """Define them, and wait until they can be asked for. What is in them is not checked."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta1", "served": True, "storage": True}
    plane.request(
        "POST",
        _DEFINITIONS,
        {
            "metadata": {"name": _NAME},
            "spec": {
                "group": "scheduling.volcano.sh",
                "names": {"kind": "PodGroup", "plural": "podgroups"},
                "scope": "Namespaced",
                "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
            },
        },
    )
    _until(plane, 200)


def uninstall(plane: ControlPlane) -> None:
    """Take the definition away, and with it all of them."""
    plane.ask("DELETE", f"{_DEFINITIONS}/{_NAME}")
    _until(plane, 404)


def make(plane: ControlPlane, name: str, owner: dict[str, object], **metadata: Any) -> None:
    """One in the default namespace."""
    path = f"{_GROUPS}/namespaces/default/podgroups"
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    about = {"name": name, "ownerReferences": [owner], **metadata}
    plane.request("POST", path, {**group, "metadata": about, "spec": {"minMember": 1}})


def annotate(plane: ControlPlane, name: str, annotations: dict[str, str]) -> None:
    """Give it annotations."""
    path = f"{_GROUPS}/namespaces/default/podgroups/{name}"
    plane.request("PATCH", path, {"metadata": {"annotations": annotations}})


def delete(plane: ControlPlane, name: str) -> None:
    """Take it away."""
    plane.request("DELETE", f"{_GROUPS}/namespaces/default/podgroups/{name}")


def _until(plane: ControlPlane, status: int) -> None:
    deadline = time.monotonic() + _SECONDS
    while plane.ask("GET", f"{_GROUPS}/podgroups")[0] != status:
        assert time.monotonic() < deadline, f"PodGroups do not answer with {status}"
        time.sleep(0.05)
