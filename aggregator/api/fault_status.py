"""All faults that hold, for people and programs: published and withheld ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.agent_reports.fault_answers import ChipFaultDetails
from aggregator.cluster_documents.published_node import FILTER
from aggregator.processors.record_edits import PUBLIC_FAULT
from aggregator.processors.state_types import NO_DEVICE_STATE, NO_SWITCH_STATE
from contract.codes.levels import ChipLevel
from contract.documents.switch_info import event_key, leveled
from contract.pages.faults import FaultStatus, key_of, names_of, part_name, port_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import TypeAlias

    from aggregator.dpu_faults.documents import DpuDocuments
    from aggregator.merge.pipeline import Pipeline
    from contract.documents.cluster_device import CodeFault
    from contract.documents.switch_info import SwitchEvent

    Began: TypeAlias = Callable[[str, str, str], int | None]
    """Node, subject and code to since when that is published, as far as it is known."""

_MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU.value
_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: a later time is none, and may be more than JSON can carry."""


def _unknown(_node: str, _subject: str, _code: str) -> None:
    """Stand for an aggregator that knows no time of a server's faults."""


def raised_at_ms(fault: CodeFault) -> int:
    """Return the time of a fault in its document; public ones have seconds (clusterd#3.2)."""
    return fault.time_ms * 1000 if fault.fault_type == PUBLIC_FAULT else fault.time_ms


def began_at_ms(raised_ms: int, received_ms: int | None) -> int | None:
    """Return when a fault began: the earlier of both times; ``None`` where neither is known.

    The document of an upgraded code has the time of its upgrade (device-plugin#1.5), and a clock
    that is ahead gives a later time than that of the receipt.
    """
    times = [at_ms for at_ms in (raised_ms, received_ms or 0) if 0 < at_ms <= _LATEST_MS]
    return min(times, default=None)


def fault_statuses(
    pipeline: Pipeline,
    began: Began = _unknown,
    nodes: Collection[str] | None = None,
    dpus: DpuDocuments | None = None,
) -> Iterator[FaultStatus]:
    """Yield every fault in the order of ``key_of``, with ``nodes`` of these only.

    ``began`` has when an aggregator received the faults of servers and of ``dpus``. It may be read
    in slices.
    """
    processing = pipeline.processing
    names = pipeline.device.entries.keys() | processing.hidden.keys() | pipeline.node.entries.keys()
    names |= pipeline.switch.entries.keys() | processing.hidden_events.keys()
    if dpus is not None:
        names |= dpus.with_faults
    for node in sorted(names if nodes is None else names & set(nodes)):
        faults = [*_all_of_chips(pipeline, node), *_of_switches(pipeline, node)]
        faults += () if dpus is None else faults_of_dpus(dpus, node, began)
        yield from sorted([*faults, *faults_of_server(pipeline, node, began)], key=key_of)


def _all_of_chips(pipeline: Pipeline, node: str) -> Iterator[FaultStatus]:
    entry = pipeline.device.entries.get(node)
    if entry is not None:
        yield from _of_chips(pipeline, node, entry.record.faults)
    for withheld in pipeline.processing.hidden.get(node, ()):
        for fault in _of_chips(pipeline, node, (withheld.fault,)):
            yield msgspec.structs.replace(
                fault, hidden=withheld.why, hidden_until_ms=withheld.until_ms
            )


def _of_chips(pipeline: Pipeline, node: str, faults: Iterable[CodeFault]) -> Iterator[FaultStatus]:
    answers: ChipFaultDetails | None = None
    for fault in faults:
        answers = answers or ChipFaultDetails(pipeline, node)
        answer = answers.of(fault.chip, fault.code)
        received_at_ms = received_ms(pipeline, node, fault.chip, fault.code)
        yield FaultStatus(
            node=node,
            subject=fault.chip,
            kind="chip",
            code=fault.code,
            level=fault.level,
            **names_of(fault.code),
            severity=answer.severity,
            device_fault=answer.device_fault,
            severity_source=answer.severity_source,
            fault_type=fault.fault_type,
            since_ms=began_at_ms(raised_at_ms(fault), received_at_ms),
            received_at_ms=received_at_ms,
        )


def received_ms(pipeline: Pipeline, node: str, chip: str, code: str) -> int | None:
    """Return since when an aggregator has a fault of a chip; ``None`` if not kept.

    That of a manual separation without a time is the time of its first code.
    """
    states = pipeline.processing.devices.get(node, NO_DEVICE_STATE)
    at_ms = states.received.get(chip, {}).get(code)
    if at_ms is not None or code != _MANUAL:
        return at_ms
    separated = pipeline.processing.separation.chips.get(node, {}).get(chip)
    return None if separated is None else min(separated.codes.values(), default=None)


def _of_switches(pipeline: Pipeline, node: str) -> Iterator[FaultStatus]:
    entry = pipeline.switch.entries.get(node)
    if entry is not None:
        for event, level in leveled(entry.record):
            yield _of_switch(pipeline, node, event, level)
    for withheld in pipeline.processing.hidden_events.get(node, ()):
        yield msgspec.structs.replace(
            _of_switch(pipeline, node, withheld.event, withheld.level),
            hidden=FILTER,
            hidden_until_ms=withheld.until_ms,
        )


def _of_switch(pipeline: Pipeline, node: str, event: SwitchEvent, level: str) -> FaultStatus:
    received = pipeline.processing.switches.get(node, NO_SWITCH_STATE).received
    received_at_ms = received.get(event_key(event))
    code = event.assembled_fault_code
    return FaultStatus(
        node=node,
        subject=port_name(event.switch_chip_id, event.switch_port_id),
        kind="switch",
        code=code,
        level=level,
        **names_of(code),
        since_ms=began_at_ms(event.alarm_raised_time, received_at_ms),
        received_at_ms=received_at_ms,
    )


def faults_of_server(
    pipeline: Pipeline, node: str, began: Began = _unknown
) -> Iterator[FaultStatus]:
    """Yield every code of every part of one server; its documents have no times."""
    entry = pipeline.node.entries.get(node)
    for part in () if entry is None else entry.record.faults:
        subject = part_name(part.device_type, part.device_id)
        for code in part.fault_code or ():
            at_ms = began(node, subject, code)
            yield FaultStatus(
                node=node,
                subject=subject,
                kind="host",
                code=code,
                level=part.fault_level,
                **names_of(code),
                since_ms=at_ms,
                received_at_ms=at_ms,
            )


def faults_of_dpus(dpus: DpuDocuments, node: str, began: Began = _unknown) -> Iterator[FaultStatus]:
    """Yield every fault of the RDMA NICs and DPUs of one node, as their plugin reports it."""
    for fault in dpus.faults(node):
        received_at_ms = began(node, fault.subject, fault.code)
        yield FaultStatus(
            node=node,
            subject=fault.subject,
            kind="dpu",
            code=fault.code,
            level=fault.level,
            **names_of(fault.code),
            since_ms=began_at_ms(fault.since_ms, received_at_ms),
            received_at_ms=received_at_ms,
        )
