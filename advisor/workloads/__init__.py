"""What made a job, and who makes its pods anew (``docs/spec/consumers.md#2.9``, R11, R35)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.report import Workload
from advisor.workloads import aibrix, ascendjob, deployment, infer_operator, lws, mindie, vcjob
from contract import scheduling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from advisor.jobs import Job
    from advisor.report import Deletion
    from advisor.snapshot import VcJob


def workload_of(job: Job) -> Workload:
    """Return what made a job; the first rule that matches wins (R11)."""
    labels = dict(job.group.labels)
    for pod in job.pods:
        labels |= pod.labels
    owners = {owner.kind for owner in (job.group.owner, *(p.owner for p in job.pods)) if owner}
    if scheduling.OME_SERVICE in labels:
        if any(key.startswith(scheduling.LWS_LABEL_PREFIX) for key in labels):
            return Workload.OME_LWS
        if "ReplicaSet" in owners:
            return Workload.OME_DEPLOYMENT
    if scheduling.STORM_SERVICE in labels or (
        scheduling.STORM_ROLE in labels
        and any(key.startswith(scheduling.STORM_LABEL_PREFIX) for key in labels)
    ):
        return Workload.AIBRIX
    app = labels.get(scheduling.APP)
    if app in scheduling.MINDIE_CONTROL_APPS:
        return Workload.MINDIE_CONTROL
    if app == scheduling.MINDIE_SERVER:
        return Workload.MINDIE_SERVER
    if labels.get(scheduling.INFER_OPERATOR) == "true":
        return Workload.INFER_OPERATOR
    if "AscendJob" in owners or scheduling.OPERATOR_NAME in labels:
        return Workload.ASCENDJOB
    if "Job" in owners:
        return Workload.VCJOB
    return Workload.OTHER


_FOLLOW_UPS: Mapping[Workload, Callable[[Job, Sequence[Deletion]], str]] = {
    Workload.OME_DEPLOYMENT: deployment.follow_up,
    Workload.OME_LWS: lws.follow_up,
    Workload.AIBRIX: aibrix.follow_up,
    Workload.MINDIE_CONTROL: mindie.follow_up_of_control,
    Workload.MINDIE_SERVER: mindie.follow_up_of_server,
    Workload.INFER_OPERATOR: infer_operator.follow_up,
    Workload.ASCENDJOB: ascendjob.follow_up,
}


def follow_up(
    kind: Workload,
    job: Job,
    pods: Sequence[Deletion],
    vcjobs: Mapping[tuple[str, str], VcJob],
    *,
    is_fault: bool,
) -> str:
    """Return who makes the deleted pods anew, and what else goes (R35).

    ``is_fault``: a fault is the reason, and not only a program that failed.
    """
    if kind is Workload.VCJOB:
        owner = job.group.owner or next((pod.owner for pod in job.pods if pod.owner), None)
        found = vcjobs.get((job.group.namespace, owner.name)) if owner else None
        return vcjob.follow_up(found, pods, is_fault=is_fault)
    known = _FOLLOW_UPS.get(kind)
    return known(job, pods) if known else "what made the pods is not known, nor who makes them anew"
