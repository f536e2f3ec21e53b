"""Conditions and taints for every scheduler: made of what the aggregator knows of each node.

Everything that changes something about a node calls ``judge``; the watch of Nodes has a reader of
its own for what these have now. Loaded only where an option is on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

from typing_extensions import override

from aggregator.agent_reports.blindness import blind_statuses
from aggregator.liveness.lost_nodes import LONG_AGO_MS
from aggregator.plugin import Led
from aggregator.scheduler_signals import driver_pods
from aggregator.scheduler_signals.condition_reconciler import NodeConditions
from aggregator.scheduler_signals.device_taint_reconciler import DeviceTaintReconciler
from aggregator.scheduler_signals.driver_pods import DriverPods
from aggregator.scheduler_signals.node_evidence import NodeEvidence, faults_of
from aggregator.scheduler_signals.observed_nodes import KIND, ObservedNodes
from aggregator.scheduler_signals.taint_budget import TaintBudget
from aggregator.scheduler_signals.taint_reconciler import NodeTaints
from aggregator.scheduler_signals.writer import SignalWriter
from stores.cluster import SharedReader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from aggregator.config import AggregatorConfiguration
    from aggregator.liveness.lost_nodes import ObservedHeartbeat
    from aggregator.liveness.monitor import HeartbeatMonitor
    from aggregator.merge.pipeline import Pipeline
    from aggregator.scheduler_signals.reconciler import Reconciler
    from aggregator.scheduler_signals.signal_memory import RuleMemory, SignalMemory
    from contract.pages.scheduler_signals import SignalStatus
    from service.clock import Clock
    from service.election.leadership import Leadership
    from stores.base import Beat
    from stores.cluster import Cluster
    from stores.device_taints import DeviceTaints

SETTLE_SECONDS = 15.0
"""How long a new leader makes nothing stricter: three intervals of heartbeats (``noded#7.10``)."""
_START_PERIOD_SECONDS = 0.2
"""How often it is checked whether the start is over."""


class SchedulerSignals(Led):
    """The options that are on. ``cluster`` is that of the API server whose Nodes are written."""

    def __init__(
        self,
        configuration: AggregatorConfiguration,
        cluster: Cluster,
        device_taints: DeviceTaints | None,
        pipeline: Pipeline,
        monitor: HeartbeatMonitor,
        leadership: Leadership,
        clock: Clock,
        memory: SignalMemory,
        rule_memory: RuleMemory,
    ) -> None:
        self.cluster = cluster
        self._pipeline = pipeline
        self._monitor = monitor
        self._clock = clock
        self._lost: frozenset[str] = frozenset()
        self._is_listed = False
        self._blind: dict[tuple[str, str], bool | None] = {}
        """``blind`` of the last heartbeat, by place and node."""
        self.nodes = ObservedNodes()
        conditions = configuration.node_conditions
        reconcilers: list[Reconciler] = []
        if conditions.enabled:
            reconcilers.append(
                NodeConditions(
                    cluster,
                    self.nodes,
                    memory,
                    self.evidence,
                    conditions.false_levels,
                    clock,
                    dry_run=conditions.dry_run,
                )
            )
        shared = TaintBudget()
        self._pods: DriverPods | None = None
        if configuration.node_taints.enabled:
            # A dry run takes no room from what is written.
            budget = TaintBudget() if configuration.node_taints.dry_run else shared
            self._pods = DriverPods(self._observe_pods)
            taints = NodeTaints(
                cluster,
                self.nodes,
                self._pods,
                memory,
                self.evidence,
                lambda: len(pipeline.nodes),
                configuration.node_taints,
                budget,
                clock,
            )
            budget.plan_nodes = lambda: self._writer.plan_again(taints, taints.capped)
            reconcilers.append(taints)
        self._device_taints: DeviceTaintReconciler | None = None
        if configuration.device_taints.enabled:
            assert device_taints is not None, "the configuration demands an API server"
            budget = TaintBudget() if configuration.device_taints.dry_run else shared
            self._device_taints = option = DeviceTaintReconciler(
                device_taints,
                configuration.device_taints,
                self.evidence,
                lambda: pipeline.nodes,
                clock,
                rule_memory,
                budget,
                plan_again=lambda names: self._writer.plan_again(option, names),
            )
            budget.plan_chips = lambda: self._writer.plan_again(option, option.rules.most_urgent())
            reconcilers.append(self._device_taints)
        self._writer = SignalWriter(reconcilers, leadership, clock, self._why_held)
        self.nodes.on_change.append(lambda node, _: self._writer.judge((node,)))

    @property
    def readers(self) -> tuple[tuple[str, SharedReader[Any]], ...]:
        """Readers of watches that exist anyway, by the kind that they read."""
        nodes = ("nodes", SharedReader(KIND, self.nodes.apply_node_event))
        if self._pods is None:
            return (nodes,)
        return (nodes, ("pods", SharedReader(driver_pods.KIND, self._pods.apply_pod_event)))

    def _observe_pods(self, nodes: set[str]) -> None:
        # No nodes: pods are listed for the first time.
        self._writer.judge(nodes or tuple(self.nodes))

    @override
    async def set_leading(self, leading: bool) -> None:
        await self._writer.set_leading(leading)

    async def run(self, is_past_start: Callable[[], bool]) -> NoReturn:
        """Write until cancelled, once the start is over (``Readiness.is_past_start``).

        To plan ten thousand Nodes and to read their devices would delay the first publication.
        """
        # The start also ends by time, so there is no event to wait for.
        while not is_past_start():  # noqa: ASYNC110
            await asyncio.sleep(_START_PERIOD_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            if self._device_taints is not None:
                tasks.create_task(self._device_taints.run(), name="devices and rules")
            tasks.create_task(self._writer.run(), name="write conditions and taints")
        raise AssertionError("the tasks never end")

    def judge(self, nodes: Iterable[str]) -> None:
        """Observe that documents of these nodes, or what is published of them, has changed."""
        nodes = set(nodes)
        for source in self._pipeline.sources:
            for watch in source.watches:
                # Others clear the set after this.
                nodes |= watch.own_key_changed
        lost = frozenset(self._monitor.lost_nodes.lost)
        nodes |= lost ^ self._lost
        self._lost = lost
        is_listed = all(source.listed for source in self._pipeline.sources)
        if is_listed and not self._is_listed:
            # Until now nothing was known well enough of nodes that are in one store only.
            nodes.update(self.nodes)
        self._is_listed = is_listed
        if nodes:
            self._writer.judge(nodes)

    def observe_beats(self, place: str, beats: Iterable[Beat]) -> None:
        """Observe the heartbeats of a store: agents that begin, and what their chips answer."""
        changed = []
        for beat in beats:
            key = place, beat.node
            if key not in self._blind or self._blind[key] != beat.blind:
                self._blind[key] = beat.blind
                changed.append(beat.node)
        if changed:
            self._writer.judge(changed)

    def evidence(self, node: str) -> NodeEvidence | None:
        """Return what is known of a node; ``None`` while it is not confirmed by a report."""
        pipeline, heartbeats = self._pipeline, self._heartbeats(node)
        entries = [
            (table, table.entries[node])
            for table in pipeline.tables
            if node in table.entries and node not in table.healing
        ]
        # What an earlier run published may lack faults, and a store may not be listed yet.
        if not self._is_listed or not all(entry.whole for _, entry in entries):
            return None
        if not entries and not heartbeats:
            return NodeEvidence(is_gone=True)
        published = pipeline.published(node)
        device = published.device if any(t is pipeline.device for t, _ in entries) else None
        blind = next((beat.blind for beat in heartbeats if beat.blind is not None), None)
        lost_ms = self._monitor.lost_nodes.lost.get(node)
        return NodeEvidence(
            faults=faults_of(published) if entries else (),
            chips=None if device is None else device.chips,
            has_parts=any(table is pipeline.node for table, _ in entries),
            is_watched=bool(heartbeats),
            blind=blind_statuses(pipeline, node, blind),
            is_silent=lost_ms is not None,
            silent_since_ms=self._wall_ms(lost_ms),
        )

    def _heartbeats(self, node: str) -> list[ObservedHeartbeat]:
        """Return the heartbeats of a node, the newest first."""
        listings = self._monitor.listings.values()
        seen = (listing.heartbeats.get(node) for listing in listings)
        beats = [beat for beat in seen if beat is not None]
        return sorted(beats, key=lambda beat: beat.changed_at_ms, reverse=True)

    def _wall_ms(self, steady_ms: int | None) -> int | None:
        # Only the leader that saw a node fall silent knows when.
        if steady_ms is None or steady_ms <= LONG_AGO_MS:
            return None
        now = self._clock()
        return now.wall_ms - (now.steady_ms - steady_ms)

    def _why_held(self, leads_since_ms: int) -> str | None:
        monitor = self._monitor
        unread = {unread.text for unread in monitor.unread_stores}
        return why_held(
            leads_for_ms=self._clock().steady_ms - leads_since_ms,
            silence_alarm=monitor.lost_nodes.brake is not None,
            unread=unread,
        )

    def problems(self) -> tuple[str, ...]:
        """Return what ``/readyz`` warns of."""
        return self._writer.problems()

    def statuses(self) -> tuple[SignalStatus, ...]:
        """Return how it stands with each option."""
        return self._writer.statuses()


def why_held(
    *, leads_for_ms: int | None, silence_alarm: bool, unread: Collection[str]
) -> str | None:
    """Return why no condition turns ``Unknown`` and no taint gets stricter; ``None`` if they may.

    ``leads_for_ms`` is how long this process has led, ``None`` where it does not.
    ``silence_alarm``: so many nodes fell silent at once that none is published lost
    (``liveness/lost_nodes.py``). ``unread`` are the places whose heartbeats were not listed for
    long.
    """
    if leads_for_ms is None:
        return "this aggregator does not lead"
    if leads_for_ms < SETTLE_SECONDS * 1000:
        return f"this aggregator has led for less than {SETTLE_SECONDS:.0f} s"
    if silence_alarm:
        return "too many nodes fell silent at once"
    if unread:
        return f"heartbeats cannot be read: {', '.join(sorted(unread))}"
    return None
