"""Rights of users on an API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.parts.controlplane import ControlPlane

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def allow(plane: ControlPlane, user: str, verbs: list[str]) -> None:
    """Let ``user`` do ``verbs`` with all ConfigMaps."""
    role = {
        "metadata": {"name": user},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}],
    }
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
    binding = {
        "metadata": {"name": user},
        "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
    }
    plane.request("POST", f"{RBAC}/clusterroles", role)
    plane.request("POST", f"{RBAC}/clusterrolebindings", binding)


def forbid(plane: ControlPlane, user: str) -> None:
    """Take it back."""
    plane.request("DELETE", f"{RBAC}/clusterrolebindings/{user}")
    plane.request("DELETE", f"{RBAC}/clusterroles/{user}")
