"""Compares the faults of a node in its documents with those in cluster-info."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from contract.codes.catalogue import shipped
from contract.codes.levels import ChipLevel
from contract.codes.reference import CodeKind
from contract.documents.switch_info import event_key
from contract.pages.subjects import part_name, port_name
from vigil.reports.status_report import FaultRow, fault_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from contract.documents.cluster_device import DeviceRecord
    from contract.documents.node_info import NodeRecord
    from contract.documents.switch_info import SwitchRecord
    from vigil.sources.store_contents import DocumentView, NodeContents

_PUBLIC = "PublicFault"
_MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU.value
_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: a later time is none."""


class ComparedFault(NamedTuple):
    """A fault, and its level on each side; ``None`` where a side does not have it."""

    row: FaultRow
    reported: str | None
    published: str | None


class _Fault(NamedTuple):
    """A fault on one side. ``part`` and ``code`` identify it."""

    part: str
    kind: CodeKind
    code: str
    level: str
    since_ms: int | None


_Key: TypeAlias = tuple[str, CodeKind, str]


def compared_faults(node: str, contents: NodeContents) -> Iterator[ComparedFault]:
    """Yield each fault of ``node`` that one of the two sides has, by part and code."""
    reported = {(fault.part, fault.kind, fault.code): fault for fault in _faults(contents.reported)}
    published = dict(_published(contents.published, reported))
    severities = {
        (str(answer.chip), answer.code): answer.severity
        for answer in (contents.own.faults if contents.own is not None else ())
    }
    for key in sorted({**reported, **published}):
        ours, theirs = reported.get(key), published.get(key)
        item = theirs or ours
        assert item is not None
        severity = None
        if item.kind is CodeKind.CHIP:
            severity = severities.get((item.part.rpartition("-")[2], item.code))
            current = shipped().severity_of(item.code)
            severity = severity or (current.word if current is not None else None)
        row = fault_row(node, item.part, item.kind, item.code, item.level, severity, item.since_ms)
        is_withheld = theirs is None and _has_entry(contents.published, item.kind)
        yield ComparedFault(
            msgspec.structs.replace(row, withheld=is_withheld),
            None if ours is None else ours.level,
            None if theirs is None else theirs.level,
        )


def _published(
    view: DocumentView, reported: Mapping[_Key, _Fault]
) -> Iterator[tuple[_Key, _Fault]]:
    """Yield the faults in cluster-info.

    It has no codes at the level ``ManuallySeparateNPU`` (clusterd#2.3): those that are reported are
    meant.
    """
    for item in _faults(view):
        key = (item.part, item.kind, item.code)
        meant = [
            other
            for other, fault in reported.items()
            if item.code == _MANUAL and (fault.part, fault.level) == (item.part, _MANUAL)
        ]
        if key in reported or not meant:
            yield key, item
        else:
            yield from ((other, reported[other]) for other in meant)


def _has_entry(view: DocumentView, kind: CodeKind) -> bool:
    if kind is CodeKind.SWITCH:
        return view.switch is not None
    return (view.server if kind is CodeKind.NODE else view.device) is not None


def _faults(view: DocumentView) -> Iterator[_Fault]:
    if view.device is not None:
        yield from _of_chips(view.device)
    if view.switch is not None:
        yield from _of_switches(view.switch)
    if view.server is not None:
        yield from _of_server(view.server)


def _of_chips(record: DeviceRecord) -> Iterator[_Fault]:
    for fault in record.faults:
        is_public = fault.fault_type == _PUBLIC
        kind = CodeKind.PUBLIC if is_public else CodeKind.CHIP
        # A public fault has its time in seconds (clusterd#3.2).
        since_ms = _sane(fault.time_ms * 1000 if is_public else fault.time_ms)
        yield _Fault(fault.chip, kind, fault.code, fault.level, since_ms)


def _of_switches(record: SwitchRecord) -> Iterator[_Fault]:
    levels = {key: level for key, _, level in record.times or ()}
    for event in record.events:
        code = event.assembled_fault_code
        level = levels.get(event_key(event), record.level)
        part = port_name(event.switch_chip_id, event.switch_port_id)
        yield _Fault(part, CodeKind.SWITCH, code, level, _sane(event.alarm_raised_time))


def _of_server(record: NodeRecord) -> Iterator[_Fault]:
    for part in record.faults:
        for code in part.fault_code or ():
            name = part_name(part.device_type, part.device_id)
            yield _Fault(name, CodeKind.NODE, code, part.fault_level, None)


def _sane(at_ms: int) -> int | None:
    return at_ms if 0 < at_ms <= _LATEST_MS else None
