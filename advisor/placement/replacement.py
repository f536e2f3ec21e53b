"""Whether the pods that are deleted would fit again, made anew as they are.

Jobs are served in the order of their creation. What else starts meanwhile is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.jobs import npu_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.jobs import SchedulerJob
    from advisor.placement.free_room import FreeRoom
    from advisor.report import JobDecision
    from advisor.snapshot import SchedulerPod


def with_replacements(
    decisions: Sequence[JobDecision], jobs: Mapping[str, SchedulerJob], pool: FreeRoom
) -> tuple[JobDecision, ...]:
    """Return ``decisions`` with what becomes of the pods that are made in place of deleted ones."""
    leaving: dict[str, list[SchedulerPod]] = {}
    for one in decisions:
        if one.pods and one.job in jobs:
            uids = {pod.uid for pod in one.pods}
            leaving[one.job] = [pod for pod in jobs[one.job].pods if pod.uid in uids]
    for pods in leaving.values():
        pool.release(pods)
    found = {
        key: _placed(jobs[key], leaving[key], pool)
        for key in sorted(leaving, key=lambda key: (jobs[key].group.created_at_ms, key))
    }
    return tuple(
        msgspec.structs.replace(one, replacement=found.get(one.job, "")) for one in decisions
    )


def _placed(job: SchedulerJob, pods: Sequence[SchedulerPod], pool: FreeRoom) -> str:
    """Give room to ``pods`` and return whether there is enough; the largest demand comes first."""
    sizes: dict[int, list[SchedulerPod]] = {}
    for pod in sorted(pods, key=npu_request, reverse=True):
        sizes.setdefault(pool.demand(job, pod), []).append(pod)
    for equal in sizes.values():
        room = pool.room(job, equal[0])
        if room < len(equal):
            cards = npu_request(equal[0])
            what = f"{len(equal)} × {cards} cards" if cards else f"{len(equal)} × no cards"
            return f"made anew, they do not fit: {what} are needed, there is room for {room}"
        pool.take(job, equal[0], len(equal))
    return "made anew, they fit"
