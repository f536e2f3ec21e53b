"""What the advisor's decisions cost: ``python -m benchmarks.decisions``.

In one process, without I/O: nodes of eight chips, of which a share has a bad card, and jobs of
eight pods, one in ten waiting. Prints the CPU time of the first session of a scheduler and of
later ones, by profile, and ends with 1 when one takes longer than a second.
"""

from __future__ import annotations

import argparse
import json
import sys
from time import process_time
from typing import TYPE_CHECKING, Any

import msgspec

from advisor.advise import advise
from advisor.options import AdvisorOptions, Profile
from advisor.scheduler_view.state import SchedulerState
from advisor.snapshot import (
    ClusterSnapshot,
    ControllingOwner,
    PodGroup,
    SchedulerNode,
    SchedulerPod,
    StoredConfigMap,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

CHIPS = 8
PODS_OF_A_JOB = 8
CARDS_OF_A_POD = 4
NODES_OF_A_DOCUMENT = 150
MOST_SECONDS = 1.0
_RESOURCE = "huawei.com/Ascend910"
_T0 = 1_795_264_800
_CARDS = tuple(f"Ascend910-{number}" for number in range(CHIPS))
_LABELS = {
    "accelerator": "huawei-Ascend910",
    "accelerator-type": "module-910b-8",
    "host-arch": "huawei-x86",
}
_AMOUNTS = {"cpu": 192_000, "memory": 1 << 40, "pods": 110, _RESOURCE: CHIPS}


def cluster(nodes: int, pods: int, bad_percent: int) -> ClusterSnapshot:
    """Return a cluster of so many nodes and pods, as the first session finds it."""
    names = [f"node-{number:05}" for number in range(nodes)]
    jobs = range(pods // PODS_OF_A_JOB)
    return ClusterSnapshot(
        now_ms=_T0 * 1000,
        first_session=True,
        nodes=tuple(_node(number, name) for number, name in enumerate(names)),
        pods=tuple(pod for job in jobs for pod in _pods(job, names)),
        podgroups=tuple(_group(job) for job in jobs),
        configmaps=tuple(_documents(names, bad_percent)),
    )


def _node(number: int, name: str) -> SchedulerNode:
    base = {
        card: {"IP": f"10.{number >> 8}.{number & 255}.{place}", "SuperDeviceID": 0}
        for place, card in enumerate(_CARDS)
    }
    return SchedulerNode(
        name=name,
        labels=_LABELS | {"kubernetes.io/hostname": name},
        annotations={"baseDeviceInfos": json.dumps(base)},
        capacity=_AMOUNTS,
        allocatable=_AMOUNTS,
    )


def _job_labels(job: int) -> dict[str, str]:
    return {"fault-scheduling": "grace" if job % 3 else "force", "ring-controller.atlas": "a"}


def _waits(job: int) -> bool:
    return job % 10 == 0


def _group(job: int) -> PodGroup:
    return PodGroup(
        namespace="default",
        name=f"job-{job:05}",
        uid=f"group-{job}",
        phase="Inqueue" if _waits(job) else "Running",
        min_member=PODS_OF_A_JOB,
        min_resources={_RESOURCE: str(PODS_OF_A_JOB * CARDS_OF_A_POD)},
        labels=_job_labels(job),
        owner=ControllingOwner("Job", f"job-{job:05}", f"owner-{job}"),
    )


def _pods(job: int, names: Sequence[str]) -> list[SchedulerPod]:
    found = []
    for index in range(PODS_OF_A_JOB):
        number = job * PODS_OF_A_JOB + index
        first = number % 2 * CARDS_OF_A_POD
        cards = ",".join(_CARDS[first : first + CARDS_OF_A_POD])
        annotations = {"scheduling.k8s.io/group-name": f"job-{job:05}"}
        if not _waits(job):
            annotations |= {"huawei.com/AscendReal": cards, _RESOURCE: cards}
        found.append(
            SchedulerPod(
                namespace="default",
                name=f"job-{job:05}-w-{index}",
                uid=f"pod-{number}",
                node="" if _waits(job) else names[number // 2 % len(names)],
                phase="Pending" if _waits(job) else "Running",
                labels=_job_labels(job),
                annotations=annotations,
                owner=ControllingOwner("Job", f"job-{job:05}", f"owner-{job}"),
                requests={"cpu": 1000, _RESOURCE: CARDS_OF_A_POD},
                node_selector={"accelerator-type": "module-910b-8", "host-arch": "huawei-x86"},
                scheduler_name="volcano",
                task_index=str(index),
            )
        )
    return found


def _documents(names: Sequence[str], bad_percent: int) -> list[StoredConfigMap]:
    found = [_document("cluster-info-node-cm", "")]
    entries = [
        (name, _entry(name, number % 100 < bad_percent)) for number, name in enumerate(names)
    ]
    for first in range(0, len(entries), NODES_OF_A_DOCUMENT):
        part = entries[first : first + NODES_OF_A_DOCUMENT]
        text = json.dumps({f"mindx-dl-deviceinfo-{name}": entry for name, entry in part})
        found.append(_document(f"cluster-info-device-{first // NODES_OF_A_DOCUMENT}", text))
    return found


def _document(name: str, text: str) -> StoredConfigMap:
    return StoredConfigMap("mindx-dl", name, {name: text}, {"mx-consumer-volcano": "true"})


def _entry(name: str, is_bad: bool) -> dict[str, Any]:
    card = _CARDS[sum(name.encode()) % CHIPS]
    element = {
        "fault_type": "CardUnhealthy",
        "npu_name": card,
        "large_model_fault_level": "SeparateNPU",
        "fault_level": "SeparateNPU",
        "fault_handling": "SeparateNPU",
        "fault_code": "80E18005",
        "fault_time_and_level_map": {},
    }
    return {
        "DeviceList": {
            _RESOURCE: ",".join(_CARDS),
            f"{_RESOURCE}-Fault": json.dumps([element] if is_bad else []),
            f"{_RESOURCE}-NetworkUnhealthy": "",
            f"{_RESOURCE}-Recovering": "",
            f"{_RESOURCE}-Unhealthy": card if is_bad else "",
        },
        "UpdateTime": _T0,
        "CmName": f"mindx-dl-deviceinfo-{name}",
        "SuperPodID": -2,
        "RackID": 0,
        "ServerIndex": -2,
    }


def measure(snapshot: ClusterSnapshot, profile: Profile, sessions: int) -> list[tuple[float, int]]:
    """Return the CPU seconds and the deletions of each session."""
    state, found = SchedulerState(is_known=True), []
    for number in range(sessions):
        now = msgspec.structs.replace(
            snapshot, now_ms=snapshot.now_ms + 1000 * number, first_session=number == 0
        )
        began = process_time()
        report, state = advise(now, state, AdvisorOptions(profile=profile))
        found.append((process_time() - began, len(report.deletions)))
    return found


def main() -> int:
    """Measure, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--nodes", type=int, default=10_000)
    arguments.add_argument("--pods", type=int, default=20_000)
    arguments.add_argument("--bad", type=int, default=5, help="percent of the nodes")
    arguments.add_argument("--sessions", type=int, default=5)
    chosen = arguments.parse_args()
    snapshot = cluster(chosen.nodes, chosen.pods, chosen.bad)
    print(f"{len(snapshot.nodes)} nodes, {len(snapshot.pods)} pods, {len(snapshot.podgroups)} jobs")
    slowest = 0.0
    for profile in Profile:
        for number, (seconds, deletions) in enumerate(measure(snapshot, profile, chosen.sessions)):
            slowest = max(slowest, seconds)
            print(f"{profile:10} session {number + 1}: {seconds:6.3f} s CPU, {deletions} deletions")
    return 0 if slowest <= MOST_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
