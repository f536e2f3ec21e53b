"""What ``vigil advise`` costs on a dump of a large cluster.

::

    python -m benchmarks.advise [--nodes 10000] [--pods 20000] [--jobs 2500] [--bad 5]
                               [--keep FILE]

Writes a List as ``kubectl get nodes,pods,podgroups.scheduling.volcano.sh,jobs.batch.volcano.sh,
configmaps -A -o json`` prints it: nodes of eight chips, of which ``--bad`` percent have a bad card,
pods of one to four chips, one job in twenty waiting. Runs the command on it as a process of its
own and prints wall time, CPU and peak memory. Ends with 1 when a run takes more than 10 s of CPU or
1 GB; ``--profile`` chooses what is computed, and each profile alone must fit as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]

_CHIPS = 8
_PER_DOCUMENT = 250
"""Nodes in one cluster-info document; about what fits 128 KiB."""
_WAITING_EVERY = 20
_CARDS = (1, 2, 4, 4)
"""Of the pods of every fourth job: so many fit."""
_MOST_CPU_SECONDS, _MOST_BYTES = 10.0, 1024**3
_NOW = "2026-11-23T17:00:00Z"
_STAMP = 1_795_453_190


def chip(number: int) -> str:
    """Return the name of a chip."""
    return f"Ascend910-{number}"


def objects(nodes: int, pods: int, jobs: int, bad_percent: int) -> Iterator[Object]:
    """Yield the objects of the cluster, in ``kubectl``'s order of kinds.

    Pods of one job follow each other on the nodes; node ``i`` is bad where ``i % 100`` is below
    ``bad_percent``.
    """
    yield from (_node(index) for index in range(nodes))
    per_job = max(1, pods // jobs)
    free = [_CHIPS] * nodes
    place = 0
    for index in range(pods):
        job = index // per_job
        cards = _CARDS[job % 4]
        if job % _WAITING_EVERY == 0:
            yield _pod(index, job, per_job, cards, None, ())
            continue
        for _ in range(nodes):
            if free[place] >= cards:
                break
            place = (place + 1) % nodes
        first = _CHIPS - free[place]
        free[place] -= cards
        names = tuple(chip(number) for number in range(first, first + cards))
        yield _pod(index, job, per_job, cards, place, names)
        place = (place + 1) % nodes
    for job in range(jobs):
        yield _podgroup(job, per_job)
        yield _vcjob(job, per_job)
    yield from _documents(nodes, bad_percent)


def _uid(kind: str, index: int) -> str:
    return f"{kind:.4}0000-0000-4000-8000-{index:012d}"


def _node(index: int) -> Object:
    infos = {
        chip(number): {"IP": f"10.{number}.{index // 250}.{index % 250}", "SuperDeviceID": 0}
        for number in range(_CHIPS)
    }
    amounts = {
        "cpu": "192",
        "ephemeral-storage": "1843269236Ki",
        "huawei.com/Ascend910": "8",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": "1584914520Ki",
        "pods": "110",
    }
    conditions = [
        {
            "lastHeartbeatTime": _NOW,
            "lastTransitionTime": "2026-10-01T08:00:00Z",
            "message": f"kubelet has no {word}, it is well",
            "reason": f"KubeletHasNo{word}",
            "status": "True" if word == "Ready" else "False",
            "type": word,
        }
        for word in ("NetworkUnavailable", "MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [
        {"names": [f"registry.local/images/training-{number}@sha256:{number:064x}"], "sizeBytes": 9}
        for number in range(40)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": {
                "baseDeviceInfos": json.dumps(infos),
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "creationTimestamp": "2026-10-01T08:00:00Z",
            "labels": {
                "accelerator": "huawei-Ascend910",
                "accelerator-type": "module-910b-8",
                "host-arch": "huawei-x86",
                "kubernetes.io/hostname": f"node-{index}",
                "node.kubernetes.io/npu.chip.name": "910B3",
                "workerselector": "dls-worker-node",
            },
            "name": f"node-{index}",
            "resourceVersion": str(1000 + index),
            "uid": _uid("node", index),
        },
        "spec": {"podCIDR": f"10.244.{index % 256}.0/24"},
        "status": {
            "addresses": [{"address": f"10.9.{index // 250}.{index % 250}", "type": "InternalIP"}],
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": conditions,
            "images": images,
            "nodeInfo": {"kubeletVersion": "v1.28.2", "osImage": "openEuler 22.03"},
        },
    }


def _owned_by(job: int) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "controller": True,
            "kind": "Job",
            "name": f"job-{job}",
            "uid": _uid("vcjo", job),
        }
    ]


def _pod(
    index: int, job: int, per_job: int, cards: int, node: int | None, chips: tuple[str, ...]
) -> Object:
    environment = [{"name": f"TRAINING_OPTION_{number}", "value": "on"} for number in range(20)]
    environment.append({"name": "VC_TASK_INDEX", "value": str(index % per_job)})
    amounts = {"cpu": "4", "huawei.com/Ascend910": str(cards), "memory": "16Gi"}
    annotations = {
        "scheduling.k8s.io/group-name": f"job-{job}",
        "volcano.sh/job-name": f"job-{job}",
        "hccl/rankIndex": str(index % per_job),
    }
    if chips:
        annotations["huawei.com/AscendReal"] = ",".join(chips)
        annotations["huawei.com/Ascend910"] = ",".join(chips)
    volumes = [
        {"name": f"volume-{number}", "hostPath": {"path": f"/data/shared/{number}", "type": ""}}
        for number in range(8)
    ]
    mounts = [{"name": f"volume-{number}", "mountPath": f"/data/{number}"} for number in range(8)]
    running = {"running": {"startedAt": "2026-11-20T08:00:10Z"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "annotations": annotations,
            "creationTimestamp": "2026-11-20T08:00:00Z",
            "labels": {"fault-scheduling": "grace", "volcano.sh/job-name": f"job-{job}"},
            "name": f"job-{job}-worker-{index % per_job}",
            "namespace": "training",
            "ownerReferences": _owned_by(job),
            "resourceVersion": str(100_000 + index),
            "uid": _uid("pod-", index),
        },
        "spec": {
            "containers": [
                {
                    "command": ["/bin/bash", "-c", "cd /job/code && bash train_start.sh"],
                    "env": environment,
                    "image": "registry.local/images/training:1",
                    "name": "worker",
                    "resources": {"limits": amounts, "requests": amounts},
                    "volumeMounts": mounts,
                }
            ],
            **({} if node is None else {"nodeName": f"node-{node}"}),
            "nodeSelector": {"accelerator-type": "module-910b-8", "host-arch": "huawei-x86"},
            "restartPolicy": "Never",
            "schedulerName": "volcano",
            "terminationGracePeriodSeconds": 600,
            "tolerations": [
                {
                    "effect": "NoExecute",
                    "key": f"node.kubernetes.io/{word}",
                    "operator": "Exists",
                    "tolerationSeconds": 300,
                }
                for word in ("not-ready", "unreachable")
            ],
            "volumes": volumes,
        },
        "status": {
            "phase": "Pending" if node is None else "Running",
            "containerStatuses": []
            if node is None
            else [
                {
                    "image": "registry.local/images/training:1",
                    "name": "worker",
                    "ready": True,
                    "restartCount": 0,
                    "state": running,
                }
            ],
            "startTime": "2026-11-20T08:00:01Z",
        },
    }


def _podgroup(job: int, members: int) -> Object:
    waits = job % _WAITING_EVERY == 0
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "labels": {"fault-scheduling": "grace"},
            "name": f"job-{job}",
            "namespace": "training",
            "ownerReferences": _owned_by(job),
            "uid": _uid("podg", job),
        },
        "spec": {
            "minMember": members,
            "minResources": {"huawei.com/Ascend910": str(members * _CARDS[job % 4])},
        },
        "status": {"phase": "Inqueue" if waits else "Running"},
    }


def _vcjob(job: int, members: int) -> Object:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            "labels": {"fault-scheduling": "grace"},
            "name": f"job-{job}",
            "namespace": "training",
            "uid": _uid("vcjo", job),
        },
        "spec": {
            "maxRetry": 3,
            "minAvailable": members,
            "policies": [{"action": "RestartJob", "event": "PodEvicted"}],
            "tasks": [{"name": "worker", "replicas": members}],
        },
        "status": {"state": {"phase": "Running"}},
    }


def _documents(nodes: int, bad_percent: int) -> Iterator[Object]:
    for number, first in enumerate(range(0, nodes, _PER_DOCUMENT)):
        entries = {
            f"mindx-dl-deviceinfo-node-{index}": _entry(index, is_bad=index % 100 < bad_percent)
            for index in range(first, min(first + _PER_DOCUMENT, nodes))
        }
        yield _configmap(f"cluster-info-device-{number}", json.dumps(entries), number)
    yield _configmap("cluster-info-switch-0", "", nodes)
    yield _configmap("cluster-info-node-cm", "", nodes + 1)


def _entry(index: int, *, is_bad: bool) -> Object:
    fault = {
        "fault_type": "CardUnhealthy",
        "npu_name": chip(3),
        "large_model_fault_level": "SeparateNPU",
        "fault_level": "SeparateNPU",
        "fault_handling": "SeparateNPU",
        "fault_code": "80E18005",
        "fault_time_and_level_map": {
            "80E18005": {"fault_time": _STAMP * 1000, "fault_level": "SeparateNPU"}
        },
    }
    good = [chip(number) for number in range(_CHIPS) if not (is_bad and number == 3)]
    return {
        "DeviceList": {
            "huawei.com/Ascend910": ",".join(good),
            "huawei.com/Ascend910-Fault": json.dumps([fault] if is_bad else []),
            "huawei.com/Ascend910-NetworkUnhealthy": "",
            "huawei.com/Ascend910-Recovering": "",
            "huawei.com/Ascend910-Unhealthy": chip(3) if is_bad else "",
        },
        "UpdateTime": _STAMP,
        "CmName": f"mindx-dl-deviceinfo-node-{index}",
        "SuperPodID": -2,
        "RackID": 0,
        "ServerIndex": -2,
    }


def _configmap(name: str, text: str, number: int) -> Object:
    return {
        "apiVersion": "v1",
        "data": {name: text},
        "kind": "ConfigMap",
        "metadata": {
            "labels": {"mx-consumer-volcano": "true"},
            "name": name,
            "namespace": "mindx-dl",
            "resourceVersion": str(1_000_000 + number),
            "uid": _uid("conf", number),
        },
    }


def write(file: TextIO, found: Iterator[Object]) -> None:
    """Write a List with four blanks per level, as ``kubectl`` does."""
    file.write('{\n    "apiVersion": "v1",\n    "items": [')
    separator = "\n"
    for one in found:
        text = json.dumps(one, indent=4).replace("\n", "\n        ")
        file.write(f"{separator}        {text}")
        separator = ",\n"
    file.write('\n    ],\n    "kind": "List",\n    "metadata": {\n        "resourceVersion": ""\n')
    file.write("    }\n}\n")


def measure(dump: Path, options: list[str]) -> tuple[float, float, int, int]:
    """Return wall seconds, CPU seconds, peak bytes and exit status of one run."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "vigil", "advise", "--dump", str(dump), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - begin
    cpu = usage.ru_utime + usage.ru_stime
    return wall, cpu, usage.ru_maxrss * 1024, process.returncode


def main() -> None:
    """Measure, and print what it was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=2_500)
    parser.add_argument("--bad", type=int, default=5, help="percent of nodes with a bad card")
    parser.add_argument("--keep", type=Path, help="write the dump here and keep it")
    given = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as directory:
        dump = given.keep or Path(directory) / "dump.json"
        with dump.open("w", encoding="utf-8") as file:
            write(file, objects(given.nodes, given.pods, given.jobs, given.bad))
        print(f"{dump.stat().st_size / 1e6:.0f} MB")
        assumed = ["--what-if", "chip 3 of node-8 SeparateNPU"]
        for options in (["--profile", "upstream"], ["--profile", "both"], ["--json"], assumed):
            wall, cpu, peak, status = measure(dump, options)
            over = cpu > _MOST_CPU_SECONDS or peak > _MOST_BYTES
            missed = missed or over or status not in (0, 1)
            print(
                f"{' '.join(options):38} {wall:6.1f} s, CPU {cpu:6.1f} s, {peak / 1e6:6.0f} MB, "
                f"exit {status}{'  MISSED' if over else ''}"
            )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
