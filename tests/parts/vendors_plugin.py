"""The account of the vendor's Device Plugin, with the rights that its manifest gives it."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import TYPE_CHECKING, Any

from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane

RBAC = "rbac.authorization.k8s.io"
ENDINGS = ["", "-310", "-310p", "-910", "-npu"]
"""Of role and account in MindCluster 6.0 to 26.1; none since 26.1 but for chips of type 310P."""
VERBS = ["get", "create", "update", "list", "watch"]
_RULES = (
    ("pods", ["get", "list", "update", "watch", "patch"]),
    ("nodes", ["get", "patch"]),
    ("nodes/proxy", ["get"]),
    ("nodes/status", ["get", "patch", "update"]),
    ("configmaps", VERBS),
    ("events", ["create"]),
)
"""Of the vendor's manifest (``docs/spec/device-plugin.md#1.8``)."""
COLLECTION = "/api/v1/namespaces/kube-system/configmaps"


def account_of(ending: str) -> str:
    """Return the name of the account with this ending."""
    return f"ascend-device-plugin-sa{ending}"


def vendors_objects(ending: str) -> list[dict[str, Any]]:
    """Return the account, the role and the binding, in this order."""
    account, role = account_of(ending), f"pods-node-ascend-device-plugin-role{ending}"
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": account, "namespace": "kube-system"},
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": role},
            "rules": [
                {"apiGroups": [""], "resources": [resource], "verbs": verbs}
                for resource, verbs in _RULES
            ],
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"pods-node-ascend-device-plugin-rolebinding{ending}"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}],
        },
    ]


def write(
    plane: ControlPlane, kubeconfig: Path, name: str, data: Mapping[str, str]
) -> tuple[int, str]:
    """Create a ConfigMap of kube-system, or replace it where it is there; status and answer."""
    token = json.loads(kubeconfig.read_text())["users"][0]["user"]["token"]
    tls = ssl.create_default_context(cafile=str(plane.directory / "ca.crt"))
    connection = http.client.HTTPSConnection(
        "127.0.0.1", plane.port, context=tls, timeout=patience(10)
    )
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = json.dumps({"metadata": {"name": name}, "data": dict(data)})
    try:
        for method, path in (("POST", COLLECTION), ("PUT", f"{COLLECTION}/{name}")):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = response.read().decode()
            if response.status != http.HTTPStatus.CONFLICT:
                break
        return response.status, answer
    finally:
        connection.close()
