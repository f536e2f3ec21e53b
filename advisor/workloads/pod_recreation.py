"""Which controller makes deleted pods again, and what else it deletes (``consumers#2.9``, R35).

What the controller of Volcano Jobs does depends on policies and on the stored ``maxRetry``, as
observed on its version v1.15.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.report import WorkloadKind
from advisor.workloads.elastic_conditions import elastic_start
from contract.counted import counted
from contract.documents.elastic_job import EVICTED_EVENTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.jobs import SchedulerJob
    from advisor.report import Deletion
    from advisor.snapshot import VcJob


def follow_up(
    kind: WorkloadKind,
    job: SchedulerJob,
    pods: Sequence[Deletion],
    vcjobs: Mapping[tuple[str, str], VcJob],
    *,
    is_fault: bool,
) -> str:
    """Return who makes the deleted pods anew, and what else goes.

    ``is_fault``: a fault is the reason, and not only a program that failed.
    """
    count = counted(len(pods), "pod")
    match kind:
        case WorkloadKind.VCJOB:
            owner = job.group.owner or next((pod.owner for pod in job.pods if pod.owner), None)
            found = vcjobs.get((job.group.namespace, owner.name)) if owner else None
            return follow_up_of_vcjob(found, pods, is_fault=is_fault)
        case WorkloadKind.OME_DEPLOYMENT:
            replacements = counted(len(pods), "replacement")
            return f"the ReplicaSet controller makes {replacements} with new names"
        case WorkloadKind.OME_LWS:
            gone = {pod.uid for pod in pods}
            others = [pod.name for pod in job.pods if pod.uid not in gone]
            rest = f" and deletes {', '.join(others)}" if others else ""
            return f"the LWS controller makes the whole group anew{rest}"
        case WorkloadKind.AIBRIX:
            whole = "the instance" if len(pods) == len(job.pods) else count
            return f"the AIBrix controllers make {whole} anew"
        case WorkloadKind.MINDIE_CONTROL:
            return f"the Ascend Operator makes {count} anew"
        case WorkloadKind.MINDIE_SERVER:
            return "the Ascend Operator makes the instance anew if the scaling rule allows it (R50)"
        case WorkloadKind.INFER_OPERATOR:
            return "the infer-operator deletes the workload of the instance and makes it anew"
        case WorkloadKind.ASCENDJOB:
            return f"the Ascend Operator makes {count} anew and counts one restart (3.6)"
    return "what made the pods is not known, nor who makes them anew"


def action_after_eviction(job: VcJob) -> str:
    """Return the action of the job's own policy for evicted pods; empty where there is none."""
    for policy in job.policies:
        if any(event in EVICTED_EVENTS for event in policy.events):
            return policy.action
    return ""


def follow_up_of_vcjob(job: VcJob | None, pods: Sequence[Deletion], *, is_fault: bool) -> str:
    """Return what the vcjob controller does once pods are deleted, and who starts the job again.

    After a program that failed it is not started again.
    """
    if job is None:
        return "the vcjob is not in the snapshot: what follows depends on its policies"
    start = elastic_start(job) if is_fault else ""
    ends = _after_deletion(job, pods)
    return f"{ends}; {start}" if start else ends


def _after_deletion(job: VcJob, pods: Sequence[Deletion]) -> str:
    action = action_after_eviction(job)
    if action == "RestartJob":
        if job.max_retry == 0:
            hang = "; other pods keep their grace" if len(pods) > 1 else ""
            return f"RestartJob with maxRetry 0: the job is Failed once the first pod is gone{hang}"
        if job.max_retry is not None and job.retry_count >= job.max_retry:
            return f"RestartJob with {job.retry_count} of {job.max_retry} retries used: Failed"
        return "RestartJob: the vcjob controller ends all pods and makes them anew at the same size"
    if action in ("TerminateJob", "AbortJob"):
        end = "Terminated" if action == "TerminateJob" else "Aborted"
        return f"{action}: the job is {end} when all pods have ended"
    if action:
        return f"{action}: done by the vcjob controller"
    return "no policy for evicted pods: the vcjob controller makes each pod anew at once"
