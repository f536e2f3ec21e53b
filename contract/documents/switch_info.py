"""The switch-info part of a device-info ConfigMap and its entry in cluster-info-switch.

It has no check code. Sources: ``docs/spec/clusterd.md#1.5`` and 2.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from contract.documents.device_info import SWITCH_INFO_KEY, TimeAndLevel
from contract.go import encode as go_json
from contract.go.decode import GoStruct, Int64, Uint, decode
from contract.names import SWITCH_INFO_PREFIX
from contract.observation import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class SwitchEvent(GoStruct, frozen=True):
    """One event of an on-board switch, in the order of its members on the wire."""

    event_type: Uint = msgspec.field(default=0, name="EventType")
    assembled_fault_code: str = msgspec.field(default="", name="AssembledFaultCode")
    peer_port_device: Uint = msgspec.field(default=0, name="PeerPortDevice")
    peer_port_id: Uint = msgspec.field(default=0, name="PeerPortId")
    switch_chip_id: Uint = msgspec.field(default=0, name="SwitchChipId")
    switch_port_id: Uint = msgspec.field(default=0, name="SwitchPortId")
    severity: Uint = msgspec.field(default=0, name="Severity")
    assertion: Uint = msgspec.field(default=0, name="Assertion")
    alarm_raised_time: Int64 = msgspec.field(default=0, name="AlarmRaisedTime")


def event_key(event: SwitchEvent) -> str:
    """Return the key of a switch's event in the time map (clusterd#1.5)."""
    return f"{event.assembled_fault_code}_{event.switch_chip_id}_{event.switch_port_id}"


def leveled(record: SwitchRecord) -> Iterator[tuple[SwitchEvent, str]]:
    """Yield the events of a node's switches, each with its level."""
    levels = {key: level for key, _, level in record.times or ()}
    for event in record.events:
        yield event, levels.get(event_key(event), record.level)


class SwitchPort(msgspec.Struct, frozen=True):
    """A port of an on-board switch, and what it leads to (0 cpu, 1 npu, 2 L2)."""

    chip: int
    port: int
    peer_device: int
    peer_port: int


def port_subject(port: SwitchPort) -> Subject:
    """Return the subject of a switch fault: what identifies it besides its code
    (device-plugin#5.1).
    """
    return Subject("switch", port.chip, f"{port.port}/{port.peer_device}/{port.peer_port}")


def port_of(subject: Subject) -> SwitchPort:
    """Return the port that ``port_subject`` made ``subject`` of; ``ValueError`` for any other
    subject.
    """
    port, peer_device, peer_port = (int(number) for number in subject.part.split("/"))
    return SwitchPort(subject.id, port, peer_device, peer_port)


class SwitchInfoCfg(GoStruct, frozen=True):
    """The JSON of the data key: event texts, and the time map by event key."""

    fault_code: list[str] | None = msgspec.field(default=None, name="FaultCode")
    fault_level: str = msgspec.field(default="", name="FaultLevel")
    update_time: Int64 = msgspec.field(default=0, name="UpdateTime")
    node_status: str = msgspec.field(default="", name="NodeStatus")
    times: dict[str, TimeAndLevel] | None = msgspec.field(default=None, name="FaultTimeAndLevelMap")


class SwitchRecord(msgspec.Struct, frozen=True):
    """What a node reported about its switches.

    ``times`` holds event key, time and level, sorted by key; ``None`` where the writer gave no map.
    """

    events: tuple[SwitchEvent, ...]
    level: str
    update_time: int
    status: str
    times: tuple[tuple[str, int, str], ...] | None


def decode_switch_info(name: str, data: Mapping[str, str]) -> SwitchRecord | None:
    """Read the switch part of the device-info ConfigMap ``name``; ``None`` where it has none.

    One event that cannot be read refuses the whole (``DocumentError``).
    """
    text = data.get(SWITCH_INFO_KEY)
    if text is None:
        return None
    wire = decode(text, SwitchInfoCfg, name, SWITCH_INFO_KEY)
    return record_of_switches(wire, name, SWITCH_INFO_KEY)


def record_of_switches(wire: SwitchInfoCfg, document: str, where: str) -> SwitchRecord:
    """Return the content of ``wire``, which is at ``where`` in ``document``.

    One event that cannot be read refuses the whole (``DocumentError``).
    """
    events = tuple(
        decode(event, SwitchEvent, document, f"{where}.FaultCode[{index}]")
        for index, event in enumerate(wire.fault_code or ())
    )
    times = None
    if wire.times is not None:
        # Sorted, so that two documents of one content compare equal.
        times = tuple(
            (key, entry.fault_time, entry.fault_level) for key, entry in sorted(wire.times.items())
        )
    return SwitchRecord(events, wire.fault_level, wire.update_time, wire.node_status, times)


def encode_switch_info(record: SwitchRecord) -> str:
    """Return the text of the ``SwitchInfoCfg`` key."""
    return go_json.encode(_tree(record))


def is_same_switch(record: SwitchRecord, other: SwitchRecord) -> bool:
    """Return whether both report the same of the switches.

    The time of the document and the order of events are ignored; how often an event is there
    counts (``docs/spec/clusterd.md#3``).
    """
    same = (record.level, record.status, record.times) == (other.level, other.status, other.times)
    # Events mostly keep their order, so that most comparisons need no sorting.
    return same and (
        record.events == other.events or _unordered(record.events) == _unordered(other.events)
    )


def _unordered(events: Iterable[SwitchEvent]) -> list[tuple[object, ...]]:
    return sorted(map(msgspec.structs.astuple, events))


def render_switch_entry(node: str, record: SwitchRecord) -> str:
    """Return the value of a node's member in cluster-info-switch."""
    return go_json.encode({**_tree(record), "CmName": SWITCH_INFO_PREFIX + node})


def _tree(record: SwitchRecord) -> dict[str, Any]:
    times = None
    if record.times is not None:
        times = {
            key: {"fault_time": time, "fault_level": level} for key, time, level in record.times
        }
    return {
        # Each event is JSON text in a string, so it is encoded twice (device-plugin#5.3).
        "FaultCode": [go_json.encode(msgspec.to_builtins(event)) for event in record.events],
        "FaultLevel": record.level,
        "UpdateTime": record.update_time,
        "NodeStatus": record.status,
        "FaultTimeAndLevelMap": times,
    }
