"""A small cluster to decide about: nodes of eight chips, documents about them, jobs.

Sources: ``docs/spec/consumers.md#2.11`` (the fixture of the worked examples) and 1.3.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from advisor.advise import advise
from advisor.options import AdvisorOptions, Profile
from advisor.scheduler_view.state import SchedulerState
from advisor.snapshot import (
    ClusterSnapshot,
    Container,
    ControllingOwner,
    LegacyHeartbeat,
    PodGroup,
    ReplicaSet,
    SchedulerNode,
    SchedulerPod,
    StoredConfigMap,
    VcJob,
    WorkloadObject,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.report import AdviceReport, JobDecision

T0 = 1_795_264_800
"""Unix seconds at which a scene begins."""
RESOURCE = "huawei.com/Ascend910"
FORCE = {"fault-scheduling": "force"}
GRACE = {"fault-scheduling": "grace"}


def cards(*numbers: int) -> str:
    """Return the names of chips as a comma list."""
    return ",".join(f"Ascend910-{number}" for number in numbers)


def fault(card: int, level: str = "SeparateNPU", code: str = "80E18005") -> dict[str, str]:
    """Return an element of ``-Fault``."""
    return {
        "fault_type": "CardUnhealthy",
        "npu_name": f"Ascend910-{card}",
        "large_model_fault_level": level,
        "fault_level": level,
        "fault_handling": level,
        "fault_code": code,
    }


@dataclass
class Chips:
    """What a document has of the chips of a node."""

    unhealthy: Sequence[int] = ()
    network: Sequence[int] = ()
    recovering: Sequence[int] = ()
    faults: Sequence[dict[str, str]] = ()
    free: Sequence[int] = tuple(range(8))
    omit: Sequence[str] = ()
    stamp: int | None = None


@dataclass
class Scene:
    """The cluster and its scheduler; ``session`` decides one second later each time."""

    count: int = 4
    size: int = 8
    options: AdvisorOptions = field(default_factory=AdvisorOptions)
    chips: dict[str, Chips] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    not_ready: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    node_changes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    pods: dict[str, SchedulerPod] = field(default_factory=dict)
    groups: dict[str, PodGroup] = field(default_factory=dict)
    vcjobs: list[VcJob] = field(default_factory=list)
    replica_sets: list[ReplicaSet] = field(default_factory=list)
    workloads: list[WorkloadObject] = field(default_factory=list)
    heartbeats: dict[str, LegacyHeartbeat] = field(default_factory=dict)
    state: SchedulerState = field(default_factory=lambda: SchedulerState(is_known=True))
    now: int = T0
    is_first: bool = True
    made: int = 0

    def names(self) -> list[str]:
        """Return the names of the nodes."""
        return [name for n in range(1, self.count + 1) if (name := f"n{n}") not in self.gone]

    def add(
        self,
        job: str,
        nodes: Sequence[str],
        labels: Mapping[str, str] | None = None,
        *,
        npus: int = 8,
        annotations: Mapping[str, str] | None = None,
        owner: ControllingOwner | None = None,
        phase: str = "Running",
        ranks: bool = True,
        **changes: Any,
    ) -> list[SchedulerPod]:
        """Add a job with a pod on each of ``nodes``, an empty name for one that waits."""
        owner = owner or ControllingOwner("Job", job, f"uid-of-{job}")
        resources = {RESOURCE: str(npus * len(nodes))} if npus else {}
        self.groups[job] = PodGroup(
            namespace="default",
            name=job,
            uid=f"uid-of-pg-{job}",
            phase=phase,
            min_member=len(nodes),
            min_resources=resources,
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
            owner=owner,
        )
        return [
            self.pod(
                job,
                f"{job}-{number}",
                node,
                labels,
                npus=npus,
                rank=str(number) if ranks else "",
                owner=owner,
                **changes,
            )
            for number, node in enumerate(nodes)
        ]

    def pod(
        self,
        job: str,
        name: str,
        node: str,
        labels: Mapping[str, str] | None = None,
        *,
        npus: int = 8,
        first_card: int = 0,
        rank: str = "",
        owner: ControllingOwner | None = None,
        **changes: Any,
    ) -> SchedulerPod:
        """Add a pod to a job."""
        self.made += 1
        annotations = {"scheduling.k8s.io/group-name": job}
        if rank:
            annotations["hccl/rankIndex"] = rank
        if node and npus:
            used = cards(*range(first_card, first_card + npus))
            annotations |= {"huawei.com/AscendReal": used, RESOURCE: used}
        made = SchedulerPod(
            namespace="default",
            name=name,
            uid=f"uid-{self.made}",
            node=node,
            phase="Running" if node else "Pending",
            labels=dict(labels or {}),
            annotations=annotations,
            owner=owner or self.groups[job].owner,
            requests={"cpu": 1000} | ({RESOURCE: npus} if npus else {}),
            node_selector={"accelerator-type": "module-910b-8"},
            scheduler_name="volcano",
        )
        self.pods[name] = msgspec.structs.replace(made, **changes)
        return self.pods[name]

    def change(self, pod: str, **changes: Any) -> None:
        """Change members of a pod."""
        self.pods[pod] = msgspec.structs.replace(self.pods[pod], **changes)

    def restarted(self, pod: str, exit_code: int, restarts: int = 1) -> None:
        """Let a container of a pod have ended with ``exit_code`` and run again."""
        self.change(
            pod,
            containers=(Container("c", last_exit_code=exit_code, restarts=restarts),),
        )

    def replace(self, pod: str, node: str, name: str | None = None) -> None:
        """Make a pod anew, on ``node`` or waiting where that is empty."""
        old = self.pods.pop(pod)
        self.pod(
            old.group,
            name or pod,
            node,
            old.labels,
            npus=old.requests.get(RESOURCE, 0),
            rank=old.annotations.get("hccl/rankIndex", ""),
            owner=old.owner,
        )

    def snapshot(self) -> ClusterSnapshot:
        """Return the cluster as it is now."""
        return ClusterSnapshot(
            now_ms=self.now * 1000,
            first_session=self.is_first,
            nodes=tuple(self._node(name) for name in self.names()),
            pods=tuple(self.pods.values()),
            podgroups=tuple(self.groups.values()),
            vcjobs=tuple(self.vcjobs),
            replica_sets=tuple(self.replica_sets),
            workloads=tuple(self.workloads),
            configmaps=tuple(self.configmaps()),
            heartbeats=self.heartbeats,
        )

    def configmaps(self) -> list[StoredConfigMap]:
        """Return the documents about the cluster (consumers#1.2)."""
        devices = {f"mindx-dl-deviceinfo-{name}": self._device(name) for name in self.names()}
        switches = {
            f"mindx-dl-switchinfo-{name}": {
                "FaultCode": [],
                "FaultLevel": "",
                "UpdateTime": self.now,
                "NodeStatus": self.switches.get(name, "Healthy"),
                "FaultTimeAndLevelMap": {},
            }
            for name in self.names()
        }
        hosts = {
            f"mindx-dl-nodeinfo-{name}": {"FaultDevList": [], "NodeStatus": status}
            for name, status in self.hosts.items()
        }
        return [
            document("cluster-info-device-0", json.dumps(devices)),
            document("cluster-info-switch-0", json.dumps(switches)),
            document("cluster-info-node-cm", json.dumps(hosts) if hosts else ""),
        ]

    def _device(self, name: str) -> dict[str, object]:
        found = self.chips.get(name, Chips())
        lists = {
            RESOURCE: cards(*found.free),
            f"{RESOURCE}-Unhealthy": cards(*found.unhealthy),
            f"{RESOURCE}-NetworkUnhealthy": cards(*found.network),
            f"{RESOURCE}-Recovering": cards(*found.recovering),
            f"{RESOURCE}-Fault": json.dumps(list(found.faults)),
        }
        return {
            "DeviceList": {key: value for key, value in lists.items() if key not in found.omit},
            "UpdateTime": self.now if found.stamp is None else found.stamp,
            "CmName": f"mindx-dl-deviceinfo-{name}",
            "SuperPodID": -2,
            "RackID": 0,
            "ServerIndex": -2,
        }

    def _node(self, name: str) -> SchedulerNode:
        base = {f"Ascend910-{n}": {"IP": "", "SuperDeviceID": n} for n in range(self.size)}
        amounts = {"cpu": 192_000, "pods": 110, RESOURCE: self.size}
        node = SchedulerNode(
            name=name,
            is_ready=name not in self.not_ready,
            labels={"accelerator": "huawei-Ascend910", "accelerator-type": "module-910b-8"},
            annotations={"baseDeviceInfos": json.dumps(base)},
            capacity=amounts,
            allocatable=amounts,
        )
        return msgspec.structs.replace(node, **self.node_changes.get(name, {}))

    def session(self, seconds: int = 1) -> AdviceReport:
        """Return what the next session decides, ``seconds`` after the one before."""
        report, self.state = advise(self.snapshot(), self.state, self.options)
        self.now += seconds
        self.is_first = False
        return report

    def sessions(self, count: int) -> list[AdviceReport]:
        """Return the reports of several sessions."""
        return [self.session() for _ in range(count)]


def document(name: str, text: str, **changes: Any) -> StoredConfigMap:
    """Return a document for the scheduler."""
    made = StoredConfigMap("mindx-dl", name, {name: text}, {"mx-consumer-volcano": "true"})
    return msgspec.structs.replace(made, **changes)


def corrected(**changes: Any) -> AdvisorOptions:
    """Return options with the profile ``corrected``."""
    return msgspec.structs.replace(AdvisorOptions(profile=Profile.CORRECTED), **changes)


def deleted(report: AdviceReport) -> dict[str, int]:
    """Return the grace of each pod that a report deletes."""
    return {pod.name: pod.grace_seconds for pod in report.deletions}


def decision(report: AdviceReport, job: str) -> JobDecision:
    """Return the decision about a job."""
    return next(one for one in report.decisions if one.job == f"default/{job}")


def codes(report: AdviceReport) -> set[str]:
    """Return the codes of all findings."""
    return {one.code for one in report.findings}


def sections(report: AdviceReport) -> set[int]:
    """Return the numbers of consumers#8 by which a report differs from upstream."""
    return {one.section for one in report.findings if one.code == "UPSTREAM_DIVERGES"}
