"""What made a job, and which controller makes its deleted pods again (``consumers#2.9``, R11, R35).

What the controller of Volcano Jobs does depends on policies and on the stored ``maxRetry``, as
observed on its version v1.15.0. What LWS does is read at its commit 060ab4da
(``pkg/controllers/pod_controller.go``, ``handleRestartPolicy``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from advisor.report import PodRef, WorkloadKind
from advisor.workloads.elastic_conditions import elastic_start
from contract import scheduling
from contract.documents.elastic_job import EVICTED_EVENTS
from contract.sentences import counted, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from advisor.jobs import SchedulerJob
    from advisor.report import Deletion
    from advisor.snapshot import SchedulerPod, VcJob, WorkloadObject
    from advisor.snapshot_index import SnapshotIndex


class FollowUp(NamedTuple):
    """What controllers do, which pods they delete, and what that depends on and is not known."""

    text: str
    deleted: tuple[PodRef, ...] = ()
    gap: str = ""


def follow_up(
    kind: WorkloadKind,
    job: SchedulerJob,
    pods: Sequence[Deletion],
    index: SnapshotIndex,
    *,
    is_fault: bool,
) -> FollowUp:
    """Return which controller makes the deleted pods anew, and what else it deletes.

    ``is_fault``: a fault is the reason, and not only a program that failed.
    """
    gone = {pod.uid for pod in pods}
    of_lws = [pod for pod in job.pods if pod.uid in gone and scheduling.LWS_NAME in pod.labels]
    if of_lws:
        return after_lws(of_lws, index, gone)
    return FollowUp(_follow_up(kind, job, pods, index, is_fault=is_fault))


def _follow_up(
    kind: WorkloadKind,
    job: SchedulerJob,
    pods: Sequence[Deletion],
    index: SnapshotIndex,
    *,
    is_fault: bool,
) -> str:
    count = len(pods)
    match kind:
        case WorkloadKind.VCJOB:
            # A PodGroup in a dump may lack its owner; a pod of the job names it as well.
            owner = job.group.owner or next((pod.owner for pod in job.pods if pod.owner), None)
            vcjob = index.vcjobs.get((job.group.namespace, owner.name)) if owner else None
            return follow_up_of_vcjob(vcjob, pods, is_fault=is_fault)
        case WorkloadKind.OME_DEPLOYMENT:
            return counted(
                count,
                "the ReplicaSet controller makes {count} replacement with new names",
                "the ReplicaSet controller makes {count} replacements with new names",
            )
        case WorkloadKind.AIBRIX:
            if count == len(job.pods):
                return sentence("the AIBrix controllers make the instance anew")
            return counted(
                count,
                "the AIBrix controllers make {count} pod anew",
                "the AIBrix controllers make {count} pods anew",
            )
        case WorkloadKind.MINDIE_CONTROL:
            return counted(
                count,
                "the Ascend Operator makes {count} pod anew",
                "the Ascend Operator makes {count} pods anew",
            )
        case WorkloadKind.MINDIE_SERVER:
            return sentence(
                "the Ascend Operator makes the instance anew if the scaling rule allows it (R50)"
            )
        case WorkloadKind.INFER_OPERATOR:
            return sentence(
                "the infer-operator deletes the workload of the instance and makes it anew"
            )
        case WorkloadKind.ASCENDJOB:
            return counted(
                count,
                "the Ascend Operator makes {count} pod anew and counts one restart (3.6)",
                "the Ascend Operator makes {count} pods anew and counts one restart (3.6)",
            )
    return sentence("what made the pods is not known, nor who makes them anew")


def all_of(texts: Iterable[str]) -> str:
    """Return ``texts`` as a sentence, without those that are empty; empty where all are."""
    parts = list(filter(None, texts))
    return joined("{before}; {part}", parts) if parts else ""


def after_lws(
    pods: Iterable[SchedulerPod], index: SnapshotIndex, gone: Collection[str] = ()
) -> FollowUp:
    """Return what LWS does about the groups of ``pods``, which were deleted or restarted.

    ``gone`` are the uids of those that were deleted, which are not named again.
    """
    # One entry for each group: several pods of it cause one recreation.
    groups = {
        pod.labels.get(scheduling.LWS_GROUP_INDEX, ""): index.group_of_lws(pod) for pod in pods
    }
    follow_ups = [_after_lws(group, index, gone) for group in groups.values()]
    return FollowUp(
        all_of(step.text for step in follow_ups),
        tuple(pod for step in follow_ups for pod in step.deleted),
        all_of(dict.fromkeys(step.gap for step in follow_ups)),
    )


def _after_lws(
    group: Sequence[SchedulerPod], index: SnapshotIndex, gone: Collection[str]
) -> FollowUp:
    first = group[0]
    name = first.labels[scheduling.LWS_NAME]
    called = f"LeaderWorkerSet {first.namespace}/{name}"
    owner = index.workloads.get(("LeaderWorkerSet", first.namespace, name))
    remaining = [pod for pod in group if pod.uid not in gone]
    whole = sentence("the LWS controller makes the whole group anew")
    if remaining:
        whole = sentence(
            "the LWS controller makes the whole group anew and deletes {pods}",
            pods=joined("{before}, {part}", (pod.name for pod in remaining)),
        )
    deleted = tuple(PodRef(pod.namespace, pod.name, pod.uid) for pod in remaining)
    # The workers are garbage once their leader is gone, whatever the policy is.
    if gone and any(is_leader(pod) and pod.uid in gone for pod in group):
        return FollowUp(whole, deleted)
    alone = sentence("it does nothing more")
    if gone:
        alone = sentence("it makes the pod anew, others of its group stay")
    if owner is None:
        text = sentence(
            "not known: {object} is not there, and so its restartPolicy. With {policy}, the "
            "default, {whole}; with None no other pod goes",
            object=called,
            policy=scheduling.LWS_RECREATE_ON_RESTART,
            whole=whole,
        )
        gap = sentence("{object} is not there: what LWS does about its group", object=called)
        return FollowUp(text, gap=gap)
    if owner.policy == scheduling.LWS_RECREATE_AFTER_START and (short := _pending(group, owner)):
        text = sentence(
            "{object} has restartPolicy {policy}, and {reason}: {alone}",
            object=called,
            policy=owner.policy,
            reason=short,
            alone=alone,
        )
        return FollowUp(text)
    if owner.policy == scheduling.LWS_NONE:
        return FollowUp(
            sentence("{object} has restartPolicy None: {alone}", object=called, alone=alone)
        )
    text = sentence("{whole} (restartPolicy {policy})", whole=whole, policy=owner.policy)
    return FollowUp(text, deleted)


def is_leader(pod: SchedulerPod) -> bool:
    """Whether a pod of LWS is the leader of its group: the set itself made it."""
    number = pod.labels.get(scheduling.LWS_WORKER_INDEX)
    # LWS numbers the leader 0; without the label the owner decides.
    if number is not None:
        return number == "0"
    return pod.owner is not None and pod.owner.name == pod.labels.get(scheduling.LWS_NAME)


def _pending(group: Sequence[SchedulerPod], owner: WorkloadObject) -> str:
    # RecreateGroupAfterStart acts only once the whole group has started.
    if len(group) != owner.size:
        return counted(
            owner.size,
            "{there} of {count} pod of the group exist",
            "{there} of {count} pods of the group exist",
            there=len(group),
        )
    pending = next((pod.name for pod in group if pod.phase == "Pending"), "")
    return sentence("{pod} is pending", pod=pending) if pending else ""


def action_after_eviction(job: VcJob) -> str:
    """Return the action of the job's own policy for evicted pods; empty where there is none."""
    for policy in job.policies:
        if any(event in EVICTED_EVENTS for event in policy.events):
            return policy.action
    return ""


def follow_up_of_vcjob(job: VcJob | None, pods: Sequence[Deletion], *, is_fault: bool) -> str:
    """Return what the vcjob controller does once pods are deleted, and what starts the job again.

    After a program that failed it is not started again.
    """
    if job is None:
        return sentence("the vcjob is not in the snapshot: what follows depends on its policies")
    return all_of((_after_deletion(job, pods), elastic_start(job) if is_fault else ""))


def _after_deletion(job: VcJob, pods: Sequence[Deletion]) -> str:
    action = action_after_eviction(job)
    if action == "RestartJob":
        # Zero retries: the first deletion fails the job, before the others have gone.
        if job.max_retry == 0:
            text = sentence(
                "RestartJob with maxRetry 0: the job is Failed once the first pod is gone"
            )
            rest = sentence("other pods keep their grace") if len(pods) > 1 else ""
            return all_of((text, rest))
        if job.max_retry is not None and job.retry_count >= job.max_retry:
            return sentence(
                "RestartJob with {used} of {count} retries used: Failed",
                used=job.retry_count,
                count=job.max_retry,
            )
        return sentence(
            "RestartJob: the vcjob controller ends all pods and makes them anew at the same size"
        )
    if action in ("TerminateJob", "AbortJob"):
        end = "Terminated" if action == "TerminateJob" else "Aborted"
        return sentence(
            "{action}: the job is {end} when all pods have ended", action=action, end=end
        )
    if action:
        return sentence("{action}: done by the vcjob controller", action=action)
    return sentence("no policy for evicted pods: the vcjob controller makes each pod anew at once")


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
