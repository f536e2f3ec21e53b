"""Which nodes take a pod, and why the others do not (``docs/spec/consumers.md#1.6`` and 1.9).

Not predicted: which chips of a node are chosen, topology, ToR affinity and scores.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from advisor.fault_pods import NOT_HANDLE
from advisor.jobs import npu_request, npu_resource
from advisor.matching import selector_refusal, taint_refusal
from advisor.node_view import PRE_SEPARATE_WORD, NodeState
from advisor.options import Profile
from advisor.report import Placement, PodRef
from contract import scheduling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.jobs import Job
    from advisor.node_view import NodeView
    from advisor.options import Options
    from advisor.snapshot import Pod
    from advisor.state import NodeMemory

LINK_DOWN_SECONDS = 20
LINK_DOWN_CODE = "81078603"
_DEFAULT_COUNTS = frozenset({1, 2, 4, 8})
"""What a pod without ``accelerator-type`` may ask for: the first generation's rule.

Source: docs/spec/consumers.md#1.7.
"""
_A3_PREFIX = "module-a3-"
_A3_CARDS = 16


class Demand(NamedTuple):
    """What decides where a pod goes; equal demands go to equal nodes."""

    requests: tuple[tuple[str, int], ...]
    resource: str
    cards: int
    selector: tuple[tuple[str, str], ...]
    affinity: object
    tolerations: object
    ignores_sub_health: bool
    is_distributed: bool


class Result(NamedTuple):
    """Where a demand goes: nodes with how many such pods each takes, and why others do not."""

    accepts: dict[str, int]
    refuses: dict[str, str]


def link_down_cards(view: NodeView, *, corrected: bool) -> set[str]:
    """Return the cards of which a link is down; upstream compares the codes whole (8, 17)."""
    return {
        one.npu_name
        for one in view.faults
        if one.fault_handling == NOT_HANDLE
        and (
            one.fault_code == LINK_DOWN_CODE
            or (corrected and LINK_DOWN_CODE in one.fault_code.split(","))
        )
    }


class Placer:
    """Answers where pods can go; each demand is computed once in a session."""

    def __init__(
        self,
        views: Mapping[str, NodeView],
        memories: Mapping[str, NodeMemory],
        now_ms: int,
        options: Options,
    ) -> None:
        self._memories = memories
        self._now_ms = now_ms
        self._options = options
        self._corrected = options.profile is Profile.CORRECTED
        after = now_ms // 1000 - LINK_DOWN_SECONDS
        self._link_down = {name for name, one in memories.items() if one.link_down_at > after}
        self._views = [views[name] for name in sorted(views)]
        self._closed = {view.name: closed(view) for view in self._views}
        self._found: dict[Demand, Result] = {}
        self.divergences: set[tuple[int, str, str]] = set()
        """Numbers of consumers#8, nodes, and what is done otherwise."""

    def of_node(self, view: NodeView) -> Placer:
        """Return a placer for this one node as ``view`` has it, at the same time."""
        memory = self._memories.get(view.name)
        memories = {} if memory is None else {view.name: memory}
        return Placer({view.name: view}, memories, self._now_ms, self._options)

    def result(self, job: Job, pod: Pod) -> Result:
        """Return where ``pod`` of ``job`` can go now."""
        demand = _demand(job, pod)
        found = self._found.get(demand)
        if found is None:
            found = self._found[demand] = self._compute(demand, pod)
        return found

    def _compute(self, demand: Demand, pod: Pod) -> Result:
        accepts: dict[str, int] = {}
        refuses: dict[str, str] = {}
        bad_count = _bad_count(demand, pod)
        for view in self._views:
            why = self._refusal(demand, pod, view, bad_count)
            if why:
                refuses[view.name] = why
            else:
                accepts[view.name] = self._times(demand, view)
        return Result(accepts, refuses)

    def _refusal(self, demand: Demand, pod: Pod, view: NodeView, bad_count: str) -> str:
        """Return the first reason of a node against a demand; empty where it takes it."""
        idle = view.idle
        for resource, amount in demand.requests:
            if idle.get(resource, 0) < amount:
                return _insufficient(resource, amount, max(idle.get(resource, 0), 0))
        if view.is_in_map and (why := self._isolation(demand, view)):
            return why
        if not view.node.is_ready:
            return "NotReady: its condition Ready is not True"
        if why := selector_refusal(pod, view.node):
            return f"Selector: {why}"
        if why := taint_refusal(pod, view.node):
            return f"Taint: {why}"
        if view.node.is_cordoned:
            return "Cordoned: it is marked unschedulable"
        if not demand.cards:
            return ""
        return bad_count or self._cards(demand, view)

    def _isolation(self, demand: Demand, view: NodeView) -> str:
        """Return what the fault table has against a node (consumers#1.9).

        ``corrected`` lets pods without chips onto nodes of which only chips are concerned
        (consumers#8-14).
        """
        if why := self._closed[view.name]:
            return why
        if not demand.ignores_sub_health and (view.card_sub_health or view.switch_sub_health):
            which = "a card" if view.card_sub_health else "its switch"
            why = f"SubHealth: {which} is sub-healthy and the job's strategy is not ignore"
        elif not view.is_in_table:
            why = "NotInFaultTable: it has chips and no label accelerator that names them"
        if why and self._corrected and not demand.cards:
            self.divergences.add((14, view.name, "it takes pods without chips all the same"))
            return ""
        return why

    def _cards(self, demand: Demand, view: NodeView) -> str:
        """Return what is wrong with the cards of a node for a demand (consumers#1.6, 1.9)."""
        if not view.is_in_map:  # upstream accepts it (consumers#8-12)
            if not self._corrected:
                return ""
            self.divergences.add((12, view.name, "a node that the plugin does not have is refused"))
            return "FreeCards: the plugin does not have the node"
        resource, cards = demand.resource, demand.cards
        if view.free is None or resource != view.resource:
            return f"FreeCards: the scheduler has no list of free cards ({resource})"
        free, idle = len(view.free), view.idle.get(resource, 0)
        capacity = view.node.capacity.get(resource, 0)
        if free > idle or free > capacity or idle > capacity:
            return _unstable(free, idle, capacity)
        if free < cards:
            return _short(cards, free, ",".join(view.unhealthy))
        if demand.is_distributed:
            if view.network_unhealthy is None:
                return f"NetworkCards: {resource}-NetworkUnhealthy was never in its entry"
            usable = self._usable(view)
            if usable < cards:
                return f"NetworkCards: {cards} asked, {usable} free with a sound network"
        return ""

    def _usable(self, view: NodeView) -> int:
        """Return how many free cards a distributed job may use (consumers#1.9)."""
        bad = set(view.network_unhealthy or ())
        if view.name in self._link_down:
            bad |= link_down_cards(view, corrected=self._corrected)
        return sum(1 for name in view.free or () if name not in bad)

    def _times(self, demand: Demand, view: NodeView) -> int:
        """Return how many pods of a demand a node takes at once."""
        times = [view.idle[resource] // amount for resource, amount in demand.requests if amount]
        if demand.cards and view.is_in_map and view.free is not None:
            free = self._usable(view) if demand.is_distributed else len(view.free)
            times.append(free // demand.cards)
        return min(times, default=1)


def _demand(job: Job, pod: Pod) -> Demand:
    requests = {resource: amount for resource, amount in pod.requests.items() if amount > 0}
    requests["pods"] = 1
    return Demand(
        requests=tuple(sorted(requests.items())),
        resource=npu_resource(pod),
        cards=npu_request(pod),
        selector=tuple(sorted(pod.node_selector.items())),
        affinity=pod.node_affinity,
        tolerations=pod.tolerations,
        ignores_sub_health=job.strategy == scheduling.SUB_HEALTH_IGNORE,
        is_distributed=job.is_distributed,
    )


def closed(view: NodeView) -> str:
    """Return why a node takes no pod at all; empty where it takes some (consumers#1.9)."""
    if view.state == NodeState.NODE:
        return f"NodeUnhealthy: its {view.source} is {view.state}"
    if view.host_status == PRE_SEPARATE_WORD:
        return "PreSeparate: its NodeStatus is PreSeparate"
    return ""


def _bad_count(demand: Demand, pod: Pod) -> str:
    """Return why no node can give so many cards to one pod; empty where one can (consumers#1.7)."""
    kind = pod.node_selector.get(scheduling.ACCELERATOR_TYPE, "")
    cards = demand.cards
    if not kind:
        if cards not in _DEFAULT_COUNTS:
            return f"CardCount: {cards} cards; 1, 2, 4 or 8 without accelerator-type"
    elif kind.startswith(_A3_PREFIX) and (cards > _A3_CARDS or (cards > 1 and cards % 2)):
        return f"CardCount: {cards} cards; 1 or an even count up to {_A3_CARDS} on {kind}"
    return ""


@lru_cache(maxsize=4096)
def _insufficient(resource: str, asked: int, idle: int) -> str:
    return f"Insufficient: {asked} of {resource} asked, {idle} idle"


@lru_cache(maxsize=4096)
def _unstable(free: int, idle: int, capacity: int) -> str:
    return f"FreeCards: {free} listed as free, Kubernetes has {idle} idle of {capacity}"


@lru_cache(maxsize=4096)
def _short(asked: int, free: int, unhealthy: str) -> str:
    lacks = f"; {unhealthy} unhealthy" if unhealthy else ""
    return f"FreeCards: {asked} asked, {free} free{lacks}"


def is_waiting(pod: Pod) -> bool:
    """Whether a pod waits to be placed."""
    return not pod.node and pod.phase == "Pending" and not pod.is_terminating


def placements(jobs: Mapping[str, Job], placer: Placer) -> tuple[Placement, ...]:
    """Return the placement of all waiting pods, once per PodGroup and demand."""
    found = []
    for job in jobs.values():
        groups: dict[int, tuple[Result, list[PodRef]]] = {}
        for pod in job.pods:
            if is_waiting(pod):
                result = placer.result(job, pod)
                _, pods = groups.setdefault(id(result), (result, []))
                pods.append(PodRef(pod.namespace, pod.name, pod.uid))
        found += [
            Placement(tuple(pods), tuple(result.accepts), result.refuses)
            for result, pods in groups.values()
        ]
    return tuple(found)
