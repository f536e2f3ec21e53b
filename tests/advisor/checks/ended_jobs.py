"""Vcjobs that have ended, with their pods and nodes."""

from __future__ import annotations

from advisor.snapshot import (
    ClusterSnapshot,
    SchedulerPod,
    StoredConfigMap,
    VcJob,
    VcJobTask,
)
from tests.advisor.controllers.elastic_fleet import LABELS, device, entry, node

NOW_MS = 1_795_450_000_000


RESOURCE = "huawei.com/Ascend910"


def template(cards: int) -> SchedulerPod:
    return SchedulerPod("ns", "w", "", requests={RESOURCE: cards})


def ended(
    name: str, replicas: int, cards: int = 8, *, least: str = "1", created_at_ms: int = 0
) -> VcJob:
    """Return a vcjob that has ended."""
    return VcJob(
        "ns",
        name,
        f"u-{name}",
        LABELS,
        {"minReplicas": least},
        (VcJobTask("w", replicas, None, RESOURCE, cards),),
        phase="Terminated",
        created_at_ms=created_at_ms,
        template=template(cards),
        version="5",
    )


def snapshot(
    nodes: int,
    *jobs: VcJob,
    pods: tuple[SchedulerPod, ...] = (),
    entries: dict[str, dict[str, object]] | None = None,
    documents: tuple[StoredConfigMap, ...] | None = None,
) -> ClusterSnapshot:
    """Return a cluster of nodes with 8 free chips each."""
    names = [f"n{index}" for index in range(nodes)]
    known = {name: entry() for name in names} | (entries or {})
    return ClusterSnapshot(
        NOW_MS,
        nodes=tuple(node(name) for name in names),
        pods=pods,
        vcjobs=jobs,
        configmaps=(device(known),) if documents is None else documents,
    )
