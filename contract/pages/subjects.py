"""How pages and events name what a fault is on: in the same words at agent and aggregator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.documents.switch_info import port_of

if TYPE_CHECKING:
    from contract.observation import Subject


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
