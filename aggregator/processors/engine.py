"""Runs the chains: the states of nodes, due times, withheld faults, and the persistent state.

No I/O and no clock of its own. An idle node costs nothing here: only nodes with faults have a
state, and only what is due is examined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from aggregator.processors.chains import ChainContext, process_device, process_node, process_switch
from aggregator.processors.separation_documents import SeparationDocuments
from aggregator.processors.state import POLICY, ProcessorState
from aggregator.processors.state_types import NO_DEVICE_STATE, NO_SWITCH_STATE, Occurrence, earliest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aggregator.cluster_documents.published_node import WithheldEvent, WithheldFault
    from aggregator.inputs.node_context import NodeContext
    from aggregator.plugin import View
    from contract.documents.cluster_device import DeviceRecord
    from contract.documents.node_info import NodeRecord
    from contract.documents.switch_info import SwitchRecord
    from service.clock import Instant
    from stores.base import Selection, WatchEvent


H = TypeVar("H")

_PRUNE_MS = 3_600_000


class PublicFaultProcessor(Protocol):
    """The first processor of the device chain (clusterd#3.2)."""

    def apply(self, node: str, record: DeviceRecord, now: Instant) -> DeviceRecord:
        """Return ``record`` with the public faults of ``node``; quick where there are none."""


class ProcessorEngine:
    """The chains with all their state.

    It is a ``DocumentPlugin``, ``Persistent`` and ``Viewed``; the pipeline calls ``advance``.
    ``node_context`` returns what is known of a node besides its documents and ``lost``.
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
        self.memory = ProcessorState()
        self.separation = self.memory.separation
        self.windows = self.memory.windows
        self.devices = self.memory.devices
        self.switches = self.memory.switches
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
            record = self._public.apply(node, record, now)
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
        self.memory.remember(self.devices, node, done.state, NO_DEVICE_STATE)
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
        quiet = not record.events and record.level != "PreSeparate"
        if quiet and node not in self.switches:
            return record
        state = self.switches.get(node, NO_SWITCH_STATE)
        context = ChainContext(self._context_of(node), controllers=self.controllers)
        done = process_switch(record, state, context, now.wall_ms)
        self.memory.remember(self.switches, node, done.state, NO_SWITCH_STATE)
        self._set_hidden(self.hidden_events, node, done.hidden)
        self._plan(("switch", node), done.due_ms, now)
        return done.record

    def node(
        self, node: str, record: NodeRecord | None, published: NodeRecord | None, _: Instant
    ) -> NodeRecord | None:
        """Return what is published of a node record, and of a node that fell silent."""
        if node not in self.lost and (record is None or (record.has_parts and not record.faults)):
            return record
        return process_node(record, published, self._context_of(node))

    def forget(self, kind: str, node: str) -> None:
        """Remove the state of a node whose document is gone."""
        if kind == "device":
            self.memory.remember(self.devices, node, NO_DEVICE_STATE, NO_DEVICE_STATE)
            self._set_hidden(self.hidden, node, ())
        elif kind == "switch":
            self.memory.remember(self.switches, node, NO_SWITCH_STATE, NO_SWITCH_STATE)
            self._set_hidden(self.hidden_events, node, ())
        self._due.pop((kind, node), None)

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that have a state."""
        return self.memory.nodes

    def _context_of(self, node: str) -> NodeContext:
        node_context = self._node_context(node)
        if node in self.lost:
            node_context = msgspec.structs.replace(node_context, lost=True)
        return node_context

    def _set_hidden(self, book: dict[str, tuple[H, ...]], node: str, hidden: tuple[H, ...]) -> None:
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
            self._due[key] = now.steady_ms + max(0, due_ms - now.wall_ms)

    # What time alone does.

    def advance(self, now: Instant) -> frozenset[str]:
        """Do what is due; return nodes to be judged again."""
        self.documents.advance(now.steady_ms)
        due = [key for key, at_ms in self._due.items() if at_ms <= now.steady_ms]
        for key in due:
            del self._due[key]
        nodes = {node for _, node in due} | self._again
        self._again.clear()
        if self._separation_due_ms is not None and self._separation_due_ms <= now.steady_ms:
            nodes |= self._separate(now)
            self.settle(now)
        return frozenset(nodes)

    def _separate(self, now: Instant) -> frozenset[str]:
        counted, nodes = self.windows.step(now.wall_ms)
        self.memory.to_keep |= nodes
        changed = self.separation.count(counted) | self.separation.release(now.wall_ms)
        if self._pruned_at_ms is None or self._pruned_at_ms + _PRUNE_MS <= now.steady_ms:
            self._pruned_at_ms = now.steady_ms
            self.separation.prune(now.wall_ms)
        return changed

    def settle(self, now: Instant) -> None:
        """Queue the new faults of judged nodes, and compute when something is due."""
        if self._new:
            self.windows.add(self._new)
            self.memory.to_keep |= {one.node for one in self._new}
            self._new.clear()
        self.memory.to_keep |= self.windows.set_back(now.wall_ms)
        self.separation.set_back(now.wall_ms)
        at_ms = earliest(self.windows.next_due_ms(), self.separation.next_release_ms())
        self._separation_due_ms = None
        if at_ms is not None:
            self._separation_due_ms = now.steady_ms + max(0, at_ms - now.wall_ms)
        if self.separation.counts:
            pruned_ms = now.steady_ms if self._pruned_at_ms is None else self._pruned_at_ms
            prune_ms = max(now.steady_ms, pruned_ms + _PRUNE_MS)
            self._separation_due_ms = earliest(self._separation_due_ms, prune_ms)

    def next_advance_ms(self) -> int | None:
        """Return the steady time of the next ``advance``."""
        return earliest(self._separation_due_ms, min(self._due.values(), default=None))

    # Documents of operators.

    @property
    def inputs(self) -> tuple[Selection, ...]:
        """What is watched for this in every store that is read."""
        return self.documents.inputs

    @property
    def listed(self) -> bool:
        """Whether every store has listed its documents of manual separation; before, a separated
        chip may look free.
        """
        return self.documents.listed

    def observe(
        self, source: int, selection: Selection, event: WatchEvent, now: Instant
    ) -> frozenset[str]:
        """Apply an event of the store with this number; return nodes to be judged again."""
        was = self.separation.policy
        nodes = self.documents.observe(source, selection, event, now.wall_ms)
        policy = self.separation.policy
        if policy != was:
            self.memory.to_keep.add(POLICY)
            if policy.enabled != was.enabled:
                nodes |= frozenset(self.devices)
            if not policy.enabled:
                self.memory.to_keep |= {one.node for one in self.windows.waiting}
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
        return self.nodes

    def views(self) -> tuple[View, ...]:
        """Return the views to show now."""
        return self.documents.views()

    # What must not be forgotten.

    def pop_changed(self) -> frozenset[str]:
        """Return the buckets whose text changed since the last call."""
        return self.memory.pop_changed()

    def text(self, bucket: str) -> str | None:
        """Return the text of a bucket."""
        return self.memory.text(bucket)

    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        """Restore the state of an earlier leader; return what could not be read."""
        for book in (self.hidden, self.hidden_events, self._due):
            book.clear()
        self._again |= self.nodes | self.separation.chips.keys()
        problems = self.memory.restore(texts, now.wall_ms)
        before, self._restored = self._restored, hash(frozenset(texts.items()))
        self.documents.follow_up(is_news=self._restored != before)
        if self.documents.policy is not None:
            self._again |= self.separation.set_policy(self.documents.policy)
        self._again |= self.nodes | self.separation.chips.keys()
        self.settle(now)
        return problems
