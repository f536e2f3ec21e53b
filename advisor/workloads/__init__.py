"""What made a job, and who makes its pods anew (``docs/spec/consumers.md#2.9``, R11, R35)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.report import WorkloadKind
from advisor.workloads import aibrix, ascendjob, deployment, infer_operator, lws, mindie, vcjob
from contract import scheduling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from advisor.jobs import SchedulerJob
    from advisor.report import Deletion
    from advisor.snapshot import VcJob


def workload_of(job: SchedulerJob) -> WorkloadKind:
    """Return what made a job; the first rule that matches wins (R11)."""
    labels = dict(job.group.labels)
    for pod in job.pods:
        labels |= pod.labels
    owners = {owner.kind for owner in (job.group.owner, *(p.owner for p in job.pods)) if owner}
    if scheduling.OME_SERVICE in labels:
        if any(key.startswith(scheduling.LWS_LABEL_PREFIX) for key in labels):
            return WorkloadKind.OME_LWS
        if "ReplicaSet" in owners:
            return WorkloadKind.OME_DEPLOYMENT
    if scheduling.STORM_SERVICE in labels or (
        scheduling.STORM_ROLE in labels
        and any(key.startswith(scheduling.STORM_LABEL_PREFIX) for key in labels)
    ):
        return WorkloadKind.AIBRIX
    app = labels.get(scheduling.APP)
    if app in scheduling.MINDIE_CONTROL_APPS:
        return WorkloadKind.MINDIE_CONTROL
    if app == scheduling.MINDIE_SERVER:
        return WorkloadKind.MINDIE_SERVER
    if labels.get(scheduling.INFER_OPERATOR) == "true":
        return WorkloadKind.INFER_OPERATOR
    if "AscendJob" in owners or scheduling.OPERATOR_NAME in labels:
        return WorkloadKind.ASCENDJOB
    if "Job" in owners:
        return WorkloadKind.VCJOB
    return WorkloadKind.OTHER


_FOLLOW_UPS: Mapping[WorkloadKind, Callable[[SchedulerJob, Sequence[Deletion]], str]] = {
    WorkloadKind.OME_DEPLOYMENT: deployment.follow_up,
    WorkloadKind.OME_LWS: lws.follow_up,
    WorkloadKind.AIBRIX: aibrix.follow_up,
    WorkloadKind.MINDIE_CONTROL: mindie.follow_up_of_control,
    WorkloadKind.MINDIE_SERVER: mindie.follow_up_of_server,
    WorkloadKind.INFER_OPERATOR: infer_operator.follow_up,
    WorkloadKind.ASCENDJOB: ascendjob.follow_up,
}


def follow_up(
    kind: WorkloadKind,
    job: SchedulerJob,
    pods: Sequence[Deletion],
    vcjobs: Mapping[tuple[str, str], VcJob],
    *,
    is_fault: bool,
) -> str:
    """Return who makes the deleted pods anew, and what else goes (R35).

    ``is_fault``: a fault is the reason, and not only a program that failed.
    """
    if kind is WorkloadKind.VCJOB:
        owner = job.group.owner or next((pod.owner for pod in job.pods if pod.owner), None)
        found = vcjobs.get((job.group.namespace, owner.name)) if owner else None
        return vcjob.follow_up(found, pods, is_fault=is_fault)
    known = _FOLLOW_UPS.get(kind)
    return known(job, pods) if known else "what made the pods is not known, nor who makes them anew"
