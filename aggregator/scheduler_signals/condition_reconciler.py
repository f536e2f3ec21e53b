"""Writes the conditions of Nodes (``SignalWriter``).

A Node gets conditions once documents or a heartbeat of it are known, and loses them when all of
these are gone. What an earlier run published and no report has confirmed yet changes nothing.
Conditions of our types that another program changes are restored, until that is a conflict
(``service/owned_documents/foreign_writes.py``): then they are left to it for as long as it writes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aggregator.scheduler_signals.node_conditions import next_condition, wanted_conditions
from aggregator.scheduler_signals.reconciler import (
    BRAKE,
    CONFLICT,
    MAX_TAINT_RANK,
    NOTHING,
    PlannedWrite,
    SignalPlan,
    Waiting,
)
from contract.codes.levels import MAX_RANK
from contract.errors import StoreNotFound
from contract.node_signals import UNKNOWN
from service.owned_documents.foreign_writes import ForeignWrites

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from aggregator.scheduler_signals.node_evidence import NodeEvidence
    from aggregator.scheduler_signals.observed_nodes import ObservedNodes
    from aggregator.scheduler_signals.signal_memory import SignalMemory
    from contract.node_signals import NodeCondition, NodeSignals
    from service.clock import Clock, Instant
    from stores.cluster import Cluster

_log = logging.getLogger(__name__)

NAME = "node_conditions"
_FIRST_RANK = MAX_TAINT_RANK + 1
_NEW_RANK = _FIRST_RANK + MAX_RANK + 1
"""Of the first conditions of a healthy Node: all of 10,000 Nodes may wait for theirs."""
_REMOVED_RANK = _NEW_RANK + 1
"""To remove conditions is the least urgent."""


class NodeConditions:
    """The option ``node_conditions`` (``reconciler.Reconciler``).

    ``evidence`` returns what is known of a node, ``None`` where that is not confirmed yet.
    """

    name = NAME

    def __init__(
        self,
        cluster: Cluster,
        nodes: ObservedNodes,
        memory: SignalMemory,
        evidence: Callable[[str], NodeEvidence | None],
        false_levels: Collection[str],
        clock: Clock,
        *,
        dry_run: bool,
    ) -> None:
        self.dry_run = dry_run
        self._cluster = cluster
        self._nodes = nodes
        self._memory = memory
        self._evidence = evidence
        self._false_levels = frozenset(false_levels)
        self._clock = clock
        self._leads = False
        self._since: dict[str, int] = {}
        """Since when a Node differs, steady milliseconds."""
        self._foreign: dict[str, ForeignWrites] = {}
        nodes.on_change.append(self._observe_change)

    def begin_leading(self) -> Iterable[str]:
        """See ``Reconciler``."""
        self._leads = True
        return tuple(self._nodes)

    def end_leading(self) -> None:
        """See ``Reconciler``."""
        self._leads = False
        self._foreign.clear()

    def judge(self, nodes: Iterable[str], _: Instant) -> Iterable[str]:
        """See ``Reconciler``."""
        return nodes

    def written(self, target: str, now: Instant) -> Iterable[str]:
        """See ``Reconciler``."""
        return self.judge((target,), now)

    def plan(self, target: str, now: Instant, hold_reason: str | None) -> SignalPlan:
        """See ``Reconciler``."""
        seen = self._nodes.get(target)
        evidence = None if seen is None else self._evidence(target)
        if seen is None or evidence is None:
            self._since.pop(target, None)
            return NOTHING
        changed, removed, is_held = self._changes(seen, evidence, now, hold_reason)
        waiting = Waiting(BRAKE, hold_reason) if is_held and hold_reason is not None else None
        if not changed and not removed:
            self._since.pop(target, None)
            return SignalPlan(waiting=waiting)
        until_ms = now.steady_ms
        foreign = self._foreign.get(target)
        if foreign is not None and not self.dry_run:
            seconds = now.steady_ms / 1000
            foreign.end_if_over(seconds)
            foreign.report(_log, f"conditions of node {target}")
            if foreign.is_conflict:
                until_ms += int(foreign.seconds_until_over(seconds) * 1000) + 1
                waiting = Waiting(CONFLICT, foreign.writer.changes(f"conditions of node {target}"))
        write = PlannedWrite(
            _REMOVED_RANK if removed else _rank(seen, evidence),
            self._since.setdefault(target, now.steady_ms),
            _shown(target, changed, removed),
            lambda: self._send(target, seen, changed, removed),
            until_ms,
        )
        return SignalPlan(write, waiting)

    def _changes(
        self, seen: NodeSignals, evidence: NodeEvidence, now: Instant, hold_reason: str | None
    ) -> tuple[tuple[NodeCondition, ...], tuple[str, ...], bool]:
        """Return conditions to write, types to remove, and whether ``hold_reason`` delays one."""
        if evidence.is_gone:
            return (), tuple(condition.type for condition in seen.conditions), False
        changed, is_held = [], False
        for wanted in wanted_conditions(evidence, self._false_levels):
            there = seen.condition(wanted.type)
            condition = next_condition(wanted, there, now.wall_ms)
            if condition is None:
                continue
            turns_unknown = wanted.status == UNKNOWN and (there is None or there.status != UNKNOWN)
            if hold_reason is not None and turns_unknown:
                is_held = True
            else:
                changed.append(condition)
        return tuple(changed), (), is_held

    async def _send(
        self,
        node: str,
        seen: NodeSignals,
        changed: tuple[NodeCondition, ...],
        removed: tuple[str, ...],
    ) -> None:
        self._memory.note_conditions(are_there=True)
        written = await self._cluster.set_conditions(node, seen, changed, removed)
        self._nodes.acknowledge(node, written)
        self._since.pop(node, None)

    async def read(self, target: str) -> None:
        """See ``Reconciler``."""
        try:
            self._nodes.read(target, await self._cluster.node_signals(target))
        except StoreNotFound:
            self._nodes.read(target, None)

    def _observe_change(self, node: str, before: NodeSignals | None) -> None:
        """Count a change by another program: what was as we want it is so no more."""
        seen = self._nodes.get(node)
        if seen is None:
            self._foreign.pop(node, None)
            return
        evidence = self._evidence(node)
        if before is None or before.uid != seen.uid or evidence is None or self.dry_run:
            return
        # Changes that a follower sees are its leader's.
        if not self._leads:
            return
        now = self._clock()
        foreign = self._foreign.get(node)
        # In a conflict we write nothing, so each change is another one's.
        is_theirs = foreign is not None and foreign.is_conflict
        is_theirs = is_theirs or not self._differs(before, evidence, now)
        if is_theirs and self._differs(seen, evidence, now):
            foreign = self._foreign.setdefault(node, ForeignWrites())
            foreign.record_foreign_write(now.steady_ms / 1000)
            foreign.report(_log, f"conditions of node {node}")

    def _differs(self, seen: NodeSignals, evidence: NodeEvidence, now: Instant) -> bool:
        changed, removed, _ = self._changes(seen, evidence, now, None)
        return bool(changed or removed)

    def problems(self) -> Iterable[str]:
        """See ``Reconciler``."""
        for node, foreign in sorted(self._foreign.items()):
            if foreign.is_conflict:
                yield f"conflict: {foreign.writer.changes(f'conditions of node {node}')}"


def _rank(seen: NodeSignals, evidence: NodeEvidence) -> int:
    if evidence.faults:
        return _FIRST_RANK + evidence.faults[0].rank
    return _FIRST_RANK + MAX_RANK if seen.conditions else _NEW_RANK


def _shown(node: str, changed: Iterable[NodeCondition], removed: Iterable[str]) -> str:
    parts = [f"{condition.type}={condition.status} ({condition.reason})" for condition in changed]
    parts += [f"no {type_}" for type_ in removed]
    return f"{node}: {', '.join(parts)}"
