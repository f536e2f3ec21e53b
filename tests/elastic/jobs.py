"""Elastic vcjobs as objects of Kubernetes, for every test of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from contract.documents.elastic_job import CAUSE, KEPT, STARTED, Cause, PersistedJob, Size
from elastic.job import JobPod, JobQueue, read_job, read_pod

if TYPE_CHECKING:
    from advisor.snapshot import VcJob

UID = "31f5cfb3-ad8b-406b-a7ba-17b72baeca9e"
CHIPS = "huawei.com/Ascend910"
BEGAN = "2026-11-23T10:00:00Z"
ENDED = "2026-11-23T11:00:00Z"
BEGAN_MS, ENDED_MS = 1_795_428_000_000, 1_795_431_600_000
NOW_MS = ENDED_MS + 30_000
OPEN = {"q": JobQueue("default", "Open")}
"""The Queues of a cluster, by uid."""


def vcjob(
    name: str = "j",
    replicas: int = 4,
    cards: int = 8,
    *,
    least: str | None = "1",
    action: str = "TerminateJob",
    phase: str = "Terminated",
) -> dict[str, Any]:
    """Return an elastic vcjob that meets every condition."""
    amounts = {CHIPS: str(cards)}
    container = {
        "name": "train",
        "image": "any",
        "resources": {"limits": dict(amounts), "requests": dict(amounts)},
    }
    conditions = [{"status": "Running", "lastTransitionTime": BEGAN}]
    if phase in ("Failed", "Terminated", "Aborted", "Completed"):
        conditions.append({"status": phase, "lastTransitionTime": ENDED})
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": UID,
            "resourceVersion": "7",
            "creationTimestamp": BEGAN,
            "labels": {"fault-scheduling": "grace", "elastic-scheduling": "on"},
            "annotations": {} if least is None else {"minReplicas": least},
        },
        "spec": {
            "minAvailable": replicas,
            "maxRetry": 0 if action == "RestartJob" else 3,
            "schedulerName": "volcano",
            "queue": "default",
            "policies": [{"event": "PodEvicted", "action": action}],
            "tasks": [
                {
                    "name": "w",
                    "replicas": replicas,
                    "minAvailable": replicas,
                    "template": {"spec": {"containers": [container]}},
                }
            ],
        },
        "status": {"state": {"phase": phase}, "conditions": conditions},
    }


def as_written(item: dict[str, Any]) -> dict[str, Any]:
    """Return ``item`` without what the API server and the job controller give it."""
    for field in ("uid", "resourceVersion", "creationTimestamp"):
        del item["metadata"][field]
    del item["status"]
    return item


def with_kept(item: dict[str, Any], kept: PersistedJob, *, started: int = 0) -> dict[str, Any]:
    """Return ``item`` with what is kept on it, and the size that was written."""
    item["metadata"]["annotations"][KEPT] = msgspec.json.encode(kept).decode()
    task = item["spec"]["tasks"][0]
    task["replicas"], item["spec"]["minAvailable"] = kept.size.replicas, kept.size.available
    task["minAvailable"] = kept.size.task_available
    resources = task["template"]["spec"]["containers"][0]["resources"]
    for field in resources.values():
        field[CHIPS] = str(kept.size.cards)
    if started:
        item["status"]["state"]["message"] = f"{STARTED}{started}: {kept.size.replicas}"
    return item


def with_cause(item: dict[str, Any], cause: Cause | None) -> dict[str, Any]:
    """Return ``item`` with the cause that is kept on it."""
    if cause is not None:
        item["metadata"]["annotations"][CAUSE] = msgspec.json.encode(cause).decode()
    return item


def read(item: dict[str, Any]) -> VcJob:
    """Return ``item`` as it is read."""
    return read_job(json.dumps(item).encode())


def pod(
    name: str = "j-w-0", phase: str = "Running", *, deleted: bool = False, node: str = "n0"
) -> JobPod:
    """Return a pod of the job."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": f"p-{name}",
        "ownerReferences": [{"kind": "Job", "name": "j", "uid": UID, "controller": True}],
    }
    if deleted:
        metadata |= {"deletionTimestamp": ENDED, "deletionGracePeriodSeconds": 600}
    content = {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}
    return read_pod(json.dumps(content).encode())


def size(replicas: int, cards: int = 8, available: int | None = None) -> Size:
    """Return a size at which all pods start together."""
    count = replicas if available is None else available
    return Size(replicas, cards, count, count)
