"""Fault jobs that the scheduler has cached: completion, widening, release (``2.3`` and 2.8).

A job at fault is cached with the pods that it has then. It stays until the pods that had to go are
gone and enough are placed again, or until its time is over. Pending sessions are counted, and at
fixed stages it is acted on once more with a wider scope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.rescheduling.fault_pods import JudgedPod
from advisor.rescheduling.selection import JOB_STAGE, RACK_STAGE, SUPER_POD_STAGE
from advisor.scheduler_view.state import CachedJob, CachedPod, FaultType
from advisor.snapshot import SchedulerPod
from contract import scheduling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.jobs import SchedulerJob

MAX_WAIT_SECONDS = 300
"""A job leaves the cache this long after ``grace-over-time`` (consumers#2.3, item 2)."""


def remembered(
    job: SchedulerJob, value: str, judged: Sequence[JudgedPod], first_seen: int
) -> CachedJob:
    """Return what is cached of a job that has just been found faulty.

    ``value`` is the ``fault-scheduling`` that counts for it.
    """
    return CachedJob(
        job.uid, first_seen, value, job.strategy, job.retry_times, pods=cached_pods(judged)
    )


def cached_pods(judged: Sequence[JudgedPod]) -> tuple[CachedPod, ...]:
    """Return what is kept of the pods that a job has now."""
    return tuple(
        CachedPod(
            judged_pod.pod.name,
            judged_pod.pod.uid,
            judged_pod.pod.node,
            judged_pod.type.value if judged_pod.type else "",
            judged_pod.rank,
        )
        for judged_pod in judged
    )


def judged_again(cached: CachedJob, job: SchedulerJob) -> tuple[JudgedPod, ...]:
    """Return the verdicts of ``cached`` about the pods that the job has now.

    A pod made anew takes the place of the one of its rank or name. A pod at fault that is not
    there yet is included, so that its rank counts.
    """
    by_uid = {pod.uid: pod for pod in cached.pods}
    faulty = [pod for pod in cached.pods if pod.type]
    judged = []
    matched = set()
    for pod in job.pods:
        rank = job.ranks[pod.uid]
        cached_pod = by_uid.get(pod.uid)
        if cached_pod is None:
            # By name before rank: a StatefulSet makes a pod anew under its name.
            cached_pod = next(
                (cached_pod for cached_pod in faulty if pod.name == cached_pod.name), None
            ) or next((cached_pod for cached_pod in faulty if cached_pod.rank == rank), None)
        if cached_pod is not None:
            matched.add(cached_pod.uid)
        kind = FaultType(cached_pod.type) if cached_pod is not None and cached_pod.type else None
        judged.append(JudgedPod(pod, kind, rank))
    judged += [
        JudgedPod(
            SchedulerPod(
                namespace=job.group.namespace, name=cached_pod.name, uid="", node=cached_pod.node
            ),
            FaultType(cached_pod.type),
            cached_pod.rank,
        )
        for cached_pod in faulty
        if cached_pod.uid not in matched
    ]
    return tuple(judged)


def is_expired(cached: CachedJob, now: int, grace_over_time: int) -> bool:
    """Whether a job has been cached for longer than the scheduler keeps one.

    Source: docs/spec/consumers.md#2.3, item 2.
    """
    # Strictly more, so the last second still counts (``deadlines``).
    return now - cached.first_seen > MAX_WAIT_SECONDS + grace_over_time


def deadlines(cached: CachedJob, grace_over_time: int) -> tuple[int, int]:
    """Return the last seconds before what is left goes by force, and before it expires."""
    graceful = cached.first_seen + grace_over_time
    return graceful, graceful + MAX_WAIT_SECONDS


def is_completed(cached: CachedJob, job: SchedulerJob, *, corrected: bool) -> bool:
    """Whether the pods that had to go are gone or made anew (consumers#2.8).

    ``corrected`` needs the pods at fault only where the scope is limited to them (R41).
    """
    there = {pod.uid for pod in job.pods}
    # A pod at fault with its old uid is not gone, however long it is being deleted.
    if any(pod.type and pod.uid in there for pod in cached.pods):
        return False
    if any(uid in there for uid in cached.deleted):
        return False
    partial = job.is_pod_rescheduling or job.is_process_recovering
    # Before the stage of the whole job only the pods at fault had to go.
    if partial and (cached.pending != JOB_STAGE or job.policy == scheduling.RACK_POLICY):
        return True
    if corrected and job.is_pod_limited:
        return True
    return not any(pod.uid in there for pod in cached.pods)


def is_allocated(job: SchedulerJob) -> bool:
    """Whether enough pods are placed for the job to leave the cache (consumers#2.8)."""
    return sum(1 for pod in job.pods if pod.node) >= job.min_available


def widened(cached: CachedJob, job: SchedulerJob) -> CachedJob:
    """Return ``cached`` one pending session later; at a stage the job is acted on again.

    Source: docs/spec/consumers.md#2.8.
    """
    if job.policy == scheduling.RACK_POLICY:
        return _widened_by_racks(cached, job)
    if not job.is_pod_rescheduling or job.is_pod_limited or job.is_process_recovering:
        return cached
    stages = [JOB_STAGE]
    if job.is_super_pod or job.is_multilevel:
        stages.append(SUPER_POD_STAGE)
    return _one_later(cached, stages)


def _widened_by_racks(cached: CachedJob, job: SchedulerJob) -> CachedJob:
    """Count a pending session by the policy of Ascend 950 racks, process recovery too.

    Process recovery never reaches the stage after the rack blocks.

    Source: docs/spec/consumers.md#2.6, last paragraph, and appendix A.
    """
    if not job.is_pod_rescheduling and not job.is_process_recovering:
        return cached
    stages = [RACK_STAGE] if scheduling.RACK_BLOCK in job.annotations else []
    if job.is_process_recovering:
        later = _one_later(cached, stages)
        return msgspec.structs.replace(later, pending=min(later.pending, SUPER_POD_STAGE - 1))
    if scheduling.SUPER_POD_BLOCK in job.annotations:
        stages.append(SUPER_POD_STAGE)
    return _one_later(cached, [*stages, JOB_STAGE])


def _one_later(cached: CachedJob, stages: Sequence[int]) -> CachedJob:
    """Return ``cached`` one pending session later, to be acted on again at one of ``stages``."""
    pending = cached.pending + 1
    return msgspec.structs.replace(
        # At a stage the job is acted on once more, with a wider scope.
        cached,
        pending=pending,
        is_executed=cached.is_executed and pending not in stages,
    )


def with_failed_pods(
    cached: CachedJob, job: SchedulerJob, failed: Sequence[SchedulerPod]
) -> CachedJob:
    """Return ``cached``, to be acted on again where pods of the job have failed by themselves.

    Those that were healthy when the job was cached become faults, and so do healthy pods that are
    labelled as software faults. The pods that had to go are gone.

    Source: docs/spec/consumers.md#2.8.
    """
    if not failed:
        return cached
    # Only pods that the job had when it was cached; later ones are its replacements.
    new = {pod.uid for pod in failed} & {pod.uid for pod in cached.pods}
    pods = []
    for judged_pod in judged_again(cached, job):
        kind = judged_pod.type
        if kind is None:
            label = judged_pod.pod.labels.get(scheduling.FAULT_TYPE)
            if label == scheduling.FAULT_TYPE_SOFTWARE:
                kind = FaultType.PROCESS
            elif judged_pod.pod.uid in new:
                kind = FaultType.POD_FAILED
        pods.append(JudgedPod(judged_pod.pod, kind, judged_pod.rank))
    return msgspec.structs.replace(cached, pods=cached_pods(pods), is_executed=False)
