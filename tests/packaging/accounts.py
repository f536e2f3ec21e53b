"""Service accounts of the manifests: what they may do, and what they did."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.parts.deadlines import wait_until
from tests.parts.kustomize import apply, build, take_back
from tests.parts.places import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane

OK, CREATED, FORBIDDEN, REFUSED = 200, 201, 403, 422
"""What RBAC does not grant is forbidden; what the policy does not let through is refused."""
NODE = "worker-1"
REPORT = {"mx-consumer-cim": "true"}
NAMESPACE = "mindx-dl"
MANIFESTS = "overlays/with-heartbeat-annotations"
AGENT, AGGREGATOR = "npu-vigil-agent", "npu-vigil-aggregator"
Right: TypeAlias = tuple[str, str, str, str]
"""Namespace (empty: everywhere), API group, resource, verb."""


def config_map(namespace: str, name: str, **labels: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the path and the content of a ConfigMap."""
    metadata = {"name": name, "namespace": namespace, "labels": labels.get("labels", {})}
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    return path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}


OF_ANOTHER = ("POST", *config_map("mindx-dl", "mindx-dl-nodeinfo-worker-2", labels=REPORT))
"""A request for a document of another node than ``worker-1``."""


class AgentPod:
    """Asks the API server with the token of a kubeconfig, or without one."""

    patch_type = "application/merge-patch+json"

    def __init__(self, plane: ControlPlane, kubeconfig: Path | None) -> None:
        self._headers: dict[str, str] = {}
        if kubeconfig is not None:
            token = json.loads(kubeconfig.read_text())["users"][0]["user"]["token"]
            self._headers["Authorization"] = f"Bearer {token}"
        self._port = plane.port
        self._tls = ssl.create_default_context(cafile=str(plane.directory / "ca.crt"))

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        is_kept: bool = False,
    ) -> tuple[int, str]:
        """Send a dry run, unless it is kept; return status and text of the answer."""
        kind = self.patch_type if method == "PATCH" else "application/json"
        headers = {**self._headers, "Content-Type": kind}
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls)
        try:
            content = None if body is None else json.dumps(body)
            query = "" if is_kept else "?dryRun=All"
            connection.request(method, path + query, content, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def until(
        self, status: int, request: tuple[str, str, Mapping[str, Any] | None] = OF_ANOTHER
    ) -> None:
        """Wait until the answer to ``request`` has this status.

        Policies come with a delay.
        """
        wait_until(
            lambda: self.ask(*request)[0] == status,
            lambda: f"the answer never was {status}",
            20,
        )


class Granted(Cluster):
    """The API server as the pod of an agent reaches it."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self.kubeconfig = plane.service_account(NAMESPACE, AGENT, "node-1")

    @property
    def options(self) -> list[str]:
        return ["--store", "kubernetes:", "--kubeconfig", str(self.kubeconfig)]


@contextlib.contextmanager
def applied(plane: ControlPlane, folder: str) -> Iterator[None]:
    """Apply the objects of ``daemonset/<folder>`` for the length of the block."""
    items = apply(plane, folder)
    try:
        yield
    finally:
        take_back(plane, items)


def granted(account: str, folder: str = MANIFESTS) -> set[Right]:
    """Return what the manifests of ``folder`` grant to ``account``."""
    items = build(folder)
    rules: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for item in items:
        if item["kind"] in ("Role", "ClusterRole"):
            metadata = item["metadata"]
            rules[metadata.get("namespace", ""), metadata["name"]] = item["rules"]
    rights: set[Right] = set()
    for item in items:
        if item["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        if any(subject["name"] == account for subject in item["subjects"]):
            namespace = item["metadata"].get("namespace", "")
            for rule in rules[namespace, item["roleRef"]["name"]]:
                rights |= {
                    (namespace, group, resource, verb)
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    return rights


def asked(plane: ControlPlane, account: str) -> set[Right]:
    """Return what ``account`` asked of the API server; nothing of it may have been refused."""
    used: set[Right] = set()
    for event in plane.audit():
        if event["user"]["username"] != f"system:serviceaccount:{NAMESPACE}:{account}":
            continue
        what = event.get("objectRef")
        assert what is not None, event["requestURI"]
        assert event["responseStatus"]["code"] != 403, event
        resource = "/".join(filter(None, (what["resource"], what.get("subresource"))))
        used.add((what.get("namespace", ""), what.get("apiGroup", ""), resource, event["verb"]))
    return used
