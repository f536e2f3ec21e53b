"""Requests to the API server that the rows of several actors have."""

from __future__ import annotations

from typing import Any

from contract.documents.write_numbers import encode_writes
from tests.intruder.table import Request
from tests.packaging.accounts import NODE, config_map

OTHER = "worker-2"
"""Another node than that of the agent and of the Device Plugin."""
FOREIGN = "example.com/not-ours"
"""A label and an annotation of the Node that others maintain."""
TENANT = "tenant"
"""The namespace in which the tenant has rights."""
PUBLIC_FAULT = {"mc-consumer-publicfault": "true"}
RANK_TABLE = {"jobID": "job"}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/mindx-dl/leases"
NODE_PATH = f"/api/v1/nodes/{NODE}"
STATUS = f"{NODE_PATH}/status"


def read(namespace: str, name: str) -> Request:
    """Return the reading of a ConfigMap that exists."""
    return Request("GET", f"{config_map(namespace, name)[0]}/{name}")


def replace(namespace: str, name: str, labels: dict[str, str] | None = None) -> Request:
    """Return the replacement of a ConfigMap that exists."""
    path, body = config_map(namespace, name, labels=labels or {})
    return Request("PUT", f"{path}/{name}", body)


def create(namespace: str, name: str, labels: dict[str, str] | None = None) -> Request:
    """Return the creation of a ConfigMap."""
    return Request("POST", *config_map(namespace, name, labels=labels or {}))


def create_many(namespace: str, prefix: str, labels: dict[str, str] | None = None) -> Request:
    """Return the creation of a ConfigMap whose name the API server completes."""
    path, body = config_map(namespace, prefix, labels=labels or {})
    body["metadata"]["generateName"] = body["metadata"].pop("name")
    return Request("POST", path, body)


def delete(namespace: str, name: str) -> Request:
    """Return the deletion of a ConfigMap that exists."""
    return Request("DELETE", f"{config_map(namespace, name)[0]}/{name}")


def patch(path: str, **change: Any) -> Request:
    """Return a change of the parts of an object."""
    return Request("PATCH", path, change)


def lease(name: str, namespace: str = "mindx-dl", **labels: str) -> Request:
    """Return a change of a Lease that exists, as a heartbeat makes it."""
    annotations = {"npu-vigil/writes": encode_writes({"device-info": 1_764_000_000})}
    return patch(
        f"{LEASES.replace('mindx-dl', namespace)}/{name}",
        metadata={"labels": labels, "annotations": annotations},
        spec={"holderIdentity": "me"},
    )


def create_lease(metadata: dict[str, Any], namespace: str = "mindx-dl") -> Request:
    """Return the creation of a Lease."""
    return Request("POST", LEASES.replace("mindx-dl", namespace), {"metadata": metadata})


def event(host: str, kind: str, name: str, namespace: str = "kube-system") -> Request:
    """Return an Event that ``host`` reports of an object."""
    body = {
        "metadata": {"generateName": "any-", "namespace": namespace},
        "involvedObject": {"kind": kind, "name": name, "namespace": namespace},
        "source": {"component": "npu-vigil", "host": host},
        "reason": "Any",
        "message": "any",
    }
    return Request("POST", f"/api/v1/namespaces/{namespace}/events", body)


def pod(namespace: str, name: str) -> str:
    """Return the path of a pod."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def create_pod(namespace: str) -> Request:
    """Return the creation of a pod."""
    body = {
        "metadata": {"generateName": "any-"},
        "spec": {"containers": [{"name": "any", "image": "any"}]},
    }
    return Request("POST", f"/api/v1/namespaces/{namespace}/pods", body)
