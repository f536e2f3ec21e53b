"""Where the waiting pods of each job go, and whether they fit, moved from session to session.

A job is looked at again when it is another, or when a node answers its pods otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from advisor.placement.gangs import gang_of, need_of
from advisor.placement.placement import demand_of, is_waiting
from advisor.report import Gang, Placement, PodRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from advisor.jobs import SchedulerJob
    from advisor.placement.gangs import Need
    from advisor.placement.placement import Demand, PlacementResult, Placer
    from advisor.scheduler_view.nodes import NodeView
    from advisor.snapshot import PodGroup, SchedulerPod


class _Waiting(NamedTuple):
    """The waiting pods of a job, by what they ask for."""

    demands: tuple[Demand, ...]
    pods: tuple[tuple[SchedulerPod, ...], ...]
    refs: tuple[tuple[PodRef, ...], ...]
    group: PodGroup
    need: Need


class _Placed(NamedTuple):
    """What was found for a job, and the answers that it follows from."""

    results: tuple[PlacementResult, ...]
    lacking: tuple[tuple[str, ...], ...]
    placements: tuple[Placement, ...]
    gang: Gang


class WaitingJobs:
    """The jobs with waiting pods."""

    def __init__(self) -> None:
        self.placements: tuple[Placement, ...] = ()
        """Once per PodGroup and demand, in the order of PodGroups."""
        self.gangs: tuple[Gang, ...] = ()
        self.divergences: set[tuple[int, str, str]] = set()
        """Those of the answers."""
        self._waiting: dict[str, _Waiting] = {}
        self._placed: dict[str, _Placed] = {}
        self._demands: dict[Demand, Demand] = {}
        """One value for all that are equal."""
        self._asked: dict[Demand, SchedulerPod] = {}
        """Each demand, with a pod that has it."""
        self._answers: dict[int, tuple[PlacementResult, tuple[str, ...]]] = {}
        """By what is asked for, as one value."""
        self._is_mixed = False
        """Whether pods of one job ask for different things."""
        self._unhealthy: set[str] = set()
        """Nodes with unhealthy cards."""

    def move(
        self,
        jobs: Mapping[str, SchedulerJob],
        keys: Iterable[str],
        views: Mapping[str, NodeView],
        changed: Iterable[str],
        placer: Placer,
    ) -> None:
        """Go to a session: jobs of ``keys`` may be others, nodes of ``changed`` are."""
        is_new = False
        for key in keys:
            self._placed.pop(key, None)
            before = self._waiting.pop(key, None)
            if key in jobs and (found := self._look(jobs[key])).pods:
                self._waiting[key] = found
                is_new = True
            is_new = is_new or before is not None
        if is_new:
            self._waiting = {key: self._waiting[key] for key in jobs if key in self._waiting}
            self._asked = {}
            for one in self._waiting.values():
                for demand, pods in zip(one.demands, one.pods, strict=True):
                    self._asked.setdefault(demand, pods[0])
            self._demands = {one: one for one in self._asked}
        is_changed = False
        for name in changed:
            is_changed = True
            if name in views and views[name].unhealthy:
                self._unhealthy.add(name)
            else:
                self._unhealthy.discard(name)
        unhealthy = sorted(self._unhealthy)
        answers: dict[int, tuple[PlacementResult, tuple[str, ...]]] = {}
        for demand, pod in self._asked.items():
            result = placer.answer(demand, pod)
            answers[id(demand)] = result, _lacking(result, views, unhealthy)
        if answers == self._answers and not is_new and not (is_changed and self._is_mixed):
            return
        self._answers = answers
        self._is_mixed = any(len(one.demands) > 1 for one in self._waiting.values())
        placed = [
            self._place(key, one, views, answers, is_changed=is_changed)
            for key, one in self._waiting.items()
        ]
        self.placements = tuple(placement for one in placed for placement in one.placements)
        self.gangs = tuple(one.gang for one in placed)
        self.divergences = set().union(*(result.divergences for result, _ in answers.values()))

    def _look(self, job: SchedulerJob) -> _Waiting:
        groups: dict[Demand, list[SchedulerPod]] = {}
        for pod in job.pods:
            if is_waiting(pod):
                demand = demand_of(job, pod)
                groups.setdefault(self._demands.setdefault(demand, demand), []).append(pod)
        return _Waiting(
            tuple(groups),
            tuple(tuple(pods) for pods in groups.values()),
            tuple(
                tuple(PodRef(pod.namespace, pod.name, pod.uid) for pod in pods)
                for pods in groups.values()
            ),
            job.group,
            need_of(job),
        )

    def _place(
        self,
        key: str,
        waiting: _Waiting,
        views: Mapping[str, NodeView],
        answers: Mapping[int, tuple[PlacementResult, tuple[str, ...]]],
        *,
        is_changed: bool,
    ) -> _Placed:
        results = tuple([answers[id(demand)][0] for demand in waiting.demands])
        lacking = tuple([answers[id(demand)][1] for demand in waiting.demands])
        known = self._placed.get(key)
        if known is not None and known.results == results:
            if known.lacking == lacking and not (is_changed and len(results) > 1):
                return known
            placements = known.placements
        else:
            placements = tuple(
                Placement(refs, result.accepting, result.refuses)
                for refs, result in zip(waiting.refs, results, strict=True)
            )
        demands = list(zip(results, waiting.pods, lacking, strict=True))
        found = _Placed(
            results, lacking, placements, gang_of(waiting.group, waiting.need, demands, views)
        )
        self._placed[key] = found
        return found


_NAMED_NODES = 3


def _lacking(
    result: PlacementResult, views: Mapping[str, NodeView], unhealthy: Iterable[str]
) -> tuple[str, ...]:
    """Return what the first nodes lack that refuse a demand."""
    found = []
    for name in unhealthy:
        if name in result.refuses:
            found.append(f"{name} lacks {', '.join(views[name].unhealthy)}")
            if len(found) == _NAMED_NODES:
                break
    return tuple(found)
