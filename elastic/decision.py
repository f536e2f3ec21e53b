"""What is to be done with one vcjob now, from all that is known. Pure.

A job is started again by two writes: its size, then its phase. Both are computed anew from the
live object each time, so the next process continues if one ends between the two writes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from advisor.checks.ended_vcjobs import FaultUnder
from advisor.options import DEFAULT_GRACE_OVER_TIME
from advisor.report import ElasticAdvice
from advisor.workloads.elastic_conditions import (
    Unmet,
    fewest_pods,
    kept_of,
    original_of,
    unmet,
)
from contract.documents.elastic_job import RESTORE, RESTORE_NOW, CauseSource, Size
from contract.plural import plural
from elastic.end_cause import CauseWrite, Evicted, cause_on, cause_write, found_cause, is_proof
from elastic.job import JobPod
from elastic.network_faults import NetworkFault, why_left

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.snapshot import VcJob

HOUR_MS = 3_600_000
STARTS_OF_A_JOB = 3
STARTS_OF_A_CLUSTER = 10
"""So many starts within an hour; one more waits."""


class VcjobState(StrEnum):
    """The state of an elastic job."""

    RUNNING = "running"
    STARTING = "starting"
    FINISHED = "finished"
    ENDING = "ending"
    CONDITIONS = "conditions"
    NO_CAUSE = "no-cause"
    CAUSE_NOT_KNOWN = "cause-not-known"
    WAITING_FOR_PODS = "waiting-for-pods"
    WAITING_FOR_ROOM = "waiting-for-room"
    BLOCKED = "standing-still"
    TOO_MANY_STARTS = "too-many-starts"
    READY = "ready"


REFUSED = "refused"
"""The state of a job whose write the API server refused."""


class DueWrite(StrEnum):
    """A write that is due."""

    CLEAR = "clear"
    """Size 0 and phase Pending: pods that ended by themselves go (consumers#2.9)."""
    SIZE = "size"
    START = "start"
    END = "end"
    """The cause in an annotation, and a Command that ends the job."""
    PODS = "pods"
    """Pods on dead nodes are deleted by force."""


class JobContext(msgspec.Struct, frozen=True):
    """What is known about a job beside its object.

    ``pods`` are those with its uid. ``blocked_reasons`` are reasons why nothing is written at all.
    ``cluster_starts_ms`` are the starts of all jobs. ``advice`` is the size of R60, ``None`` while
    it is not known. ``grace_over_time_ms`` is how long the scheduler waits before it deletes the
    pods of a live node by force (consumers#2.7). ``closed_queue`` is why the scheduler takes no job
    from its queue, empty where it does. ``network`` is the network fault under the job
    where such jobs are to be ended, ``dead_nodes`` are those whose pods are to be deleted by force.
    ``judged`` is why there may be a fault under the job at its end that is not in ``faults``: empty
    where there is none, ``None`` while the aggregator has not answered. ``is_fault_over``: for so
    long no fault was under the job that its end would have come.
    """

    now_ms: int
    pods: tuple[JobPod, ...] = ()
    evictions: tuple[Evicted, ...] = ()
    faults: tuple[FaultUnder, ...] = ()
    blocked_reasons: tuple[str, ...] = ()
    cluster_starts_ms: tuple[int, ...] = ()
    advice: ElasticAdvice | None = None
    grace_over_time_ms: int = DEFAULT_GRACE_OVER_TIME * 1000
    network: NetworkFault | None = None
    dead_nodes: frozenset[str] = frozenset()
    closed_queue: str = ""
    judged: str | None = None
    is_fault_over: bool = False


class RestartDecision(msgspec.Struct, frozen=True):
    """What is to be done. ``why`` is for people. ``asks``: the size of R60 is needed.

    ``original`` and ``size`` are those of the next start, ``start`` its number. ``is_overdue``:
    a person has to act before its pods end. ``pods`` are those that are deleted by force.
    ``evicted_at_seconds`` is the time of the scheduler's newest record, 0 for none.
    """

    state: VcjobState
    why: str
    unmet: tuple[Unmet, ...] = ()
    asks: bool = False
    write: DueWrite | None = None
    original: Size | None = None
    size: Size | None = None
    cause: str = ""
    start: int = 0
    is_overdue: bool = False
    pods: tuple[JobPod, ...] = ()
    evicted_at_seconds: int = 0


def decide(job: VcJob, facts: JobContext) -> RestartDecision:
    """Return what is to be done with ``job`` now."""
    missing = unmet(job)
    if missing:
        return RestartDecision(VcjobState.CONDITIONS, missing[0].text, missing)
    if job.is_deleted:
        return RestartDecision(VcjobState.FINISHED, "the job is being deleted")
    original = original_of(job)
    assert original is not None  # It has one task.
    is_cleared = _is_cleared(job)
    if not job.is_ended and not is_cleared:
        return _active(job, facts)
    cause = _cause(job, facts)
    if not cause:
        return _without_cause(job, facts)
    remaining_pods = [pod for pod in facts.pods if not pod.has_ended_itself]
    if remaining_pods:
        return _waiting(job, remaining_pods, facts, cause)
    if facts.blocked_reasons:
        return RestartDecision(VcjobState.BLOCKED, "; ".join(facts.blocked_reasons), cause=cause)
    if not _is_unstarted(job) and not is_cleared and (reason := _too_many(job, facts)):
        return RestartDecision(VcjobState.TOO_MANY_STARTS, reason, cause=cause)
    # A job of size 0 gets its size back all the same.
    if facts.closed_queue and not is_cleared:
        return RestartDecision(VcjobState.WAITING_FOR_ROOM, facts.closed_queue, cause=cause)
    return _sized(job, facts, original, cause)


def _active(job: VcJob, facts: JobContext) -> RestartDecision:
    if job.phase == "Completed":
        return RestartDecision(VcjobState.FINISHED, "the job is completed")
    # All pods of a job may be on dead nodes; its phase is Running until one of them is gone.
    leaving = [pod for pod in facts.pods if job.is_ending or pod.deleted_at_ms]
    waiting = _waiting(job, leaving, facts, "")
    if waiting.is_overdue or waiting.write is not None:
        return waiting
    if job.is_ending:
        # Once its pods are gone, nothing shows the fault under them.
        return RestartDecision(VcjobState.ENDING, f"phase {job.phase}; {waiting.why}", asks=True)
    if job.phase == "Running":
        return _running(job, facts)
    unbound = sum(1 for pod in facts.pods if not pod.node)
    pods = plural(len(facts.pods), "pod")
    reason = f"phase {job.phase or 'unknown'}: {pods}, {unbound} without a node"
    if facts.closed_queue:
        reason = f"{reason}; {facts.closed_queue}"
    return RestartDecision(VcjobState.STARTING, reason)


def _running(job: VcJob, facts: JobContext) -> RestartDecision:
    """Return whether a job is ended for a network fault, as Volcano does not (consumers#E24)."""
    fault = facts.network
    if fault is None:
        return RestartDecision(VcjobState.RUNNING, "the job runs")
    reason = why_left(job, fault) or "; ".join(facts.blocked_reasons) or _too_many(job, facts)
    if reason:
        return RestartDecision(
            VcjobState.RUNNING, f"the job runs over a fault, {fault.cause}: {reason}"
        )
    assert fault.advice is not None
    assert fault.advice.replicas is not None
    room = plural(fault.advice.replicas, "pod")
    return RestartDecision(
        VcjobState.READY,
        f"it is ended for {fault.cause}; there is room for {room}",
        write=DueWrite.END,
        cause=fault.cause,
    )


def _is_cleared(job: VcJob) -> bool:
    """Whether its size was set to 0, so that pods that ended by themselves go."""
    persisted, size = kept_of(job), job.size
    return (
        persisted is not None and size is not None and persisted.size.replicas == size.replicas == 0
    )


def _is_unstarted(job: VcJob) -> bool:
    """Whether a size was written and the start that belongs to it was not made.

    The message of our last start has its number. Where another program replaced it, a phase with
    pods since the size was written shows the same. The owner may have set another size meanwhile.
    """
    persisted = kept_of(job)
    if persisted is None or not job.is_ended:
        return False
    return job.started < persisted.start and job.last_active_ms < persisted.at_ms


def _cause(job: VcJob, facts: JobContext) -> str:
    persisted = kept_of(job)
    if persisted is not None and (_is_unstarted(job) or not job.is_ended):
        return persisted.cause
    if job.annotations.get(RESTORE) == RESTORE_NOW:
        return f"annotation {RESTORE}"
    cause = found_cause(job, facts)
    # A fault that was seen while the job ran ended it, unless the history shows that it did not.
    return cause.text if cause is not None and (is_proof(job, cause) or facts.judged) else ""


def due_cause(job: VcJob, facts: JobContext) -> CauseWrite | None:
    """Return what is to be written on ``job`` about the cause of its end; ``None`` for nothing."""
    if job.is_deleted or job.phase == "Completed":
        return None
    # What starts already needs no other cause.
    starts = job.annotations.get(RESTORE) == RESTORE_NOW or _is_unstarted(job) or _is_cleared(job)
    if job.is_ended and starts:
        return None
    due = cause_write(job, facts)
    # In almost every round nothing is due, and all conditions take longer to judge than that.
    return None if due is None or unmet(job) else due


def _without_cause(job: VcJob, facts: JobContext) -> RestartDecision:
    """Return whether there was no fault, or that it is not known."""
    persisted, mine = kept_of(job), cause_on(job)
    if mine is not None and not mine.kind:
        return RestartDecision(VcjobState.NO_CAUSE, _without_fault(job))
    if facts.judged is None:
        reason = "the aggregator is asked what ended it"
        if facts.blocked_reasons:
            reason = f"what ended it cannot be asked: {'; '.join(facts.blocked_reasons)}"
        return RestartDecision(VcjobState.CAUSE_NOT_KNOWN, reason, asks=True)
    if not facts.judged:
        return RestartDecision(VcjobState.NO_CAUSE, _without_fault(job), asks=True)
    number = 0 if persisted is None else persisted.start
    reason = (
        "the job, the scheduler's record and the aggregator's history show no fault that ended it"
        f"{f' after start {number}' if number else ''}, and the history does not show all: "
        f"{facts.judged}. If it was a fault: vigil elastic restore --now {job.key}"
    )
    return RestartDecision(VcjobState.CAUSE_NOT_KNOWN, reason, asks=True)


def _without_fault(job: VcJob) -> str:
    persisted, cause = kept_of(job), "it ended without a fault of a chip, a network or a node"
    if persisted is None or job.started != persisted.start or job.has_run:
        return cause
    return (
        f"start {persisted.start} ended before the job ran, and not by a fault. The controller "
        "gives up after 15 tries where pods cannot be made, as when a quota is used up. It is not "
        "started again"
    )


def _waiting(job: VcJob, pods: Sequence[JobPod], facts: JobContext, cause: str) -> RestartDecision:
    """Return that pods have not ended, which, and since when they are to."""
    if not pods:
        return RestartDecision(VcjobState.WAITING_FOR_PODS, "all pods have ended", cause=cause)
    ordered = sorted(pods, key=lambda pod: pod.name)
    shown = [_shown(pod, _asked_ms(job, pod)) for pod in ordered[:3]]
    more = f" and {len(pods) - len(shown)} more" if len(pods) > len(shown) else ""
    reason = f"pods that have not ended: {'; '.join(shown)}{more}"
    requested_at_ms = [at_ms for pod in pods if (at_ms := _asked_ms(job, pod))]
    is_overdue = (
        bool(requested_at_ms) and facts.now_ms - min(requested_at_ms) > facts.grace_over_time_ms
    )
    if is_overdue:
        reason = (
            f"{reason}; for more than {facts.grace_over_time_ms // 1000} s: once the host of such "
            "a node is off, give the Node the taint node.kubernetes.io/out-of-service"
        )
    dead = tuple(
        pod
        for pod in ordered
        if pod.node in facts.dead_nodes and 0 < pod.deleted_at_ms <= facts.now_ms
    )
    if dead and facts.blocked_reasons:
        reason = f"{reason}; it stands still: {'; '.join(facts.blocked_reasons)}"
    elif dead:
        nodes = ", ".join(sorted({pod.node for pod in dead}))
        reason = (
            f"{reason}; {len(dead)} are deleted by force: {nodes} silent and NotReady for so long"
        )
    return RestartDecision(
        VcjobState.WAITING_FOR_PODS,
        reason,
        write=DueWrite.PODS if dead and not facts.blocked_reasons else None,
        cause=cause,
        is_overdue=is_overdue,
        pods=dead,
    )


def _asked_ms(job: VcJob, pod: JobPod) -> int:
    """Return since when a pod is to end; 0 where that is not known."""
    if pod.deleted_at_ms:
        # Kubernetes dates the deletion at the end of the grace, and not at the request.
        return pod.deleted_at_ms - pod.grace_seconds * 1000
    return job.ended_at_ms or job.phase_since_ms


def _shown(pod: JobPod, asked_ms: int) -> str:
    shown = f"grace {pod.grace_seconds} s" if pod.deleted_at_ms else "not deleted"
    since = ""
    if asked_ms:
        at = datetime.fromtimestamp(asked_ms // 1000, UTC)
        since = f", since {at:%Y-%m-%dT%H:%M:%SZ}"
    return f"{pod.name} on {pod.node or 'no node'}, {shown}{since}"


def _too_many(job: VcJob, facts: JobContext) -> str:
    persisted = kept_of(job)
    own = [] if persisted is None else _recent(persisted.starts_ms, facts.now_ms)
    if len(own) >= STARTS_OF_A_JOB:
        return f"{len(own)} starts of this job within an hour; the next one waits"
    all_of_them = _recent(facts.cluster_starts_ms, facts.now_ms)
    if len(all_of_them) >= STARTS_OF_A_CLUSTER:
        return f"{len(all_of_them)} starts in the cluster within an hour; the next one waits"
    return ""


def _recent(starts_ms: tuple[int, ...], now_ms: int) -> list[int]:
    # A start may be ahead of this clock, which may have been set back or be another host's.
    return [at_ms for at_ms in starts_ms if abs(now_ms - at_ms) < HOUR_MS]


def recent_starts(job: VcJob, now_ms: int) -> tuple[int, ...]:
    """Return when the job was started by us within the last hour (wall)."""
    persisted = kept_of(job)
    return () if persisted is None else tuple(_recent(persisted.starts_ms, now_ms))


def _sized(job: VcJob, facts: JobContext, original: Size, cause: str) -> RestartDecision:
    advice = facts.advice
    if advice is None:
        reason = "the aggregator is asked for the size"
        return RestartDecision(VcjobState.WAITING_FOR_ROOM, reason, asks=True, cause=cause)
    if advice.replicas is None or advice.cards is None:
        return RestartDecision(VcjobState.WAITING_FOR_ROOM, advice.why, asks=True, cause=cause)
    least, most = fewest_pods(job), original.replicas
    if not least <= advice.replicas <= most or not 1 <= advice.cards <= original.cards:
        advised = f"{advice.replicas} × {plural(advice.cards, 'chip')}"
        reason = f"the advised size is {advised}, which the job does not allow"
        return RestartDecision(VcjobState.WAITING_FOR_ROOM, reason, asks=True, cause=cause)
    is_original = (advice.replicas, advice.cards) == (original.replicas, original.cards)
    if RESTORE in job.annotations and not is_original:
        reason = (
            f"annotation {RESTORE}: it waits for room for {original.replicas} × "
            f"{plural(original.cards, 'chip')}; there is room for {advice.replicas} × "
            f"{advice.cards}"
        )
        return RestartDecision(VcjobState.WAITING_FOR_ROOM, reason, asks=True, cause=cause)
    size = size_of(original, advice.replicas, advice.cards)
    persisted = kept_of(job)
    before = 0 if persisted is None else persisted.start
    # What was written and not started has its number already.
    is_begun = _is_unstarted(job) or _is_cleared(job)
    write = _write(job, facts, size)
    if write is None:
        reason = f"pods that ended by themselves are removed first: {len(facts.pods)}"
        return RestartDecision(VcjobState.STARTING, reason, cause=cause)
    text = (
        f"{size.replicas} × {plural(size.cards, 'chip')} of {original.replicas} × {original.cards}"
    )
    return RestartDecision(
        VcjobState.READY,
        f"start with {text}: {cause}",
        write=write,
        original=original,
        size=size,
        cause=cause,
        start=before if is_begun else before + 1,
        evicted_at_seconds=_evicted_at_seconds(job, facts),
    )


def _evicted_at_seconds(job: VcJob, facts: JobContext) -> int:
    """Return the time of the newest record, which may be on the job alone by now."""
    mine, seconds = cause_on(job), [eviction.at_seconds for eviction in facts.evictions]
    if mine is not None and mine.source is CauseSource.RECORD:
        seconds.append(mine.at_ms // 1000)
    return max(seconds, default=0)


def _write(job: VcJob, facts: JobContext, size: Size) -> DueWrite | None:
    """Return the next write; ``None`` while the controller removes pods."""
    persisted = kept_of(job)
    if _is_cleared(job):
        if job.is_ended:
            return DueWrite.START
        return None if facts.pods else DueWrite.SIZE
    if facts.pods:
        # The controller keeps pods that failed, and a start over them fails at once
        # (consumers#2.9).
        return DueWrite.CLEAR
    if persisted is not None and _is_unstarted(job) and persisted.size == job.size == size:
        return DueWrite.START
    return DueWrite.SIZE


def size_of(original: Size, replicas: int, cards: int) -> Size:
    """Return a size of so many pods and chips of each; no more of them start together."""
    task = original.task_available
    return Size(
        replicas,
        cards,
        min(original.available, replicas),
        None if task is None else min(task, replicas),
    )
