"""Nodes, elastic vcjobs and documents about them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from advisor.advise import advise
from advisor.options import AdvisorOptions, Profile
from advisor.scheduler_view.state import SchedulerState
from advisor.snapshot import (
    ClusterSnapshot,
    ControllingOwner,
    LifecyclePolicy,
    PodGroup,
    SchedulerNode,
    SchedulerPod,
    StoredConfigMap,
    VcJob,
    VcJobTask,
)

if TYPE_CHECKING:
    from advisor.report import ElasticAdvice


CARDS = [f"Ascend910-{number}" for number in range(8)]


LABELS = {"fault-scheduling": "grace", "elastic-scheduling": "on"}


def node(name: str) -> SchedulerNode:
    """Return an A2 node."""
    amounts = {"huawei.com/Ascend910": 8, "pods": 110}
    infos = json.dumps({card: {"IP": "", "SuperDeviceID": 0} for card in CARDS})
    return SchedulerNode(
        name,
        labels={"accelerator": "huawei-Ascend910"},
        annotations={"baseDeviceInfos": infos},
        capacity=amounts,
        allocatable=amounts,
    )


def entry(unhealthy: str = "", network: str = "") -> dict[str, object]:
    """Return a device entry with these cards out of order."""
    key = "huawei.com/Ascend910"
    return {
        "DeviceList": {
            key: ",".join(card for card in CARDS if card not in unhealthy.split(",")),
            f"{key}-Fault": "[]",
            f"{key}-NetworkUnhealthy": network,
            f"{key}-Recovering": "",
            f"{key}-Unhealthy": unhealthy,
        },
        "UpdateTime": 1_795_450_000,
    }


def device(entries: dict[str, dict[str, object]]) -> StoredConfigMap:
    """Return a document with these entries."""
    name = "cluster-info-device-0"
    text = json.dumps({f"mindx-dl-deviceinfo-{node}": one for node, one in entries.items()})
    return StoredConfigMap("mindx-dl", name, {name: text}, {"mx-consumer-volcano": "true"})


class Fleet:
    """Jobs on nodes ``n0``, ``n1``, …: each pod takes the next one whole, or its first cards."""

    def __init__(self, nodes: int, **entries: dict[str, object]) -> None:
        self.nodes = [f"n{index}" for index in range(nodes)]
        self.entries = {name: entry() for name in self.nodes} | entries
        self.pods: list[SchedulerPod] = []
        self.groups: list[PodGroup] = []
        self.vcjobs: list[VcJob] = []

    def job(
        self,
        name: str,
        replicas: int,
        least: str = "1",
        *,
        cards: int = 8,
        labels: dict[str, str] | None = None,
        created_at_ms: int = 0,
        max_retry: int | None = 0,
        action: str = "RestartJob",
    ) -> Fleet:
        """Add a job whose pods run."""
        given = LABELS if labels is None else labels
        annotations = {"minReplicas": least} if least else {}
        owner = ControllingOwner("Job", name, f"u-{name}")
        self.vcjobs.append(
            VcJob(
                "ns",
                name,
                owner.uid,
                given,
                annotations,
                (VcJobTask("w", replicas, None, "huawei.com/Ascend910", cards),),
                max_retry=max_retry,
                policies=(LifecyclePolicy(("PodEvicted",), action),) if action else (),
                created_at_ms=created_at_ms,
            )
        )
        resources = {"huawei.com/Ascend910": str(cards * replicas)}
        self.groups.append(
            PodGroup("ns", name, f"g-{name}", "Running", replicas, resources, given, owner=owner)
        )
        for index in range(replicas):
            self.pods.append(
                SchedulerPod(
                    "ns",
                    f"{name}-{index}",
                    f"p-{name}-{index}",
                    self.nodes[len(self.pods)],
                    "Running",
                    annotations={
                        "scheduling.k8s.io/group-name": name,
                        "huawei.com/AscendReal": ",".join(CARDS[:cards]),
                    },
                    owner=owner,
                    requests={"huawei.com/Ascend910": cards},
                )
            )
        return self

    def snapshot(self, gone: tuple[str, ...] = ()) -> ClusterSnapshot:
        """Return the cluster without the nodes ``gone``."""
        return ClusterSnapshot(
            1_795_450_000_000,
            nodes=tuple(node(name) for name in self.nodes if name not in gone),
            pods=tuple(self.pods),
            podgroups=tuple(self.groups),
            vcjobs=tuple(self.vcjobs),
            configmaps=(device(self.entries),),
        )

    def advice(
        self,
        gone: tuple[str, ...] = (),
        profile: Profile = Profile.UPSTREAM,
        *,
        halve: bool = False,
    ) -> list[ElasticAdvice]:
        """Return what is advised."""
        options = AdvisorOptions(profile=profile, halving_only=halve)
        return list(advise(self.snapshot(gone), SchedulerState(), options)[0].elastic_advice)
