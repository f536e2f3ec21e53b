"""Rows of ``/api/v1/faults``, and the names of what a fault is on. Times are epoch milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import msgspec

from contract.documents.switch_info import port_of

if TYPE_CHECKING:
    from contract.observation import Subject


class FaultRule(msgspec.Struct, frozen=True):
    """A rule about a code: under ``key`` of ``file``, on ``line`` (the first is 1), in words."""

    file: str
    key: str
    line: int
    text: str


class FaultStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One code that holds on one ``subject`` of a node, named as in the events of the stream.

    ``kind`` is ``chip``, ``switch``, ``host``, ``storage`` or ``dpu`` (an RDMA NIC or DPU).
    ``name`` and ``name_zh`` are the vendor's, ``null`` where the vendor's tables have none;
    ``summary`` is what follows from the code then. ``level`` is empty for a code in no table.
    ``since_ms`` is when the fault began, as its source reports it; ``received_at_ms`` since when an
    aggregator has it, over restarts.

    ``severity`` and ``device_fault`` are those of the node's agent (``severity_source``
    ``agent``), else the ``catalogue``'s; ``null`` for what is not known. ``fault_type`` is
    upstream's word in the document, of chips.

    ``hidden`` is why an aggregator does not publish it: ``filter`` (of its job),
    ``accompanies`` (it only came along with a UCE fault) or ``undecided`` (it may have);
    ``hidden_until_ms`` is when that ends by time alone.

    An agent knows more: ``episode`` and ``reason`` of the level, which ``source`` reported it
    first, ``reported_by`` which ones do so now, and whether it is a one-off event (``once``).
    ``rules`` are those of its fault configuration about the code.
    """

    node: str
    subject: str
    kind: str
    code: str
    level: str
    name: str | None = None
    name_zh: str | None = None
    summary: str = ""
    since_ms: int | None = None
    received_at_ms: int | None = None
    severity: str | None = None
    device_fault: bool | None = None
    severity_source: str | None = None
    fault_type: str = ""
    hidden: str | None = None
    hidden_until_ms: int | None = None
    episode: str = ""
    reason: str = ""
    source: str = ""
    reported_by: tuple[str, ...] = ()
    once: bool = False
    rules: tuple[FaultRule, ...] = ()


def key_of(fault: FaultStatus) -> tuple[str, ...]:
    """Return what orders faults."""
    return fault.node, fault.subject, fault.code, fault.fault_type


class FaultsPage(msgspec.Struct, frozen=True):
    """Every fault that holds now, also those that an aggregator holds back from readers.

    ``stream`` is the id of the newest event that it contains. ``more`` (``continue``): the
    parameter of the next page, ``null`` for the last one.
    """

    at_ms: int
    faults: tuple[FaultStatus, ...]
    stream: str = ""
    more: str | None = msgspec.field(default=None, name="continue")


class FaultNames(TypedDict):
    """What a fault is called."""

    name: str | None
    name_zh: str | None
    summary: str


def names_of(code: str) -> FaultNames:
    """Return what a fault with this code is called; the tables are read at the first call."""
    # An agent whose faults are not queried does not need the tables.
    from contract.codes.reference import describe_code

    description = describe_code(code)
    if description is None:
        return {"name": None, "name_zh": None, "summary": ""}
    return {
        "name": description.name_en or None,
        "name_zh": description.name_zh or None,
        "summary": description.summary,
    }


def subject_name(subject: Subject, device_type: str) -> str:
    """Return the name of ``subject``; chips are named after ``device_type`` (``Ascend910-3``)."""
    if subject.kind == "chip":
        return f"{device_type}-{subject.id}"
    if subject.kind == "switch":
        port = port_of(subject)
        return port_name(port.chip, port.port)
    if subject.kind == "host":
        return part_name(subject.part, subject.id)
    return f"{subject.kind} {subject.part}".rstrip()


def port_name(switch: int, port: int) -> str:
    """Return the name of a port of an on-board switch."""
    return f"switch {switch} port {port}"


def part_name(device_type: str, device_id: int) -> str:
    """Return the name of a part of a server, in the words of its BMC."""
    return f"{device_type} {device_id}"
