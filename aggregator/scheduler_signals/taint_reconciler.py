"""Writes the taint of Nodes (``SignalWriter``).

A taint stands while the faults hold that it is for. A node that is lost by its heartbeat is left to
Kubernetes' own taints: its taint stays as it is. Whoever removes a taint is obeyed for as long as
these faults hold; a changed taint counts as removed.

``NoExecute`` comes in two writes: ``NoSchedule`` first. A new leader writes each taint once more.
So an eviction by a leader that was paused is always about a version of the Node that is over.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from aggregator.scheduler_signals.node_taints import wanted_taint
from aggregator.scheduler_signals.reconciler import (
    BRAKE,
    CAP,
    NOTHING,
    REMOVED,
    TOLERATION,
    PlannedWrite,
    SignalPlan,
    Waiting,
)
from aggregator.scheduler_signals.signal_memory import TaintRow
from aggregator.scheduler_signals.taint_budget import TaintDemand, TaintTurn
from contract.codes.levels import MAX_RANK
from contract.errors import StoreError, StoreNotFound
from contract.node_signals import NO_EXECUTE, NO_SCHEDULE, TAINT_KEY, NodeTaint, api_time
from contract.plural import plural
from service.clock import shown_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aggregator.config import NodeTaintsSection
    from aggregator.scheduler_signals.driver_pods import DriverPods
    from aggregator.scheduler_signals.node_evidence import NodeEvidence
    from aggregator.scheduler_signals.node_taints import WantedTaint
    from aggregator.scheduler_signals.observed_nodes import ObservedNodes
    from aggregator.scheduler_signals.signal_memory import SignalMemory
    from aggregator.scheduler_signals.taint_budget import TaintBudget
    from contract.node_signals import NodeSignals
    from service.clock import Clock, Instant
    from stores.cluster import Cluster

_log = logging.getLogger(__name__)

NAME = "node_taints"
_STRICTNESS = {None: 0, NO_SCHEDULE: 1, NO_EXECUTE: 2}
_TOUCH_RANK = MAX_RANK + 1


class NodeTaints:
    """The option ``node_taints`` (``reconciler.Reconciler``).

    ``evidence`` returns what is known of a node, ``None`` where that is not confirmed yet;
    ``count`` how many nodes have agents.
    """

    name = NAME

    def __init__(
        self,
        cluster: Cluster,
        nodes: ObservedNodes,
        pods: DriverPods,
        memory: SignalMemory,
        evidence: Callable[[str], NodeEvidence | None],
        count: Callable[[], int],
        options: NodeTaintsSection,
        budget: TaintBudget,
        clock: Clock,
    ) -> None:
        self.dry_run = options.dry_run
        self._cluster = cluster
        self._nodes = nodes
        self._pods = pods
        self._memory = memory
        self._evidence = evidence
        self._count = count
        self._options = options
        self._budget = budget
        self._clock = clock
        self._leads = False
        self._wanted: dict[str, WantedTaint] = {}
        self._since: dict[str, int] = {}
        """Since when a Node differs, steady milliseconds."""
        self._standing: set[str] = set()
        self._admitted: frozenset[str] = frozenset()
        """The nodes that might have a taint when nodes were judged last."""
        self.capped: set[str] = set()
        """The nodes that wait for room in the budget."""
        self._sent: dict[str, tuple[tuple[str, str], ...]] = {}
        """Our last write of each Node: the watch may show it before the answer, or without one."""
        self._touched: set[str] = set()
        self._questions: set[asyncio.Task[None]] = set()
        budget.nodes = self._demand
        nodes.on_change.append(self._observe_change)

    def begin_leading(self) -> Iterable[str]:
        """See ``Reconciler``."""
        self._leads = True
        self._touched.clear()
        for node, row in self._memory.items():
            seen = self._nodes.get(node)
            if seen is not None:
                self._compare_with_memory(node, row, seen)
        return tuple(self._nodes)

    def _compare_with_memory(self, node: str, row: TaintRow, seen: NodeSignals) -> None:
        """Note a taint that was removed while no leader watched."""
        if seen.uid == row.uid and not row.is_removed and not seen.fault_taints:
            self._note_removed(node, row)

    def end_leading(self) -> None:
        """See ``Reconciler``."""
        self._leads = False

    def judge(self, nodes: Iterable[str], _: Instant) -> Iterable[str]:
        """See ``Reconciler``."""
        nodes = set(nodes)
        for node in nodes:
            evidence = self._evidence(node)
            # Of a lost node nothing new is known; what is not confirmed changes nothing.
            if evidence is None or evidence.is_silent:
                continue
            wanted = None if evidence.is_gone else wanted_taint(evidence, self._options)
            if wanted is None:
                self._wanted.pop(node, None)
            else:
                self._wanted[node] = wanted
            row = self._memory.get(node) if self._leads else None
            if row is None:
                continue
            if wanted is None and (row.is_removed or node not in self._standing):
                # The faults have ended, and with them the obedience.
                self._memory.put(node, None)
            elif wanted is not None and not row.is_removed:
                # So that a removal is obeyed for all faults that held then.
                faults = tuple(sorted(wanted.faults))
                self._memory.put(node, msgspec.structs.replace(row, faults=faults))
        before = self._admitted
        self._budget.change_nodes()
        self._admitted = self._budget.admitted.nodes
        return nodes | (before ^ self._admitted)

    def _demand(self) -> TaintDemand[str]:
        wanted = {node: TaintTurn(want.rank, want.began_ms) for node, want in self._wanted.items()}
        return TaintDemand(wanted, self._standing, self._count(), self._options.max_nodes_percent)

    def written(self, target: str, now: Instant) -> Iterable[str]:
        """See ``Reconciler``."""
        return self.judge((target,), now)

    def plan(self, target: str, now: Instant, hold_reason: str | None) -> SignalPlan:
        """See ``Reconciler``."""
        self.capped.discard(target)
        seen, evidence = self._nodes.get(target), self._evidence(target)
        if seen is None or evidence is None or evidence.is_silent:
            self._since.pop(target, None)
            return NOTHING
        wanted = self._wanted.get(target)
        if wanted is None:
            return self._written(target, seen, None, MAX_RANK, now)
        row = self._memory.get(target)
        if row is not None and row.is_removed and row.uid == seen.uid:
            if wanted.faults <= set(row.faults):
                return SignalPlan(waiting=Waiting(REMOVED, _removed_text(row)))
            self._memory.put(target, None)
        now_effect = max((t.effect for t in seen.fault_taints), key=_strictness, default=None)
        effect, waiting = self._allowed(target, wanted, now_effect, hold_reason)
        if effect is None and now_effect is None:
            return SignalPlan(waiting=waiting)
        plan = self._written(target, seen, (wanted, effect), wanted.rank, now)
        return SignalPlan(plan.write, waiting)

    def _allowed(
        self, node: str, wanted: WantedTaint, present: str | None, hold_reason: str | None
    ) -> tuple[str | None, Waiting | None]:
        """Return which effect the taint may have now, and what keeps it from its own."""
        effect: str | None = wanted.effect
        waiting = None
        # What is written already stays, as far as it is wanted.
        least = min(present, wanted.effect, key=_strictness)
        if not self._pods.is_listed:
            return present, Waiting(TOLERATION, "pods are not listed yet")
        while effect is not None:
            pod = self._pods.lacking(node, wanted.value, effect)
            if pod is None:
                break
            waiting = Waiting(
                TOLERATION, f"{effect} would concern pods of DaemonSet {pod.daemon_set}"
            )
            effect = NO_SCHEDULE if effect == NO_EXECUTE else None
        effect = max(effect, least, key=_strictness)
        if node not in self._budget.admitted.nodes:
            self.capped.add(node)
            percent = self._options.max_nodes_percent
            return present, Waiting(CAP, f"at most {percent} % of the nodes get a taint")
        if _strictness(effect) > _strictness(present):
            if hold_reason is not None:
                return present, Waiting(BRAKE, hold_reason)
            if present is None:
                # The first of two writes.
                effect = NO_SCHEDULE
        return effect, waiting

    def _written(
        self,
        node: str,
        seen: NodeSignals,
        wanted: tuple[WantedTaint, str | None] | None,
        rank: int,
        now: Instant,
    ) -> SignalPlan:
        """Return the write that gives a Node this taint and effect, or removes its taint."""
        effect = None if wanted is None else wanted[1]
        value = "" if wanted is None else wanted[0].value
        present = seen.fault_taints
        is_same = _ours(present) == (((effect, value),) if effect else ())
        if is_same and (not present or node in self._touched or self.dry_run):
            self._since.pop(node, None)
            return NOTHING
        others = [taint for taint in seen.taints if taint.key != TAINT_KEY]
        if effect is not None:
            others.append(NodeTaint(TAINT_KEY, effect, value, api_time(now.wall_ms)))
        shown = f"{TAINT_KEY}={value}:{effect}" if effect else f"no {TAINT_KEY}"
        if is_same:
            # A leader before this one may still remove it, for an earlier version of the Node.
            rank, shown = _TOUCH_RANK, f"{shown} (again, as the new leader)"
        row = None if wanted is None else TaintRow(seen.uid, tuple(sorted(wanted[0].faults)))
        return SignalPlan(
            PlannedWrite(
                rank,
                self._since.setdefault(node, now.steady_ms),
                f"{node}: {shown}",
                lambda: self._send(node, seen, others, row),
            )
        )

    async def _send(
        self, node: str, seen: NodeSignals, taints: Sequence[NodeTaint], row: TaintRow | None
    ) -> None:
        self._sent[node] = _ours(taints)
        written = await self._cluster.set_taints(node, seen, taints)
        self._nodes.acknowledge(node, written)
        self._since.pop(node, None)
        self._touched.add(node)
        self._memory.put(node, row)
        self._note_standing(node)

    async def read(self, target: str) -> None:
        """See ``Reconciler``."""
        try:
            self._nodes.read(target, await self._cluster.node_signals(target))
        except StoreNotFound:
            self._nodes.read(target, None)

    def _note_standing(self, node: str) -> None:
        seen = self._nodes.get(node)
        if seen is not None and seen.fault_taints:
            self._standing.add(node)
        else:
            self._standing.discard(node)

    def _observe_change(self, node: str, before: NodeSignals | None) -> None:
        self._note_standing(node)
        seen, row = self._nodes.get(node), self._memory.get(node)
        if seen is None:
            self._wanted.pop(node, None)
            self._sent.pop(node, None)
        elif before is None and self._leads and row is not None:
            # Nodes may be listed later than this replica begins to lead.
            self._compare_with_memory(node, row, seen)
        if before is None or seen is None or before.uid != seen.uid or not before.fault_taints:
            return
        now = _ours(seen.taints)
        is_foreign = now not in (_ours(before.taints), self._sent.get(node))
        if self._leads and is_foreign and row is not None and not row.is_removed:
            self._note_removed(node, row)

    def _note_removed(self, node: str, row: TaintRow) -> None:
        """Remember that another one has removed or changed the taint, and ask who.

        Where its faults have ended, too, that is over with the next judgement.
        """
        removed = msgspec.structs.replace(row, removed_at_ms=self._clock().wall_ms)
        self._memory.put(node, removed)
        task = asyncio.get_running_loop().create_task(self._ask(node, removed))
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)

    async def _ask(self, node: str, row: TaintRow) -> None:
        try:
            manager = await self._cluster.last_taint_manager(node)
        except StoreError:
            manager = None
        if self._memory.get(node) != row:
            return  # its faults have ended meanwhile
        if manager is not None:
            row = msgspec.structs.replace(row, removed_by=manager)
            self._memory.put(node, row)
        _log.warning("node %s: %s", node, _removed_text(row))

    def problems(self) -> Iterable[str]:
        """See ``Reconciler``."""
        for pod, nodes in self._pods.daemon_sets():
            yield (
                f"node_taints: pods of DaemonSet {pod.daemon_set} on {plural(nodes, 'node')} do "
                f"not tolerate {TAINT_KEY}, so these get no taint: {pod.patch}"
            )


def _ours(taints: Iterable[NodeTaint]) -> tuple[tuple[str, str], ...]:
    return tuple((taint.effect, taint.value) for taint in taints if taint.key == TAINT_KEY)


def _strictness(effect: str | None) -> int:
    return _STRICTNESS.get(effect, 0)


def _removed_text(row: TaintRow) -> str:
    who = f"'{row.removed_by}'" if row.removed_by else "a person or another program"
    return (
        f"{who} removed the taint at {shown_time(row.removed_at_ms)}; it is written again for "
        "other faults only"
    )
