"""Volcano's PodGroups on an API server: their definition, and some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.parts.definitions import POD_GROUPS

if TYPE_CHECKING:
    from tests.parts.controlplane import ControlPlane

_GROUPS = "/apis/scheduling.volcano.sh/v1beta1"


def install(plane: ControlPlane) -> None:
    """Define them, and wait until they can be asked for. What is in them is not checked."""
    POD_GROUPS.install(plane)


def uninstall(plane: ControlPlane) -> None:
    """Take the definition away, and with it all of them."""
    POD_GROUPS.uninstall(plane)


def make(plane: ControlPlane, name: str, owner: dict[str, object], **metadata: Any) -> None:
    """Create a PodGroup in the default namespace."""
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
