"""The chains in upstream's order (``docs/spec/clusterd.md#3.1``), each pure and over one node.

Public faults are in the record already; relation faults belong to the view of jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.cluster_documents.published_node import WithheldEvent, WithheldFault
from aggregator.inputs.node_context import NodeContext
from aggregator.processors.custom_filter import (
    filter_device,
    filter_switch,
    job_filters,
    next_change_ms,
)
from aggregator.processors.manual_separation import new_faults
from aggregator.processors.record_edits import list_recovering, separate, unlisted
from aggregator.processors.state_types import (
    NO_SWITCH_STATE,
    DeviceState,
    Occurrence,
    SwitchState,
    earliest,
    receive,
)
from aggregator.processors.uce_accompany import accompany
from contract.documents.cluster_device import DeviceRecord, pre_separate_device
from contract.documents.cluster_node import lost_node, pre_separate_node
from contract.documents.cluster_switch import pre_separate_switch
from contract.documents.switch_info import SwitchRecord, event_key

if TYPE_CHECKING:
    from contract.documents.node_info import NodeRecord


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
    received = receive(((f.chip, f.code) for f in record.faults), state.received, now_ms)
    wanted = job_filters(context.node_context, context.controllers) if record.faults else []
    record, filtered = filter_device(record, received, wanted, now_ms)
    accompanied = accompany(record, state, now_ms)
    record, hidden = accompanied.record, (*filtered, *accompanied.hidden)
    nowhere = unlisted(record, {one.fault.chip for one in hidden})
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
    if record is not None and not record.has_parts:
        record = None
    if node_context.lost:
        return lost_node(published if record is None else record)
    return None if record is None else pre_separate_node(record, _in_use(node_context))


def _in_use(node_context: NodeContext) -> bool | None:
    return None if node_context.used is None else bool(node_context.used)
