"""Why a node and its chips are published as they are: ``GET /api/v1/nodes/{node}``.

It compares what the node said with what is published and names what made the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.intake import newest
from aggregator.status import NodeStatus
from contract.catalogue import shipped
from contract.levels import ChipLevel
from contract.node_info import render_node_entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aggregator.facts import Facts
    from aggregator.pipeline import Pipeline
    from contract.cluster_device import CodeFault, DeviceRecord
    from contract.node_info import NodeRecord

_MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU.value
_PRE_SEPARATE = ChipLevel.PRE_SEPARATE_NPU.value
_PUBLIC = "PublicFault"


class ExplainedFault(msgspec.Struct, frozen=True):
    """A code on a chip. ``said`` and ``published`` are its levels, ``null`` where there is none."""

    code: str
    name: str | None
    fault_type: str
    said: str | None
    published: str | None
    because: str


class ExplainedChip(msgspec.Struct, frozen=True):
    """A chip. ``said`` and ``published``: the list it is in (``available``, ``unhealthy``,
    ``network_unhealthy``, ``recovering``; several with a comma between, ``none`` where it is in
    none).
    """

    chip: str
    said: str
    published: str
    used_by_pod: bool | None
    faults: tuple[ExplainedFault, ...]
    because: tuple[str, ...]


class Explanation(msgspec.Struct, frozen=True):
    """``said_status`` is the word of the node's own node-info, ``null`` where it said none.

    ``documents`` are those that hold the node, with whether every store has them as they are now.
    ``because`` is about the node as a whole. ``chips``: those that are not simply available.
    """

    node: NodeStatus
    said_status: str | None
    documents: dict[str, bool]
    because: tuple[str, ...]
    chips: tuple[ExplainedChip, ...]


def explain(
    pipeline: Pipeline, status: NodeStatus, facts: Facts, acknowledged: Mapping[str, bool]
) -> Explanation:
    """Why the node of ``status`` is published as it is.

    ``acknowledged``: document to whether every store that is published to has its newest value.
    """
    node = status.node
    report = newest(pipeline.device.inboxes, node)
    server = newest(pipeline.node.inboxes, node)
    entry = pipeline.device.entries.get(node)
    documents = tuple(
        lane.kind.document(home)
        for lane in pipeline.lanes
        if (home := lane.shelf.home(node)) is not None
    )
    said = None if report is None else report.record
    published = None if entry is None else entry.record
    return Explanation(
        node=status,
        said_status=None if server is None else server.record.status,
        documents={name: acknowledged.get(name, False) for name in documents},
        because=tuple(
            _about_node(pipeline, status, None if server is None else server.record, facts)
        ),
        chips=tuple(_chips(said, published, facts)),
    )


_STATES = {
    "reported": "its newest device-info counts",
    "kept": "its newest device-info is refused; the last good one stays in force",
    "rejected": "its device-info was never a good one",
    "earlier": "nothing was heard of it yet; it is published as an earlier run did",
    "deleted": "its device-info was deleted; it is published healthy and dropped soon",
    "unreported": "it has no device-info",
}
_HEARTBEATS = {
    "lost": "its heartbeat fell silent: it is lost",
    "silent": "its heartbeat fell silent, with so many others that nobody is published as lost",
}


def _about_node(
    pipeline: Pipeline, status: NodeStatus, server: NodeRecord | None, facts: Facts
) -> Iterator[str]:
    yield _STATES[status.state]
    for one in status.rejected:
        yield f"its {one.kind} document in {one.store} is refused: {one.reason}"
    if status.faults_problem is not None:
        yield f"its faults cannot be read: {status.faults_problem}"
    for source in pipeline.sources:
        if source.interrupted is not None:
            yield f"{source.url} cannot be read, what it said last counts: {source.interrupted}"
    if status.heartbeat in _HEARTBEATS:
        yield _HEARTBEATS[status.heartbeat]
    entry = pipeline.node.entries.get(status.node)
    if entry is None or server is None or facts.lost:
        return
    same = msgspec.structs.replace(server, update_time_ms=entry.stamp)
    if render_node_entry(status.node, same) != entry.text and entry.record.status != server.status:
        use = "pods use its chips" if facts.used else "no pod uses its chips"
        yield f"its status {server.status} is published as {entry.record.status}: {use}"


def _chips(
    said: DeviceRecord | None, published: DeviceRecord | None, facts: Facts
) -> Iterator[ExplainedChip]:
    chips = {chip for record in (said, published) if record is not None for chip in record.chips}
    for chip in sorted(chips):
        lists = _lists(said, chip), _lists(published, chip)
        faults = tuple(_faults(said, published, chip))
        if lists == ("available", "available") and not faults:
            continue
        used = None if facts.used is None else chip in facts.used
        because = tuple(_about_chip(lists, faults, used))
        yield ExplainedChip(chip, *lists, used, faults, because)


def _lists(record: DeviceRecord | None, chip: str) -> str:
    if record is None:
        return "none"
    names = ("available", "unhealthy", "network_unhealthy", "recovering")
    return ",".join(name for name in names if chip in getattr(record, name)) or "none"


def _faults(
    said: DeviceRecord | None, published: DeviceRecord | None, chip: str
) -> Iterator[ExplainedFault]:
    catalogue = shipped()
    before, after = _by_code(said, chip), _by_code(published, chip)
    for key in sorted(before.keys() | after.keys()):
        fault_type, code = key
        one, other = before.get(key), after.get(key)
        yield ExplainedFault(
            code=code,
            name=catalogue.name_of(code),
            fault_type=fault_type,
            said=None if one is None else one.level,
            published=None if other is None else other.level,
            because=_why(fault_type, one, other),
        )


def _by_code(record: DeviceRecord | None, chip: str) -> dict[tuple[str, str], CodeFault]:
    faults = () if record is None else record.faults
    return {(fault.fault_type, fault.code): fault for fault in faults if fault.chip == chip}


def _why(fault_type: str, said: CodeFault | None, published: CodeFault | None) -> str:
    if said is not None and published is not None:
        return "the node says so"
    if published is None:
        return "the node says so; it is held back from readers for now"
    if fault_type == _PUBLIC:
        return "a public fault"
    if published.code == _MANUAL:
        return "isolated by the policy of the cluster; an operator or time releases it"
    return "an earlier run published it"


def _about_chip(
    lists: tuple[str, str], faults: tuple[ExplainedFault, ...], used: bool | None
) -> Iterator[str]:
    said, published = lists
    if said == published:
        yield f"the node has it as {said}"
    else:
        yield f"the node has it as {said}, it is published as {published}"
    if any(fault.published == _PRE_SEPARATE for fault in faults):
        yield {
            None: f"{_PRE_SEPARATE}: nobody knows whether a pod uses it",
            True: f"{_PRE_SEPARATE}: a pod uses it, so it is not unhealthy until that ends",
            False: f"{_PRE_SEPARATE}: no pod uses it, so it is unhealthy",
        }[used]
