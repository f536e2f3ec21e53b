"""A small cluster as ``kubectl get -o json`` prints it, for tests of the advisor's command."""

from __future__ import annotations

import json
from typing import Any

Object = dict[str, Any]

UPDATED = 1_795_453_190
"""Stamp of the documents in seconds: ten seconds before the newest time in the dump."""
CHIPS = [f"Ascend910-{number}" for number in range(8)]


def named(kind: str, name: str, namespace: str = "", version: str = "v1", **members: Any) -> Object:
    """Return an object with a UID made of its names; ``members`` may have ``metadata``."""
    metadata = {"name": name, "uid": f"{kind}-{namespace}-{name}", **members.pop("metadata", {})}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **members}


def node(name: str) -> Object:
    """Return a ready A2 node of eight chips."""
    amounts = {"cpu": "192", "memory": "1500Gi", "pods": "110", "huawei.com/Ascend910": "8"}
    infos = {chip: {"IP": "", "SuperDeviceID": 0} for chip in CHIPS}
    return named(
        "Node",
        name,
        metadata={
            "labels": {"accelerator": "huawei-Ascend910", "accelerator-type": "module-910b-8"},
            "annotations": {"baseDeviceInfos": json.dumps(infos)},
            "creationTimestamp": "2026-11-20T10:00:00Z",
        },
        status={
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "lastHeartbeatTime": "2026-11-23T17:00:00Z",
                }
            ],
        },
    )


def pod(name: str, on: str, group: str, chips: list[str], **spec: Any) -> Object:
    """Return a running pod of the job ``group`` that holds ``chips``."""
    return named(
        "Pod",
        name,
        "default",
        metadata={
            "annotations": {
                "scheduling.k8s.io/group-name": group,
                "huawei.com/AscendReal": ",".join(chips),
                "hccl/rankIndex": name.rpartition("-")[2],
            },
            "creationTimestamp": "2026-11-23T16:00:00Z",
        },
        spec={
            "nodeName": on,
            "schedulerName": "volcano",
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "train",
                    "resources": {"requests": {"huawei.com/Ascend910": str(len(chips))}},
                }
            ],
            **spec,
        },
        status={
            "phase": "Running",
            "containerStatuses": [{"name": "train", "restartCount": 0, "state": {}}],
        },
    )


def podgroup(name: str, members: int, labels: dict[str, str]) -> Object:
    """Return a running PodGroup."""
    return named(
        "PodGroup",
        name,
        "default",
        "scheduling.volcano.sh/v1beta1",
        metadata={"labels": labels},
        spec={"minMember": members, "minResources": {"huawei.com/Ascend910": str(8 * members)}},
        status={"phase": "Running"},
    )


def configmap(namespace: str, name: str, text: str, version: int, key: str = "") -> Object:
    """Return a ConfigMap with one data key, which is its name unless given."""
    return named(
        "ConfigMap",
        name,
        namespace,
        metadata={"labels": {"mx-consumer-volcano": "true"}, "resourceVersion": str(version)},
        data={key or name: text},
    )


def device_entry(free: list[str], update_time: int = UPDATED) -> Object:
    """Return an entry of cluster-info-device without a fault."""
    return {
        "DeviceList": {
            "huawei.com/Ascend910": ",".join(free),
            "huawei.com/Ascend910-Fault": "[]",
            "huawei.com/Ascend910-NetworkUnhealthy": "",
            "huawei.com/Ascend910-Recovering": "",
            "huawei.com/Ascend910-Unhealthy": "",
        },
        "UpdateTime": update_time,
        "SuperPodID": -2,
        "RackID": 0,
        "ServerIndex": -2,
    }


def two_pods_on_two_of_three_nodes(labels: dict[str, str] | None = None) -> list[Object]:
    """Return nodes n1 to n3, and a job ``j`` with a pod of eight chips on n1 and on n2."""
    given = {"fault-scheduling": "force"} if labels is None else labels
    devices = {
        "mindx-dl-deviceinfo-n1": device_entry([]),
        "mindx-dl-deviceinfo-n2": device_entry([]),
        "mindx-dl-deviceinfo-n3": device_entry(CHIPS),
    }
    switches = {
        f"mindx-dl-switchinfo-n{number}": {
            "FaultCode": [],
            "FaultLevel": "",
            "UpdateTime": UPDATED,
            "NodeStatus": "Healthy",
            "FaultTimeAndLevelMap": {},
        }
        for number in (1, 2, 3)
    }
    return [
        *(node(f"n{number}") for number in (1, 2, 3)),
        podgroup("j", 2, given),
        pod("j-0", "n1", "j", CHIPS),
        pod("j-1", "n2", "j", CHIPS),
        configmap("mindx-dl", "cluster-info-device-0", json.dumps(devices), 11),
        configmap("mindx-dl", "cluster-info-switch-0", json.dumps(switches), 12),
        configmap("mindx-dl", "cluster-info-node-cm", "", 13),
    ]


def as_list(items: list[Object]) -> str:
    """Return a List as ``kubectl`` prints it."""
    return json.dumps(
        {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}},
        indent=4,
    )
