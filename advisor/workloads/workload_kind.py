"""What made a job (``docs/spec/consumers.md#2.9``, R11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.report import WorkloadKind
from contract import scheduling

if TYPE_CHECKING:
    from advisor.jobs import SchedulerJob


def workload_of(job: SchedulerJob) -> WorkloadKind:
    """Return what made a job; the first rule that matches wins (R11)."""
    labels = dict(job.group.labels)
    for pod in job.pods:
        labels |= pod.labels
    owners = {owner.kind for owner in (job.group.owner, *(p.owner for p in job.pods)) if owner}
    # OME first: it makes LeaderWorkerSets and Deployments, which would match below as well.
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
