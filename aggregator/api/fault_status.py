"""Every fault that holds, for people and programs: what is published, and what is held back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.agent_reports.fault_answers import ChipFaultDetails
from aggregator.processors.record_edits import PUBLIC_FAULT
from aggregator.processors.state_types import FILTER, NO_DEVICE_STATE, NO_SWITCH_STATE
from contract.codes.catalogue import shipped
from contract.codes.levels import ChipLevel
from contract.documents.switch_info import event_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aggregator.merge.pipeline import Pipeline
    from contract.documents.cluster_device import CodeFault
    from contract.documents.switch_info import SwitchEvent, SwitchRecord

_MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU.value
_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: a later time is none, and may be more than JSON can carry."""


class FaultStatus(msgspec.Struct, frozen=True):
    """One code on one chip: of the node, of others (``fault_type`` ``PublicFault``), or of the
    policy of the cluster (code ``ManuallySeparateNPU``).

    ``severity`` and ``device_fault`` are those of the node's agent (``severity_source`` ``agent``),
    and the ``catalogue``'s where it gives none: ``null`` for what that does not know.
    ``raised_at_ms`` is its source's time (``null`` where it gave none), ``received_at_ms`` since
    when an aggregator knows of it, over restarts (``null`` where that is not known); both epoch
    milliseconds.

    ``hidden`` says why it is not published: ``filter`` (its job rides it out), ``accompanies`` (it
    only came along with a UCE fault) or ``undecided`` (it may have); ``hidden_until_ms`` when that
    ends by time alone.
    """

    node: str
    chip: str
    code: str
    name: str | None
    level: str
    severity: str | None
    device_fault: bool | None
    severity_source: str
    fault_type: str
    raised_at_ms: int | None
    received_at_ms: int | None
    hidden: str | None = None
    hidden_until_ms: int | None = None


class SwitchFaultStatus(msgspec.Struct, frozen=True):
    """One event of an on-board switch; times and ``hidden`` as those of a chip's fault."""

    node: str
    switch: int
    port: int
    code: str
    level: str
    raised_at_ms: int | None
    received_at_ms: int | None
    hidden: str | None = None
    hidden_until_ms: int | None = None


class ServerFaultStatus(msgspec.Struct, frozen=True):
    """One code of a part of a server, named as the node names it (``Fan`` 3)."""

    node: str
    part: str
    id: int
    code: str
    level: str


def raised_at_ms(fault: CodeFault) -> int | None:
    """When a fault began as its source tells it; public ones tell seconds (clusterd#3.2)."""
    return _sane(fault.time_ms * 1000 if fault.fault_type == PUBLIC_FAULT else fault.time_ms)


def _sane(at_ms: int) -> int | None:
    return at_ms if 0 < at_ms <= _LATEST_MS else None


def fault_statuses(pipeline: Pipeline) -> Iterator[FaultStatus]:
    """Every code on every chip. It may be read in slices."""
    for node in sorted(pipeline.device.entries.keys() | pipeline.processing.hidden.keys()):
        entry = pipeline.device.entries.get(node)
        hidden = pipeline.processing.hidden.get(node, ())
        if entry is not None:
            yield from _of_chips(pipeline, node, entry.record.faults)
        for one in hidden:
            for fault in _of_chips(pipeline, node, (one.fault,)):
                yield msgspec.structs.replace(fault, hidden=one.why, hidden_until_ms=one.until_ms)


def _of_chips(pipeline: Pipeline, node: str, faults: Iterable[CodeFault]) -> Iterator[FaultStatus]:
    catalogue = shipped()
    received = pipeline.processing.devices.get(node, NO_DEVICE_STATE).received
    answers: ChipFaultDetails | None = None
    for fault in faults:
        answers = answers or ChipFaultDetails(pipeline, node)
        answer = answers.of(fault.chip, fault.code)
        since_ms = received.get(fault.chip, {}).get(fault.code)
        if since_ms is None and fault.code == _MANUAL:
            since_ms = separated_since_ms(pipeline, node, fault.chip)
        yield FaultStatus(
            node=node,
            chip=fault.chip,
            code=fault.code,
            name=catalogue.name_of(fault.code),
            level=fault.level,
            severity=answer.severity,
            device_fault=answer.device_fault,
            severity_source=answer.severity_source,
            fault_type=fault.fault_type,
            raised_at_ms=raised_at_ms(fault),
            received_at_ms=since_ms,
        )


def separated_since_ms(pipeline: Pipeline, node: str, chip: str) -> int | None:
    """Since when a chip is in manual separation: the first of its codes, as far as that is kept."""
    one = pipeline.processing.separation.chips.get(node, {}).get(chip)
    return None if one is None else min(one.codes.values(), default=None)


def switch_fault_statuses(pipeline: Pipeline) -> Iterator[SwitchFaultStatus]:
    """Every event on every switch. It may be read in slices."""
    processing = pipeline.processing
    for node in sorted(pipeline.switch.entries.keys() | processing.hidden_events.keys()):
        entry = pipeline.switch.entries.get(node)
        if entry is not None:
            for event, level in leveled(entry.record):
                yield _of_switch(pipeline, node, event, level)
        for one in processing.hidden_events.get(node, ()):
            yield msgspec.structs.replace(
                _of_switch(pipeline, node, one.event, one.level),
                hidden=FILTER,
                hidden_until_ms=one.until_ms,
            )


def leveled(record: SwitchRecord) -> Iterator[tuple[SwitchEvent, str]]:
    """The events of a node's switches, each with its level."""
    levels = {key: level for key, _, level in record.times or ()}
    for event in record.events:
        yield event, levels.get(event_key(event), record.level)


def _of_switch(pipeline: Pipeline, node: str, event: SwitchEvent, level: str) -> SwitchFaultStatus:
    received = pipeline.processing.switches.get(node, NO_SWITCH_STATE).received
    return SwitchFaultStatus(
        node=node,
        switch=event.switch_chip_id,
        port=event.switch_port_id,
        code=event.assembled_fault_code,
        level=level,
        raised_at_ms=_sane(event.alarm_raised_time),
        received_at_ms=received.get(event_key(event)),
    )


def server_fault_statuses(pipeline: Pipeline) -> Iterator[ServerFaultStatus]:
    """Every code of every part of every server. It may be read in slices."""
    for node in sorted(pipeline.node.entries):
        yield from faults_of_server(pipeline, node)


def faults_of_server(pipeline: Pipeline, node: str) -> Iterator[ServerFaultStatus]:
    """Every code of every part of one server."""
    entry = pipeline.node.entries.get(node)
    for part in () if entry is None else entry.record.faults:
        for code in part.fault_code or ():
            yield ServerFaultStatus(node, part.device_type, part.device_id, code, part.fault_level)
