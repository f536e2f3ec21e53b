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
    from advisor.placement.free_room import FreeRoom, Room
    from advisor.report import JobDecision
    from advisor.snapshot import SchedulerPod


def with_replacements(
    decisions: Sequence[JobDecision], jobs: Mapping[str, SchedulerJob], pool: FreeRoom
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


def _placed(job: SchedulerJob, pods: Sequence[SchedulerPod], pool: FreeRoom) -> str:
    """Give room to ``pods`` and return whether there is enough; the largest demand comes first."""
    counts: dict[Room, int] = {}
    for pod in sorted(pods, key=npu_request, reverse=True):
        room = pool.room(job, pod)
        counts[room] = counts.get(room, 0) + 1
    for room, count in counts.items():
        if room.total < count:
            cards = room.demand.cards
            shown = f"{count} × {plural(cards, 'card')}" if cards else f"{count} × no cards"
            return f"made anew, they do not fit: {shown} are needed, there is room for {room.total}"
        pool.take(room, count)
    rest = not_predicted_of(job)
    return (
        f"made anew, they fit by chips; {rest} is not predicted" if rest else "made anew, they fit"
    )
