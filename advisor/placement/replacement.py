"""Whether the pods that are deleted would fit again, made anew as they are.

Jobs are served in the order of their creation. What else starts meanwhile is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.jobs import npu_request
from advisor.placement.gangs import not_predicted_of
from contract.plural import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.jobs import SchedulerJob
    from advisor.placement.free_capacity import DemandCapacity, FreeCapacity
    from advisor.report import JobDecision
    from advisor.snapshot import SchedulerPod


def with_replacements(
    decisions: Sequence[JobDecision], jobs: Mapping[str, SchedulerJob], pool: FreeCapacity
) -> tuple[JobDecision, ...]:
    """Return ``decisions`` with what becomes of the pods that are made in place of deleted ones."""
    leaving: dict[str, list[SchedulerPod]] = {}
    for decision in decisions:
        if decision.pods and decision.job in jobs:
            uids = {pod.uid for pod in decision.pods}
            leaving[decision.job] = [pod for pod in jobs[decision.job].pods if pod.uid in uids]
    for pods in leaving.values():
        pool.release(pods)
    placed = {
        key: _placed(jobs[key], leaving[key], pool)
        for key in sorted(leaving, key=lambda key: (jobs[key].group.created_at_ms, key))
    }
    return tuple(
        msgspec.structs.replace(decision, replacement=placed[decision.job])
        if decision.job in placed
        else decision
        for decision in decisions
    )


def _placed(job: SchedulerJob, pods: Sequence[SchedulerPod], pool: FreeCapacity) -> str:
    """Place ``pods``, the largest demand first; return whether the capacity is enough."""
    counts: dict[DemandCapacity, int] = {}
    for pod in sorted(pods, key=npu_request, reverse=True):
        capacity = pool.capacity(job, pod)
        counts[capacity] = counts.get(capacity, 0) + 1
    for capacity, count in counts.items():
        if capacity.total < count:
            cards = capacity.demand.cards
            shown = f"{count} × {plural(cards, 'card')}" if cards else f"{count} × no cards"
            fits = f"there is room for {capacity.total}"
            return f"made anew, they do not fit: {shown} are needed, {fits}"
        pool.take(capacity, count)
    rest = not_predicted_of(job)
    return (
        f"made anew, they fit by chips; {rest} is not predicted" if rest else "made anew, they fit"
    )
