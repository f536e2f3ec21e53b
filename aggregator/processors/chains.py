"""Run the chains of ``docs/spec/clusterd.md#3.1``: their order, and what surrounds them.

Each chain is a pure function over one node (``process_device``, ``process_switch``,
``process_node``): record and state go in, record and next state come out, with what was withheld
and the wall time at which time alone changes something. ``ProcessorEngine`` has the states of all
nodes, the due times, the withheld faults and the persistent state. No I/O and no clock of its own.
An idle node costs nothing here: only nodes with faults have a state, and only what is due is
examined. Public faults are in the record already; relation faults belong to the view of jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from typing_extensions import override

from aggregator.cluster_documents.published_node import WithheldEvent, WithheldFault
from aggregator.inputs.node_context import NodeContext
from aggregator.plugin import DocumentPlugin, Persistent, Viewed
from aggregator.processors.custom_filter import (
    filter_device,
    filter_switch,
    job_filters,
    next_change_ms,
)
from aggregator.processors.frequent_fault_separation import new_faults
from aggregator.processors.record_edits import list_recovering, separate, unlisted
from aggregator.processors.separation_documents import SeparationDocuments
from aggregator.processors.state import POLICY, ProcessorState
from aggregator.processors.state_types import (
    NO_DEVICE_STATE,
    NO_SWITCH_STATE,
    DeviceState,
    Occurrence,
    SwitchState,
    earliest,
    receive,
)
from aggregator.processors.uce_accompany import accompany
from contract.documents.cluster_device import DeviceRecord, pre_separate_device
from contract.documents.cluster_info import lost_node, pre_separate_node, pre_separate_switch
from contract.documents.switch_info import SwitchRecord, event_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aggregator.plugin import View
    from contract.documents.node_info import NodeRecord
    from service.clock import Instant
    from stores.base import Selection, WatchEvent


class ChainContext(msgspec.Struct, frozen=True):
    """What a chain needs besides the record.

    ``separated`` are the node's chips in manual separation. ``counting``: new faults count.
    ``controllers``: MindIE jobs whose controller is subscribed.
    """

    node_context: NodeContext
    separated: frozenset[str] = frozenset()
    counting: bool = False
    controllers: frozenset[str] = frozenset()


class DeviceResult(msgspec.Struct, frozen=True):
    """The device record after the chain. ``due_ms``: when time alone changes something (wall)."""

    record: DeviceRecord
    state: DeviceState
    hidden: tuple[WithheldFault, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()
    due_ms: int | None = None


class SwitchResult(msgspec.Struct, frozen=True):
    """The switch record after the chain. ``due_ms``: when time alone changes something (wall)."""

    record: SwitchRecord
    state: SwitchState = NO_SWITCH_STATE
    hidden: tuple[WithheldEvent, ...] = ()
    due_ms: int | None = None


def process_device(
    node: str, record: DeviceRecord, state: DeviceState, context: ChainContext, now_ms: int
) -> DeviceResult:
    """Apply custom filter, UCE-accompany, pre-separate, increment and manual separation.

    A chip whose fault is withheld is among those that recover, unless it is in another list.
    """
    # Before any filter: a fault that is withheld keeps the time of its arrival.
    received = receive(((f.chip, f.code) for f in record.faults), state.received, now_ms)
    # Without faults the annotations of jobs change nothing, and most nodes have none.
    wanted = job_filters(context.node_context, context.controllers) if record.faults else []
    record, filtered = filter_device(record, received, wanted, now_ms)
    accompanied = accompany(record, state, now_ms)
    record, hidden = accompanied.record, (*filtered, *accompanied.hidden)
    # Before pre-separation and isolation put chips into other lists: only these lost their list by
    # the withheld fault.
    nowhere = unlisted(record, {withheld.fault.chip for withheld in hidden})
    record = pre_separate_device(record, context.node_context.used)
    seen: dict[str, dict[str, str]] = {}
    occurrences: tuple[Occurrence, ...] = ()
    if context.counting:
        seen, occurrences = new_faults(node, record, state, received, context.node_context)
    record = separate(record, context.separated)
    return DeviceResult(
        list_recovering(record, nowhere),
        DeviceState(received, accompanied.uce, seen, accompanied.companions),
        hidden,
        occurrences,
        earliest(accompanied.due_ms, next_change_ms(filtered)),
    )


def process_switch(
    record: SwitchRecord, state: SwitchState, context: ChainContext, now_ms: int
) -> SwitchResult:
    """Apply custom filter and pre-separate."""
    keys = {event_key(event) for event in record.events}
    # ``min``: after a clock was set back a fault would be withheld until the old time comes again.
    received = {key: min(state.received.get(key, now_ms), now_ms) for key in sorted(keys)}
    state = SwitchState(received)
    wanted = job_filters(context.node_context, context.controllers)
    record, hidden = filter_switch(record, state, wanted, now_ms)
    record = pre_separate_switch(record, _in_use(context.node_context))
    return SwitchResult(record, state, hidden, next_change_ms(hidden))


def process_node(
    record: NodeRecord | None, published: NodeRecord | None, node_context: NodeContext
) -> NodeRecord | None:
    """Apply pre-separate; a node that fell silent is unhealthy whatever it reported last.

    ``published`` is what is published of it now. Return ``None`` where there is nothing to publish.
    """
    # Generation B of node-info has neither faults nor a status (``NodeRecord.has_parts``), so
    # nothing of it is published.
    if record is not None and not record.has_parts:
        record = None
    if node_context.lost:
        return lost_node(published if record is None else record)
    return None if record is None else pre_separate_node(record, _in_use(node_context))


def _in_use(node_context: NodeContext) -> bool | None:
    # Three states: until pods are listed, nothing is known about the use of chips.
    return None if node_context.used is None else bool(node_context.used)


H = TypeVar("H")

# Counters live 720 h (clusterd#3.9), so an hour more or less is of no importance.
_PRUNE_MS = 3_600_000


class PublicFaultProcessor(Protocol):
    """The first processor of the device chain (clusterd#3.2)."""

    def add_public_faults(self, node: str, record: DeviceRecord, now: Instant) -> DeviceRecord:
        """Return ``record`` with the public faults of ``node``; quick where there are none."""


class ProcessorEngine(DocumentPlugin, Viewed, Persistent):
    """The chains with all their state.

    The pipeline calls ``advance``. ``node_context`` returns what is known of a node besides its
    documents and ``lost``.
    """

    name = "processing"

    def __init__(
        self,
        stores: int,
        node_context: Callable[[str], NodeContext],
        public: PublicFaultProcessor | None = None,
    ) -> None:
        self.lost: frozenset[str] = frozenset()
        """Nodes that fell silent and are published so."""
        self.controllers: frozenset[str] = frozenset()
        """MindIE jobs whose controller listens."""
        self.state = ProcessorState()
        self.separation = self.state.separation
        self.windows = self.state.windows
        self.devices = self.state.devices
        self.switches = self.state.switches
        self.documents = SeparationDocuments(self.separation, stores)
        self.hidden: dict[str, tuple[WithheldFault, ...]] = {}
        self.hidden_events: dict[str, tuple[WithheldEvent, ...]] = {}
        self.altered: set[str] = set()
        """Nodes of which something was hidden or shown again since this was cleared."""
        self._node_context = node_context
        self._public = public
        self._new: list[Occurrence] = []
        self._due: dict[tuple[str, str], int] = {}
        self._again: set[str] = set()
        self._separation_due_ms: int | None = None
        self._pruned_at_ms: int | None = None
        self._restored: int | None = None
        """Hash of what was restored last."""

    def device(
        self, node: str, record: DeviceRecord | None, _: DeviceRecord | None, now: Instant
    ) -> DeviceRecord | None:
        """Return what is published of a device record."""
        if record is None:
            return None
        if self._public is not None:
            record = self._public.add_public_faults(node, record, now)
        # The path of nearly every node: no state, no look at its pods.
        if not record.faults and node not in self.devices and node not in self.separation.chips:
            return record
        state = self.devices.get(node, NO_DEVICE_STATE)
        context = ChainContext(
            self._context_of(node),
            self.separation.of(node),
            self.separation.policy.enabled,
            self.controllers,
        )
        done = process_device(node, record, state, context, now.wall_ms)
        self.state.set_state(self.devices, node, done.state, NO_DEVICE_STATE)
        self._set_hidden(self.hidden, node, done.hidden)
        self._plan(("device", node), done.due_ms, now)
        self._new += done.occurrences
        return done.record

    def switch(
        self, node: str, record: SwitchRecord | None, _: SwitchRecord | None, now: Instant
    ) -> SwitchRecord | None:
        """Return what is published of a switch record."""
        if record is None:
            return None
        # A level PreSeparate without events still depends on the pods of the node (clusterd#3.8).
        quiet = not record.events and record.level != "PreSeparate"
        if quiet and node not in self.switches:
            return record
        state = self.switches.get(node, NO_SWITCH_STATE)
        context = ChainContext(self._context_of(node), controllers=self.controllers)
        done = process_switch(record, state, context, now.wall_ms)
        self.state.set_state(self.switches, node, done.state, NO_SWITCH_STATE)
        self._set_hidden(self.hidden_events, node, done.hidden)
        self._plan(("switch", node), done.due_ms, now)
        return done.record

    def node(
        self, node: str, record: NodeRecord | None, published: NodeRecord | None, _: Instant
    ) -> NodeRecord | None:
        """Return what is published of a node record, and of a node that fell silent."""
        # Pre-separation judges faults only, so a node without any is published as it is.
        if node not in self.lost and (record is None or (record.has_parts and not record.faults)):
            return record
        return process_node(record, published, self._context_of(node))

    def forget(self, kind: str, node: str) -> None:
        """Remove the state of a node whose document is gone."""
        if kind == "device":
            self.state.set_state(self.devices, node, NO_DEVICE_STATE, NO_DEVICE_STATE)
            self._set_hidden(self.hidden, node, ())
        elif kind == "switch":
            self.state.set_state(self.switches, node, NO_SWITCH_STATE, NO_SWITCH_STATE)
            self._set_hidden(self.hidden_events, node, ())
        self._due.pop((kind, node), None)

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that have a state."""
        return self.state.nodes

    def _context_of(self, node: str) -> NodeContext:
        node_context = self._node_context(node)
        if node in self.lost:
            node_context = msgspec.structs.replace(node_context, lost=True)
        return node_context

    def _set_hidden(self, book: dict[str, tuple[H, ...]], node: str, hidden: tuple[H, ...]) -> None:
        # Compared by value: a chain makes new tuples in each step.
        if book.get(node, ()) == hidden:
            return
        self.altered.add(node)
        if hidden:
            book[node] = hidden
        else:
            del book[node]

    def _plan(self, key: tuple[str, str], due_ms: int | None, now: Instant) -> None:
        if due_ms is None:
            self._due.pop(key, None)
        else:
            # Wall times are planned as steady ones, so a clock that is set does not fire or delay
            # them.
            self._due[key] = now.steady_ms + max(0, due_ms - now.wall_ms)

    # What time alone does.

    def advance(self, now: Instant) -> frozenset[str]:
        """Do what is due; return nodes to be judged again."""
        self.documents.advance(now.steady_ms)
        due = [key for key, at_ms in self._due.items() if at_ms <= now.steady_ms]
        for key in due:
            del self._due[key]
        # Device and switch of a node have due times of their own, and the node is judged once.
        nodes = {node for _, node in due} | self._again
        self._again.clear()
        if self._separation_due_ms is not None and self._separation_due_ms <= now.steady_ms:
            nodes |= self._separate(now)
            self.settle(now)
        return frozenset(nodes)

    def _separate(self, now: Instant) -> frozenset[str]:
        counted, nodes = self.windows.step(now.wall_ms)
        self.state.changed |= nodes
        changed = self.separation.count(counted) | self.separation.release(now.wall_ms)
        if self._pruned_at_ms is None or self._pruned_at_ms + _PRUNE_MS <= now.steady_ms:
            self._pruned_at_ms = now.steady_ms
            self.separation.prune(now.wall_ms)
        return changed

    def settle(self, now: Instant) -> None:
        """Queue the new faults of judged nodes, and compute when something is due."""
        if self._new:
            self.windows.add(self._new)
            self.state.changed |= {occurrence.node for occurrence in self._new}
            self._new.clear()
        # A clock that was set back would keep faults waiting for as long as
        # it was ahead.
        self.state.changed |= self.windows.set_back(now.wall_ms)
        self.separation.set_back(now.wall_ms)
        at_ms = earliest(self.windows.next_due_ms(), self.separation.next_release_ms())
        self._separation_due_ms = None
        if at_ms is not None:
            self._separation_due_ms = now.steady_ms + max(0, at_ms - now.wall_ms)
        if self.separation.counts:
            pruned_ms = now.steady_ms if self._pruned_at_ms is None else self._pruned_at_ms
            # ``max``: a prune that is overdue is planned for now, never for the past.
            prune_ms = max(now.steady_ms, pruned_ms + _PRUNE_MS)
            self._separation_due_ms = earliest(self._separation_due_ms, prune_ms)

    def next_advance_ms(self) -> int | None:
        """Return the steady time of the next ``advance``."""
        return earliest(self._separation_due_ms, min(self._due.values(), default=None))

    # Documents of operators.

    @property
    @override
    def inputs(self) -> tuple[Selection, ...]:
        return self.documents.inputs

    @property
    def listed(self) -> bool:
        """Whether every store has listed its documents of manual separation; before, a separated
        chip may look free.
        """
        return self.documents.listed

    @override
    def observe(
        self, source: int, selection: Selection, event: WatchEvent, now: Instant
    ) -> frozenset[str]:
        was = self.separation.policy
        nodes = self.documents.observe_document(source, selection, event, now.wall_ms)
        policy = self.separation.policy
        if policy != was:
            self.state.changed.add(POLICY)
            # Only then are new faults counted or not; other members of a policy change no record.
            if policy.enabled != was.enabled:
                nodes |= frozenset(self.devices)
            # A policy that is off forgets what it counted, and so what still waits to be counted.
            if not policy.enabled:
                self.state.changed |= {occurrence.node for occurrence in self.windows.waiting}
                self.windows.clear()
        self.settle(now)
        return nodes

    def set_controllers(self, controllers: frozenset[str]) -> frozenset[str]:
        """Replace the MindIE jobs whose controllers are subscribed; return nodes to be judged
        again.
        """
        if controllers == self.controllers:
            return frozenset()
        self.controllers = controllers
        # All nodes with a state: a job is not looked up by its MindIE id here.
        return self.nodes

    @override
    def views(self) -> tuple[View, ...]:
        """Return the views to show now."""
        return self.documents.views()

    # What must not be forgotten.

    @override
    def pop_changed(self) -> frozenset[str]:
        return self.state.pop_changed()

    @override
    def text(self, bucket: str) -> str | None:
        return self.state.text(bucket)

    @override
    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        """Restore the state of an earlier leader; return what could not be read."""
        # They are of our own computation and are made again by the next step.
        for book in (self.hidden, self.hidden_events, self._due):
            book.clear()
        # Twice, before and after: nodes that only the old state had are shown
        # otherwise now, too.
        self._again |= self.nodes | self.separation.chips.keys()
        problems = self.state.restore_texts(texts, now.wall_ms)
        # A hash, because the texts may be 32 buckets of up to 800 KB.
        before, self._restored = self._restored, hash(frozenset(texts.items()))
        self.documents.follow_up(is_news=self._restored != before)
        if self.documents.policy is not None:
            self._again |= self.separation.set_policy(self.documents.policy)
        self._again |= self.nodes | self.separation.chips.keys()
        self.settle(now)
        return problems
