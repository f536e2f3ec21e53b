"""The size with which an elastic vcjob continues after a fault (R60).

The Resilience-Controller decides that once the scheduler has deleted the pods. Sources:
``docs/spec/consumers.md#5.3`` and 7.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from advisor.jobs import npu_request, npu_resource, used_cards
from advisor.placement.free_capacity import FreeCapacity
from advisor.report import ElasticAdvice
from advisor.scheduler_view.nodes import NodeHealthState
from advisor.workloads.elastic_conditions import evicted_action, fewest_pods, unmet
from contract import scheduling
from contract.documents.elastic_job import RESTART_ACTION
from contract.sentences import counted, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from advisor.jobs import SchedulerJob
    from advisor.options import AdvisorOptions
    from advisor.placement.placement import Placer
    from advisor.scheduler_view.nodes import NodeView
    from advisor.scheduler_view.state import SchedulerState
    from advisor.snapshot import SchedulerPod, VcJob
    from advisor.snapshot_index import SnapshotIndex

# A single pod asks for 8, 4, 2 or 1 chips of its host (consumers#5.3, R60).
_SMALLER_CARDS = (8, 4, 2, 1)


@dataclass(frozen=True)
class _Affected:
    """An elastic vcjob with a fault."""

    vcjob: VcJob
    job: SchedulerJob
    trigger: str
    flags: tuple[str, ...]


def elastic_advice(
    index: SnapshotIndex,
    views: Mapping[str, NodeView],
    placer: Placer,
    state: SchedulerState,
    options: AdvisorOptions,
) -> tuple[ElasticAdvice, ...]:
    """Return the size of each elastic vcjob that has a fault, by namespace and name."""
    advice: list[ElasticAdvice] = []
    candidates: list[_Affected] = []
    for affected in _affected(index, views):
        refused = _refused(affected, state)
        if refused is None:
            candidates.append(affected)
        else:
            advice.append(refused)
    if not candidates:
        return tuple(advice)
    # Made only here: without a candidate no capacity has to be computed.
    pool = FreeCapacity(views, placer)
    for affected in candidates:
        # The capacity of all of them first: the own pods of a job that is sized later must not
        # count against it.
        pool.release(affected.job.pods)
    candidates.sort(
        # The oldest job takes capacity first; its name decides between equal times.
        key=lambda affected: (
            affected.vcjob.created_at_ms,
            affected.vcjob.namespace,
            affected.vcjob.name,
        )
    )
    advice += [_sized(affected, pool, options) for affected in candidates]
    return tuple(sorted(advice, key=lambda advice: (advice.namespace, advice.name)))


def _affected(index: SnapshotIndex, views: Mapping[str, NodeView]) -> Iterable[_Affected]:
    elastic = index.elastic
    if not elastic:
        return
    for job in index.jobs.values():
        owner = job.group.owner
        vcjob = elastic.get((job.group.namespace, owner.name)) if owner is not None else None
        trigger = "" if vcjob is None else _trigger(job, views)
        if vcjob is not None and trigger:
            yield _Affected(vcjob, job, trigger, _flags(vcjob, job))


def _trigger(job: SchedulerJob, views: Mapping[str, NodeView]) -> str:
    """Return the most serious kind of fault under the pods of ``job``; empty for none."""
    triggers = set()
    for pod in job.pods:
        if not pod.node:
            continue
        view = views.get(pod.node)
        # A node that is away is the most serious cause, so no other pod has to be looked at.
        if view is None or not view.is_in_map or view.state == NodeHealthState.NODE:
            return "HEARTBEAT"
        cards = set(used_cards(pod))
        if cards.intersection(view.unhealthy):
            triggers.add("DEVICE")
        elif cards.intersection(view.network_unhealthy or ()):
            triggers.add("NETWORK")
    # DEVICE comes before NETWORK in the alphabet, as in the order of their seriousness.
    return min(triggers, default="")


def _flags(vcjob: VcJob, job: SchedulerJob) -> tuple[str, ...]:
    """Return what is against the conditions of elastic training (consumers#5.3).

    ``maxRetry`` counts only for a policy that starts the job again (consumers#2.9).
    """
    flags = []
    if vcjob.labels.get(scheduling.FAULT_SCHEDULING) == scheduling.FAULT_SCHEDULING_FORCE:
        flags.append("FORCE")
    action = evicted_action(vcjob)
    if action is None:
        flags.append("NO_POLICY")
    if action == RESTART_ACTION and vcjob.max_retry != 0:
        flags.append("MAX_RETRY_NOT_0")
    if vcjob.replicas <= 1:
        flags.append("UNDISTRIBUTED")
    if any("-" in npu_resource(pod) for pod in job.pods):
        flags.append("VNPU")
    return tuple(flags)


def _refused(affected: _Affected, state: SchedulerState) -> ElasticAdvice | None:
    """Return why ``one`` gets no new size at all, ``None`` where it may.

    The conditions are those of ``vigil elastic``, so that both give one answer about a job.
    """
    missing = [condition.text for condition in unmet(affected.vcjob)]
    if "VNPU" in affected.flags:
        missing.append("virtual chips are not scaled")
    if missing:
        return _advice(affected, "NOT_ENABLED", "; ".join(missing))
    cached = state.jobs.get(affected.job.key)
    # The same name with another uid is a new job, which nothing was done about.
    if cached is not None and cached.uid == affected.job.uid and cached.is_executed:
        text = sentence("faults that follow change nothing until then")
        return _advice(affected, "ALREADY_RESCHEDULING", text)
    return None


def _advice(affected: _Affected, reason: str, text: str) -> ElasticAdvice:
    return ElasticAdvice(
        affected.vcjob.namespace,
        affected.vcjob.name,
        trigger=affected.trigger,
        reason=reason,
        why=text,
        flags=affected.flags,
    )


def _sized(affected: _Affected, pool: FreeCapacity, options: AdvisorOptions) -> ElasticAdvice:
    """Return the largest size that fits, and take its capacity."""
    # The pod with the most chips stands for all, since pods of one job are made of one template.
    pod = max(affected.job.pods, key=npu_request)
    fit = take_fit(affected.vcjob, affected.job, pod, affected.vcjob.replicas, pool, options)
    return msgspec.structs.replace(fit, trigger=affected.trigger, flags=affected.flags)


def take_fit(
    vcjob: VcJob,
    job: SchedulerJob,
    pod: SchedulerPod,
    replicas: int,
    pool: FreeCapacity,
    options: AdvisorOptions,
) -> ElasticAdvice:
    """Return the largest size of R60 that fits into ``pool``, and take its capacity.

    ``job`` is ``vcjob`` as the scheduler sees it, of ``replicas`` pods like ``pod`` at its original
    size.
    """
    cards, least = npu_request(pod), fewest_pods(vcjob)
    # A job of several pods loses pods, one of a single pod loses chips (R60).
    if replicas > 1:
        steps = [(cards, [replicas, *_smaller(replicas, least, options)])]
    else:
        smaller = [count for count in _SMALLER_CARDS if count < cards]
        steps = [(each, [replicas]) for each in (cards, *smaller)]
    for each, counts in steps:
        like = _with_cards(pod, each)
        capacity = pool.capacity(job, like)
        count = next((count for count in counts if count <= capacity.total), None)
        if count is not None:
            pool.take(capacity, count)
            reason = sentence("the size stays")
            if (count, each) != (replicas, cards):
                reason = sentence(
                    "there is no room for {pods} × {size}", pods=replicas, size=_chips(cards)
                )
            return ElasticAdvice(vcjob.namespace, vcjob.name, count, each, why=reason)
    reason = sentence(
        "pending, not enough nodes: there is room for {pods} × {size}",
        pods=capacity.total,
        size=_chips(each),
    )
    return ElasticAdvice(vcjob.namespace, vcjob.name, reason="BELOW_MIN_REPLICAS", why=reason)


def _chips(count: int) -> str:
    return counted(count, "{count} chip", "{count} chips")


def _smaller(replicas: int, least: int, options: AdvisorOptions) -> list[int]:
    """Return the legal sizes of a job of several hosts below its own, largest first."""
    if not options.halving_only:
        return list(range(replicas - 1, least - 1, -1))
    sizes, size = [], replicas
    while size % 2 == 0 and size // 2 >= least:
        size //= 2
        sizes.append(size)
    return sizes


def _with_cards(pod: SchedulerPod, cards: int) -> SchedulerPod:
    resource = npu_resource(pod)
    if not resource:
        return pod
    return msgspec.structs.replace(pod, requests={**pod.requests, resource: cards})
