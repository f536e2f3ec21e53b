"""Which nodes take a pod, and why the others do not (``docs/spec/consumers.md#1.6`` and 1.9).

Not predicted: which chips of a node are chosen, topology, affinity to pods, ToR affinity, scores.

A demand has all that decides where a pod goes, so pods with equal demands share one result. It is
kept, and in the next session only changed nodes are asked again. Where many have changed, or pods
have others to avoid, it is computed anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from advisor.jobs import npu_request, npu_resource
from advisor.layered_dict import LayeredDict
from advisor.options import Profile
from advisor.placement.card_counts import bad_count, needs_network, rules_of
from advisor.placement.matching import (
    Apart,
    cordon_refusal,
    own_topologies,
    selector_refusal,
    taint_refusal,
)
from advisor.rescheduling.fault_pods import NOT_HANDLE
from advisor.scheduler_view.nodes import PRE_SEPARATE_WORD, NodeHealthState
from contract import scheduling
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from advisor.jobs import SchedulerJob
    from advisor.options import AdvisorOptions
    from advisor.scheduler_view.nodes import NodeView
    from advisor.scheduler_view.state import NodeMemory
    from advisor.snapshot import SchedulerNode, SchedulerPod
    from advisor.snapshot_index import SnapshotIndex

T = TypeVar("T")
LINK_DOWN_SECONDS = 20
LINK_DOWN_CODE = "81078603"
_KEPT_DEMANDS = 8
"""How many unused demands are kept for the next session."""
_FEW = 10
"""If more than one in so many nodes has changed, all are computed again."""

# Ten thousand nodes may refuse a pod for one reason, so its sentence is made once.
_NOT_READY = sentence("NotReady: its condition Ready is not True")
_NO_POD_WITHOUT_READY = sentence(
    "a node that is NotReady takes no pod, whether it has a taint or not"
)
_SUB_HEALTHY_CARD = sentence(
    "SubHealth: a card is sub-healthy and the job's strategy is not ignore"
)
_SUB_HEALTHY_SWITCH = sentence(
    "SubHealth: its switch is sub-healthy and the job's strategy is not ignore"
)
_NOT_IN_TABLE = sentence("NotInFaultTable: it has chips and no label accelerator that names them")
_TAKES_WITHOUT_CHIPS = sentence("it takes pods without chips all the same")
_UNKNOWN_IS_REFUSED = sentence("a node that the plugin does not have is refused")
_UNKNOWN_TO_PLUGIN = sentence("FreeCards: the plugin does not have the node")
_PRE_SEPARATE = sentence("PreSeparate: its NodeStatus is PreSeparate")
_NODE_UNHEALTHY = {
    "host": sentence("NodeUnhealthy: its host is NodeUnhealthy"),
    "switch": sentence("NodeUnhealthy: its switch is NodeUnhealthy"),
    "heartbeat": sentence("NodeUnhealthy: its heartbeat is NodeUnhealthy"),
}
"""By the source of a view that makes the whole node unhealthy."""


class Demand(NamedTuple):
    """What decides where a pod goes; equal demands go to equal nodes.

    ``is_by_cards`` is whether the plugin compares lists of cards: for pods with chips whose
    PodGroup names chips, too (consumers#2.1). ``rules`` are those for the number of cards.
    ``needs_network`` is whether the network of the cards has to be sound: for distributed jobs.
    ``apart`` is what decides about required anti-affinity, empty where none concerns the pod.
    """

    requests: tuple[tuple[str, int], ...]
    resource: str
    cards: int
    is_by_cards: bool
    rules: str
    selector: tuple[tuple[str, str], ...]
    affinity: object
    tolerations: object
    ignores_sub_health: bool
    needs_network: bool
    apart: tuple[object, ...] = ()


@dataclass(eq=False, slots=True)
class PlacementResult:
    """Where a demand goes: nodes with how many such pods each takes, and why others do not.

    Both are by name, in that order. ``divergences`` are those of ``Placer``. ``capacity`` is the
    sum of ``accepts``, ``names`` are its keys where they are known.
    """

    accepts: LayeredDict[int]
    refuses: dict[str, str]
    divergences: frozenset[tuple[int, str, str]]
    capacity: int
    names: tuple[str, ...] | None = None

    @property
    def accepting(self) -> tuple[str, ...]:
        """The names of the nodes that take it."""
        if self.names is None:
            self.names = tuple(self.accepts)
        return self.names


def link_down_cards(view: NodeView, *, corrected: bool) -> set[str]:
    """Return the cards of which a link is down; upstream compares the codes whole (8, 17)."""
    return {
        fault.npu_name
        for fault in view.faults
        if fault.fault_handling == NOT_HANDLE
        and (
            fault.fault_code == LINK_DOWN_CODE
            or (corrected and LINK_DOWN_CODE in fault.fault_code.split(","))
        )
    }


class _EarlierResult:
    """A result of an earlier session, and the nodes that have changed since then."""

    def __init__(self, result: PlacementResult) -> None:
        self.result = result
        self.changed: set[str] = set()


class Placer:
    """Answers where pods can go, updated from session to session of one profile.

    Each demand is computed once for all nodes, and later for those that are others.
    """

    def __init__(self, options: AdvisorOptions) -> None:
        self._corrected = options.profile is Profile.CORRECTED
        self._link_down: frozenset[str] = frozenset()
        self._linked: set[str] = set()
        """Nodes of which a link was ever named."""
        self._names: tuple[str, ...] = ()
        self._views: Mapping[str, NodeView] = {}
        self._known: dict[Demand, _EarlierResult] = {}
        """In the order in which they were last asked for."""
        self._asked: set[Demand] = set()
        self._divergences: set[tuple[int, str, str]] = set()
        self._apart: Apart | None = None
        self.is_apart_new = False
        """Whether pods have others to stay away from than in the session before."""

    def update(
        self,
        names: tuple[str, ...],
        views: Mapping[str, NodeView],
        memories: Mapping[str, NodeMemory],
        changed: AbstractSet[str],
        looked_at: AbstractSet[str],
        now_ms: int,
        index: SnapshotIndex,
    ) -> None:
        """Update to a session with the nodes ``names``, in order, and those that have changed.

        ``looked_at``: those of which ``memories`` has something else.
        """
        apart = Apart(index)
        self.is_apart_new = self._apart is None or apart.terms != self._apart.terms
        self._apart = apart
        for name in looked_at:
            if name in memories and memories[name].link_down_at:
                self._linked.add(name)
            else:
                self._linked.discard(name)
        after = now_ms // 1000 - LINK_DOWN_SECONDS
        down = frozenset(
            name
            for name in self._linked
            if name in memories and memories[name].link_down_at > after
        )
        # The block of a link ends by time, and no object of the node changes then.
        changed = changed | (down ^ self._link_down)
        self._names, self._views, self._link_down = names, views, down
        idle = [demand for demand in self._known if demand not in self._asked]
        for demand in idle[: max(0, len(idle) - _KEPT_DEMANDS)]:
            del self._known[demand]
        self._asked = set()
        if changed:
            for answer in self._known.values():
                answer.changed |= changed

    def demand(self, job: SchedulerJob, pod: SchedulerPod) -> Demand:
        """Return what a pod of a job asks for, with what decides about anti-affinity."""
        demand = demand_of(job, pod)
        if self._apart is None or not self._apart.concerns(pod):
            return demand
        labels = tuple(sorted(pod.labels.items()))
        return demand._replace(apart=(pod.namespace, labels, pod.anti_affinity))

    def answer_without(
        self, demand: Demand, pod: SchedulerPod, gone: Collection[str]
    ) -> PlacementResult:
        """Return where ``pod`` could go once the pods ``gone`` (uids) are not there to avoid."""
        return self._compute(demand, pod, self._names, gone)

    def answer(self, demand: Demand, pod: SchedulerPod) -> PlacementResult:
        """Return where ``pod`` can go now, which asks for ``demand``."""
        answer = self._known.get(demand)
        if answer is None or demand not in self._asked:
            self._asked.add(demand)
            # A pod elsewhere may open or close a node that is the same as before.
            if answer is None or demand.apart or len(answer.changed) * _FEW > len(self._names):
                result = self._compute(demand, pod, self._names)
            else:
                result = self._updated(demand, pod, answer)
            # Taken out and put in again, so that the order is that of the last requests.
            self._known.pop(demand, None)
            self._known[demand] = answer = _EarlierResult(result)
        return answer.result

    def capacity(
        self, demand: Demand, pod: SchedulerPod, view: NodeView, gone: Collection[str] = ()
    ) -> int:
        """Return how many pods like ``pod`` the node of ``view`` takes, once ``gone`` left."""
        closed = self._closed(demand, pod, gone)
        reason = self._refusal(demand, pod, view, _bad_count(demand), closed)
        return 0 if reason else self._times(demand, pod, view)

    def _closed(
        self, demand: Demand, pod: SchedulerPod, gone: Collection[str]
    ) -> Mapping[tuple[str, str], str]:
        if not demand.apart or self._apart is None:
            return {}
        return self._apart.closed(pod, gone)

    def _compute(
        self,
        demand: Demand,
        pod: SchedulerPod,
        names: Iterable[str],
        gone: Collection[str] = (),
    ) -> PlacementResult:
        accepts: dict[str, int] = {}
        refuses: dict[str, str] = {}
        self._divergences = set()
        bad, closed = _bad_count(demand), self._closed(demand, pod, gone)
        for name in names:
            view = self._views.get(name)
            if view is None:
                continue
            reason = self._refusal(demand, pod, view, bad, closed)
            if reason:
                refuses[name] = reason
            else:
                accepts[name] = self._times(demand, pod, view)
        capacity = sum(accepts.values())
        for key in own_topologies(pod) if demand.apart else ():
            # Of several nodes in one domain only one takes such a pod.
            capacity = min(
                capacity, len({self._views[name].node.labels.get(key, name) for name in accepts})
            )
        return PlacementResult(
            LayeredDict(accepts), refuses, frozenset(self._divergences), capacity
        )

    def _updated(
        self, demand: Demand, pod: SchedulerPod, previous: _EarlierResult
    ) -> PlacementResult:
        """Return a result with what changed nodes answer now, the same one where nothing is new."""
        before = previous.result
        if not previous.changed:
            return before
        new = self._compute(demand, pod, sorted(previous.changed))
        accepts, names = _with_accepts(before, new.accepts, previous.changed)
        refuses = _with(before.refuses, new.refuses, previous.changed)
        unchanged = {
            divergence for divergence in before.divergences if divergence[1] not in previous.changed
        }
        divergences = new.divergences | unchanged
        if (
            accepts is before.accepts
            and refuses is before.refuses
            and divergences == before.divergences
        ):
            return before
        capacity = (
            before.capacity
            + new.capacity
            - sum(before.accepts.get(name, 0) for name in previous.changed)
        )
        return PlacementResult(accepts, refuses, divergences, capacity, names)

    def _refusal(
        self,
        demand: Demand,
        pod: SchedulerPod,
        view: NodeView,
        bad: str,
        closed: Mapping[tuple[str, str], str],
    ) -> str:
        """Return the first reason of a node against a demand; empty where it takes it.

        ``bad`` is what is wrong with the number of cards on every node, ``closed`` are labels of
        nodes that anti-affinity closes.
        """
        idle = view.idle
        for resource, amount in demand.requests:
            if idle.get(resource, 0) < amount:
                return _insufficient(resource, amount, max(idle.get(resource, 0), 0))
        # The predicate lets each pod onto a node that the plugin does not have (consumers#8-12).
        if view.is_in_map and (reason := self._isolation(demand, view)):
            return reason
        if not view.node.is_ready:
            if demand.cards:
                return _NOT_READY
            # The scheduler asks only for taints, and the plugin for nodes that it has.
            if self._corrected:
                self._divergences.add((12, view.name, _NO_POD_WITHOUT_READY))
                return _NOT_READY
        if reason := _kubernetes_refusal(pod, view.node, closed):
            return reason
        if not demand.is_by_cards:
            return ""
        return bad or self._cards(demand, view)

    def _isolation(self, demand: Demand, view: NodeView) -> str:
        """Return what the fault table has against a node (consumers#1.9).

        ``corrected`` lets pods without chips onto nodes of which only chips are concerned
        (consumers#8-14).
        """
        if reason := node_refusal(view):
            return reason
        if not demand.ignores_sub_health and (view.card_sub_health or view.switch_sub_health):
            reason = _SUB_HEALTHY_CARD if view.card_sub_health else _SUB_HEALTHY_SWITCH
        elif not view.is_in_table:
            reason = _NOT_IN_TABLE
        if reason and self._corrected and not demand.cards:
            self._divergences.add((14, view.name, _TAKES_WITHOUT_CHIPS))
            return ""
        return reason

    def _cards(self, demand: Demand, view: NodeView) -> str:
        """Return what is wrong with the cards of a node for a demand (consumers#1.6, 1.9)."""
        if not view.is_in_map:  # upstream accepts it (consumers#8-12)
            if not self._corrected:
                return ""
            self._divergences.add((12, view.name, _UNKNOWN_IS_REFUSED))
            return _UNKNOWN_TO_PLUGIN
        resource, cards = demand.resource, demand.cards
        if view.free is None or resource != view.resource:
            return _no_list(resource)
        free, idle = len(view.free), view.idle.get(resource, 0)
        capacity = view.node.capacity.get(resource, 0)
        if free > idle or free > capacity or idle > capacity:
            return _unstable(free, idle, capacity)
        if free < cards:
            return _short(cards, free, ",".join(view.unhealthy))
        if demand.needs_network:
            if view.network_unhealthy is None:
                return _no_network_list(f"{resource}-NetworkUnhealthy")
            usable = self._usable(view)
            if usable < cards:
                return _unsound(cards, usable)
        return ""

    def _usable(self, view: NodeView) -> int:
        """Return how many free cards a distributed job may use (consumers#1.9)."""
        bad = set(view.network_unhealthy or ())
        if view.name in self._link_down:
            bad |= link_down_cards(view, corrected=self._corrected)
        return sum(1 for name in view.free or () if name not in bad)

    def _times(self, demand: Demand, pod: SchedulerPod, view: NodeView) -> int:
        """Return how many pods of a demand a node takes at once."""
        times = [view.idle[resource] // amount for resource, amount in demand.requests if amount]
        if demand.is_by_cards and view.is_in_map and view.free is not None:
            free = self._usable(view) if demand.needs_network else len(view.free)
            times.append(free // demand.cards)
        if demand.apart and any(key in view.node.labels for key in own_topologies(pod)):
            # Equal pods stay away from each other, so one node takes one of them.
            times.append(1)
        return min(times, default=1)


def _kubernetes_refusal(
    pod: SchedulerPod, node: SchedulerNode, closed: Mapping[tuple[str, str], str]
) -> str:
    """Return what Kubernetes itself has against a node for a pod; empty where nothing."""
    if reason := selector_refusal(pod, node):
        return reason
    if reason := taint_refusal(pod, node):
        return reason
    if reason := cordon_refusal(pod, node):
        return reason
    for (key, value), other in closed.items():
        if node.labels.get(key) == value:
            return _at_the_same(other, key)
    return ""


def demand_of(job: SchedulerJob, pod: SchedulerPod) -> Demand:
    """Return what a pod of a job asks for."""
    requests = {resource: amount for resource, amount in pod.requests.items() if amount > 0}
    requests["pods"] = 1
    cards, resource, rules = npu_request(pod), npu_resource(pod), rules_of(job, pod)
    return Demand(
        requests=tuple(sorted(requests.items())),
        resource=resource,
        cards=cards,
        is_by_cards=cards > 0 and job.is_npu,
        rules=rules,
        selector=tuple(sorted(pod.node_selector.items())),
        affinity=pod.node_affinity,
        tolerations=pod.tolerations,
        ignores_sub_health=job.strategy == scheduling.SUB_HEALTH_IGNORE,
        needs_network=job.is_distributed and needs_network(resource, rules),
    )


def _bad_count(demand: Demand) -> str:
    return bad_count(
        demand.resource, demand.cards, demand.rules, is_distributed=demand.needs_network
    )


def node_refusal(view: NodeView) -> str:
    """Return why a node takes no pod at all; empty where it takes some (consumers#1.9)."""
    if view.state == NodeHealthState.NODE:
        return _NODE_UNHEALTHY[view.source]
    if view.host_status == PRE_SEPARATE_WORD:
        return _PRE_SEPARATE
    return ""


@lru_cache(maxsize=4096)
def _insufficient(resource: str, requested: int, idle: int) -> str:
    return sentence(
        "Insufficient: {count} of {resource} asked, {idle} idle",
        count=requested,
        resource=resource,
        idle=idle,
    )


@lru_cache(maxsize=4096)
def _unstable(free: int, idle: int, capacity: int) -> str:
    return sentence(
        "FreeCards: {free} listed as free, Kubernetes has {idle} idle of {capacity}",
        free=free,
        idle=idle,
        capacity=capacity,
    )


@lru_cache(maxsize=4096)
def _short(requested: int, free: int, unhealthy: str) -> str:
    if not unhealthy:
        return sentence("FreeCards: {count} asked, {free} free", count=requested, free=free)
    return sentence(
        "FreeCards: {count} asked, {free} free; {cards} unhealthy",
        count=requested,
        free=free,
        cards=unhealthy,
    )


@lru_cache(maxsize=4096)
def _no_list(resource: str) -> str:
    return sentence(
        "FreeCards: the scheduler has no list of free cards ({resource})", resource=resource
    )


@lru_cache(maxsize=4096)
def _no_network_list(key: str) -> str:
    return sentence("NetworkCards: {key} was never in its entry", key=key)


@lru_cache(maxsize=4096)
def _unsound(requested: int, usable: int) -> str:
    return sentence(
        "NetworkCards: {count} asked, {usable} free with a sound network",
        count=requested,
        usable=usable,
    )


@lru_cache(maxsize=4096)
def _at_the_same(pod: str, key: str) -> str:
    return sentence("AntiAffinity: {pod} is at the same {key}", pod=pod, key=key)


def _with(before: dict[str, T], new: Mapping[str, T], changed: AbstractSet[str]) -> dict[str, T]:
    """Return ``before`` with the values of ``changed`` as in ``new``; itself where none is other.

    What is not in ``new`` has none.
    """
    dropped = [name for name in changed if name in before and name not in new]
    others = {name: value for name, value in new.items() if before.get(name) != value}
    if not dropped and not others:
        return before
    merged = dict(before)
    for name in dropped:
        del merged[name]
    added = [name for name in others if name not in merged]
    merged.update(others)
    if added:
        # Insertion sort would take as long as this does, which knows what is sorted already.
        return {name: merged[name] for name in sorted(merged)}
    return merged


def _with_accepts(
    before: PlacementResult, new: Mapping[str, int], changed: AbstractSet[str]
) -> tuple[LayeredDict[int], tuple[str, ...] | None]:
    """Return what nodes take with that of ``changed`` as in ``new``, and the names if they stay."""
    accepts = before.accepts
    dropped = [name for name in changed if name in accepts and name not in new]
    others = {name: count for name, count in new.items() if accepts.get(name) != count}
    if not dropped and not others:
        return accepts, before.names
    # A new name has no place in the order yet, so all are sorted again.
    if not all(map(accepts.has_place, others)):
        unchanged = {name: count for name, count in accepts.items() if name not in changed}
        unchanged.update(new)
        return LayeredDict({name: unchanged[name] for name in sorted(unchanged)}), None
    accepts = accepts.copy()
    for name in dropped:
        del accepts[name]
    is_longer = any(name not in accepts for name in others)
    accepts.update(others)
    return accepts, None if dropped or is_longer else before.names


def is_waiting(pod: SchedulerPod) -> bool:
    """Whether a pod waits to be placed."""
    return not pod.node and pod.phase == "Pending" and not pod.is_terminating
