"""Computes the free capacity of nodes after pods have gone, and whether they would fit again.

Jobs are served in the order of their creation. What else starts meanwhile is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.jobs import npu_request, used_cards
from advisor.placement.gangs import not_predicted_of
from contract.sentences import counted, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from advisor.jobs import SchedulerJob
    from advisor.placement.placement import Demand, PlacementResult, Placer
    from advisor.report import JobDecision
    from advisor.scheduler_view.nodes import NodeView
    from advisor.snapshot import SchedulerPod


class FreeCapacity:
    """Capacity of nodes that change: ``placer`` has them unchanged, so differences are computed."""

    def __init__(self, views: Mapping[str, NodeView], placer: Placer) -> None:
        self._given = views
        self._changed: dict[str, NodeView] = {}
        self._placer = placer
        self._by_result: dict[int, DemandCapacity] = {}
        """By the result of ``placer``, which is one for equal demands and lives as long as it."""
        self._gone: set[str] = set()
        """Uids of the pods that left."""
        self._apart: dict[Demand, DemandCapacity] = {}
        """Capacity for demands with anti-affinity, which the pods that left do not keep away."""
        self._order: list[str] = []
        """The nodes that have changed, one after the other."""

    def release(self, pods: Iterable[SchedulerPod]) -> None:
        """Give back what ``pods`` hold; unhealthy cards stay away."""
        for pod in pods:
            self._gone.add(pod.uid)
            view = self._view(pod.node)
            # A pod that has ended holds nothing that could come back.
            if view is None or not pod.is_live:
                continue
            back = set(used_cards(pod)).difference(view.unhealthy)
            free = None if view.free is None else tuple(sorted({*view.free, *back}))
            self._change(pod, 1, view, free)

    def _view(self, name: str) -> NodeView | None:
        return self._changed.get(name) or self._given.get(name)

    def capacity(self, job: SchedulerJob, pod: SchedulerPod) -> DemandCapacity:
        """Return the capacity for pods like ``pod``; equal demands share one value."""
        demand = self._placer.demand(job, pod)
        if demand.apart:
            cached = self._apart.get(demand)
            if cached is None:
                result = self._placer.answer_without(demand, pod, self._gone)
                cached = self._apart[demand] = DemandCapacity(demand, pod, result, self._correct)
            return cached
        result = self._placer.answer(demand, pod)
        cached = self._by_result.get(id(result))
        if cached is None:
            cached = self._by_result[id(result)] = DemandCapacity(
                demand, pod, result, self._correct
            )
        return cached

    def take(self, capacity: DemandCapacity, count: int) -> None:
        """Take the capacity for ``count`` pods, which must be free."""
        chosen: list[tuple[str, int]] = []
        for name, places in capacity.items():
            times = min(places, count)
            if times > 0:
                chosen.append((name, times))
                count -= times
            if not count:
                break
        for name, times in chosen:
            view = self._view(name)
            assert view is not None
            free = view.free
            if free is not None:
                by_network = capacity.demand.needs_network
                bad = set(view.network_unhealthy or ()) if by_network else set()
                # Which cards the scheduler takes is not predicted; only their number counts later.
                usable = [card for card in free if card not in bad]
                taken = set(usable[: capacity.demand.cards * times])
                free = tuple(card for card in free if card not in taken)
            self._change(capacity.pod, -times, view, free)

    def _change(
        self, pod: SchedulerPod, times: int, view: NodeView, free: tuple[str, ...] | None
    ) -> None:
        idle = dict(view.idle)
        for resource, amount in {**pod.requests, "pods": 1}.items():
            idle[resource] = idle.get(resource, 0) + amount * times
        self._changed[view.name] = msgspec.structs.replace(view, idle=idle, free=free)
        self._order.append(view.name)

    def _correct(self, capacity: DemandCapacity) -> None:
        """Correct what nodes take of a demand that have changed since that was done last."""
        for name in sorted(set(self._order[capacity.corrected_until :])):
            view = self._changed[name]
            capacity.correct(
                name, self._placer.capacity(capacity.demand, capacity.pod, view, self._gone)
            )
        capacity.corrected_until = len(self._order)


class DemandCapacity:
    """How many pods of a demand each node takes, and all together."""

    def __init__(
        self,
        demand: Demand,
        pod: SchedulerPod,
        result: PlacementResult,
        correct: Callable[[DemandCapacity], None],
    ) -> None:
        """``correct`` brings it up to date."""
        self.demand = demand
        self.pod = pod
        self.corrected_until = 0
        self._total = result.capacity
        self._given = result.accepts
        self._corrected: dict[str, int] = {}
        self._bring_up_to_date = correct

    @property
    def total(self) -> int:
        """How many pods of the demand fit."""
        self._bring_up_to_date(self)
        return self._total

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield the nodes, and how many each takes."""
        self._bring_up_to_date(self)
        for name, count in self._given.pairs():
            yield name, self._corrected.get(name, count)
        for name, count in self._corrected.items():
            if name not in self._given:
                yield name, count

    def correct(self, name: str, count: int) -> None:
        """Note how many a node takes now."""
        self._total += count - self._corrected.get(name, self._given.get(name, 0))
        self._corrected[name] = count


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
            size = (
                counted(cards, "{count} card", "{count} cards") if cards else sentence("no cards")
            )
            return sentence(
                "made anew, they do not fit: {pods} × {size} are needed, there is room for {room}",
                pods=count,
                size=size,
                room=capacity.total,
            )
        pool.take(capacity, count)
    rest = not_predicted_of(job)
    if rest:
        return sentence("made anew, they fit by chips; {rest} is not predicted", rest=rest)
    return sentence("made anew, they fit")
