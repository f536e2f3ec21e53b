"""Where the waiting pods of each job go, and whether they fit, updated with each session.

A job is looked at again when it is another, or when a node answers its pods otherwise.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from advisor.placement.gangs import need_of, not_predicted_of, short_of
from advisor.placement.placement import is_waiting
from advisor.report import Gang, Placement, PodRef
from contract.sentences import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from advisor.jobs import SchedulerJob
    from advisor.placement.gangs import Need
    from advisor.placement.placement import Demand, PlacementResult, Placer
    from advisor.scheduler_view.nodes import NodeView
    from advisor.snapshot import PodGroup, SchedulerPod


_Answer: TypeAlias = "tuple[PlacementResult, tuple[str, ...]]"
"""Where a demand goes, and what the first nodes lack that refuse it."""


class _WaitingPods(NamedTuple):
    """The waiting pods of a job, by what they ask for."""

    demands: tuple[Demand, ...]
    pods: tuple[tuple[SchedulerPod, ...], ...]
    refs: tuple[tuple[PodRef, ...], ...]
    group: PodGroup
    need: Need
    not_predicted: str


class _Placed(NamedTuple):
    """What was found for a job, and the answers that it follows from."""

    answers: list[_Answer]
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
        self._waiting: dict[str, _WaitingPods] = {}
        self._placed: dict[str, _Placed] = {}
        self._demands: dict[Demand, Demand] = {}
        """One value for all that are equal."""
        self._asked: dict[Demand, SchedulerPod] = {}
        """Each demand, with a pod that asks for it."""
        self._answers: dict[int, _Answer] = {}
        """By what is asked for, as one value."""
        self._is_mixed = False
        """Whether pods of one job ask for different things."""
        self._unhealthy: list[str] = []
        """Nodes with unhealthy cards, in order."""

    def update(
        self,
        jobs: Mapping[str, SchedulerJob],
        keys: Iterable[str],
        views: Mapping[str, NodeView],
        changed: Iterable[str],
        placer: Placer,
    ) -> None:
        """Update to a session: jobs of ``keys`` may have changed, nodes of ``changed`` have."""
        is_new = False
        # Pods to stay away from have changed, so demands of all waiting jobs are made anew.
        if placer.is_apart_new:
            keys = {*keys, *self._waiting}
        for key in keys:
            self._placed.pop(key, None)
            before = self._waiting.pop(key, None)
            if key in jobs and (waiting := self._look(jobs[key], placer)).pods:
                self._waiting[key] = waiting
                is_new = True
            is_new = is_new or before is not None
        if is_new:
            # In the order of the jobs, which reports keep.
            self._waiting = {key: self._waiting[key] for key in jobs if key in self._waiting}
            self._asked = {}
            for waiting in self._waiting.values():
                for demand, pods in zip(waiting.demands, waiting.pods, strict=True):
                    self._asked.setdefault(demand, pods[0])
            self._demands = {wanted: wanted for wanted in self._asked}
        is_changed = False
        for name in changed:
            is_changed = True
            # Kept sorted by insertion: sorting 10,000 names in each session would cost more.
            place = bisect_left(self._unhealthy, name)
            was_unhealthy = self._unhealthy[place : place + 1] == [name]
            is_unhealthy = name in views and bool(views[name].unhealthy)
            if is_unhealthy and not was_unhealthy:
                self._unhealthy.insert(place, name)
            elif was_unhealthy and not is_unhealthy:
                del self._unhealthy[place]
        answers: dict[int, _Answer] = {}
        for demand, pod in self._asked.items():
            result = placer.answer(demand, pod)
            # By ``id``: demands are unique objects (``_demands``), and hashing one takes long.
            answers[id(demand)] = result, _lacking(result, views, self._unhealthy)
        # The usual session ends here: nothing of what waits has changed.
        if answers == self._answers and not is_new and not (is_changed and self._is_mixed):
            return
        self._answers = answers
        self._is_mixed = any(len(waiting.demands) > 1 for waiting in self._waiting.values())
        shorts: dict[tuple[int, Need], str] = {}
        placed = [
            self._place(key, waiting, views, shorts, is_changed=is_changed)
            for key, waiting in self._waiting.items()
        ]
        self.placements = tuple(
            [placement for placed_job in placed for placement in placed_job.placements]
        )
        self.gangs = tuple([placed_job.gang for placed_job in placed])
        self.divergences = set().union(*(result.divergences for result, _ in answers.values()))

    def _look(self, job: SchedulerJob, placer: Placer) -> _WaitingPods:
        groups: dict[Demand, list[SchedulerPod]] = {}
        for pod in job.pods:
            if is_waiting(pod):
                demand = placer.demand(job, pod)
                groups.setdefault(self._demands.setdefault(demand, demand), []).append(pod)
        return _WaitingPods(
            tuple(groups),
            tuple(tuple(pods) for pods in groups.values()),
            tuple(
                tuple(PodRef(pod.namespace, pod.name, pod.uid) for pod in pods)
                for pods in groups.values()
            ),
            job.group,
            need_of(job),
            not_predicted_of(job),
        )

    def _place(
        self,
        key: str,
        waiting: _WaitingPods,
        views: Mapping[str, NodeView],
        shorts: dict[tuple[int, Need], str],
        *,
        is_changed: bool,
    ) -> _Placed:
        """``shorts``: what jobs that all wait for one demand lack, by that and their need."""
        answers = [self._answers[id(demand)] for demand in waiting.demands]
        is_mixed = len(answers) > 1
        placed = self._placed.get(key)
        if placed is not None and placed.answers == answers and not (is_changed and is_mixed):
            return placed
        # The same objects, so that a report of millions of entries is not made again.
        if placed is not None and all(map(_is_placed_so, placed.placements, answers)):
            placements = placed.placements
        else:
            placements = tuple(
                [
                    Placement(refs, result.accepting, result.refuses)
                    for refs, (result, _) in zip(waiting.refs, answers, strict=True)
                ]
            )
        demand_key = (id(waiting.demands[0]), waiting.need)
        short = None if is_mixed else shorts.get(demand_key)
        if short is None:
            demands = [
                (result, pods, lacking)
                for (result, lacking), pods in zip(answers, waiting.pods, strict=True)
            ]
            short = short_of(waiting.need, demands, views)
            if not is_mixed:
                shorts[demand_key] = short
        if placed is not None and placed.gang.short == short:
            gang = placed.gang
        else:
            group = waiting.group
            gang = Gang(group.namespace, group.name, not short, short, waiting.not_predicted)
        placed = self._placed[key] = _Placed(answers, placements, gang)
        return placed


def _is_placed_so(placement: Placement, answer: _Answer) -> bool:
    result, _ = answer
    return placement.accepts is result.accepting and placement.refuses is result.refuses


_NAMED_NODES = 3


@lru_cache(maxsize=4096)
def _lacks(node: str, cards: str) -> str:
    # Each session asks for the same ones, by each demand.
    return sentence("{node} lacks {cards}", node=node, cards=cards)


def _lacking(
    result: PlacementResult, views: Mapping[str, NodeView], unhealthy: Iterable[str]
) -> tuple[str, ...]:
    """Return what the first nodes lack that refuse a demand."""
    lacking = []
    for name in unhealthy:
        if name in result.refuses:
            cards = joined("{before}, {part}", views[name].unhealthy or [""])
            lacking.append(_lacks(name, cards))
            # Three nodes explain a refusal; the report has all of them elsewhere.
            if len(lacking) == _NAMED_NODES:
                break
    return tuple(lacking)
