"""Manifests as values, completed from the specification."""

from __future__ import annotations

import json
from typing import Any

Object = dict[str, Any]

RESOURCE = "huawei.com/Ascend910"
A2, A3 = "module-910b-8", "module-a3-16-super-pod"


def pods(cards: int = 8, node: str = A2, **spec: Any) -> Object:
    """Return a pod specification."""
    container: Object = {"name": "c", "image": "image:1"}
    if cards:
        container["resources"] = {side: {RESOURCE: cards} for side in ("limits", "requests")}
    selector = {"accelerator-type": node} if node else {}
    return {
        "schedulerName": "volcano",
        "nodeSelector": selector,
        "containers": [container],
        **spec,
    }


def template(
    labels: Object | None = None, annotations: Object | None = None, **spec: Any
) -> Object:
    """Return a pod template."""
    metadata = {"labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": pods(**spec)}


def vcjob(labels: Object, annotations: Object | None = None, **members: Any) -> Object:
    """Return a Job of Volcano with two pods of eight chips."""
    made = template(**members.pop("template", {"restartPolicy": "Never"}))
    spec: Object = {
        "minAvailable": 2,
        "maxRetry": 3,
        "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
        "tasks": [{"name": "t", "replicas": members.pop("replicas", 2), "template": made}],
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": labels, "annotations": annotations or {}},
        "spec": spec | members,
    }


def ascendjob(
    labels: Object, annotations: Object | None = None, *, workers: int = 3, **members: Any
) -> Object:
    """Return an AscendJob with a master and workers."""
    namespace = members.pop("namespace", "default")
    made = template(**members.pop("template", {}))
    replicas = {
        name: {"replicas": count, "restartPolicy": "Never", "template": made}
        for name, count in (("Master", 1), ("Worker", workers))
        if count
    }
    return {
        "apiVersion": "mindxdl.gitee.com/v1",
        "kind": "AscendJob",
        "metadata": {
            "name": "j",
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations or {},
        },
        "spec": {"schedulerName": "volcano", "replicaSpecs": replicas, "runPolicy": members},
    }


def deployment(labels: Object, annotations: Object | None = None, replicas: int = 2) -> Object:
    """Return a Deployment."""
    made = template(labels | {"app": "d"}, annotations)
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "d"}}, "template": made}
    metadata = {"name": "d"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def leader_worker_set(labels: Object, size: int = 2) -> Object:
    """Return a LeaderWorkerSet."""
    inside = {"size": size, "workerTemplate": template(labels)}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "l"},
        "spec": {"replicas": 1, "leaderWorkerTemplate": inside},
    }


def storm_service(
    size: int, labels: Object, annotations: Object | None = None, **spec: Any
) -> Object:
    """Return a StormService with two prefill pods or instances and one of decode."""
    roles = [
        {
            "name": name,
            "replicas": replicas,
            "podGroupSize": size,
            "template": template(labels, annotations, **spec),
        }
        for name, replicas in (("prefill", 2), ("decode", 1))
    ]
    return {
        "apiVersion": "orchestration.aibrix.ai/v1alpha1",
        "kind": "StormService",
        "metadata": {"name": "s"},
        "spec": {"replicas": 1, "template": {"spec": {"roles": roles}}},
    }


def inference_service(engine: Object, runtime: str | None = None) -> Object:
    """Return an InferenceService."""
    spec: Object = {"model": {"name": "m"}, "engine": engine}
    if runtime is not None:
        spec["runtime"] = {"name": runtime}
    metadata = {"name": "i"}
    version, kind = "ome.io/v1beta1", "InferenceService"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def runtime(labels: Object, annotations: Object | None = None, **engine: Any) -> Object:
    """Return a ClusterServingRuntime with the labels of its engine."""
    component = {"labels": labels, "annotations": annotations or {}, **engine}
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "ClusterServingRuntime",
        "metadata": {"name": "r"},
        "spec": {"engineConfig": component},
    }


def runner(cards: int = 8) -> Object:
    """Return the pod of a component of OME."""
    return {
        "schedulerName": "volcano",
        "nodeSelector": {"accelerator-type": A2},
        "runner": {"name": "ome-container", "resources": {"limits": {RESOURCE: cards}}},
    }


def rule(*entries: dict[str, tuple[int, int]], namespace: str = "default") -> Object:
    """Return a scaling rule: number and servers of each group, for each entry."""
    listed = [
        {
            "group_list": [
                {
                    "group_name": name,
                    "group_num": str(number),
                    "server_num_per_group": str(servers),
                }
                for name, (number, servers) in entry.items()
            ]
        }
        for entry in entries
    ]
    text = json.dumps({"version": "1.0", "elastic_scaling_list": listed}, indent=2)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "rule", "namespace": namespace},
        "data": {"elastic_scaling.json": text},
    }


def scheduler(**arguments: str) -> Object:
    """Return the configuration of the scheduler."""
    switches = json.dumps({name.replace("_", "-"): value for name, value in arguments.items()})
    text = f"actions: allocate\nconfigurations:\n- name: init-params\n  arguments: {switches}\n"
    metadata = {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"}
    data = {"volcano-scheduler.conf": text}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
