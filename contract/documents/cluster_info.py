"""Entries and whole values of the cluster-info documents, read as their readers do.

Sources: ``docs/spec/clusterd.md#0``, 2.2 and 3.8, ``docs/spec/consumers.md#1.3`` and 7.1 (M1, M3 to
M6, M9, M10, M20).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from contract.documents.cluster_device import DeviceRecord, split
from contract.documents.device_info import DeviceFault
from contract.documents.node_info import FaultDevice, NodeRecord
from contract.documents.switch_info import SwitchInfoCfg, SwitchRecord, record_of_switches
from contract.errors import DocumentError
from contract.go import encode as go_json
from contract.go.decode import GoStruct, Int32, Int64, decode
from contract.names import (
    CLUSTER_DEVICE_PREFIX,
    CLUSTER_SWITCH_PREFIX,
    DEVICE_INFO_PREFIX,
    NODE_INFO_PREFIX,
    SWITCH_INFO_PREFIX,
)
from contract.plural import plural
from contract.validation_texts import decode_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VALUE_LIMIT = 800 * 1024
"""Most bytes of one value; the API server's own limit is 1 MiB for the whole object."""

Entry = TypeVar("Entry")

_SUFFIXES = ("", "-Fault", "-NetworkUnhealthy", "-Recovering", "-Unhealthy")
_raw_entries = msgspec.json.Decoder(dict[str, msgspec.Raw])
HEALTHY = "Healthy"
UNHEALTHY = "UnHealthy"
_LEVELS = ("SeparateFault", "PreSeparateFault", "NotHandleFault")
"""Most serious first."""


class DeviceEntry(GoStruct, frozen=True):
    """A node's member of cluster-info-device, as Volcano reads it."""

    DeviceList: dict[str, str] | None = None
    UpdateTime: Int64 = 0
    CmName: str = ""
    SuperPodID: Int32 = 0
    RackID: Int32 = 0
    ServerIndex: Int32 = 0


def cluster_device_name(index: int) -> str:
    """Return the name of a device document and of its only data key."""
    return f"{CLUSTER_DEVICE_PREFIX}{index}"


def cluster_device_index(name: str) -> int | None:
    """Return the number of a device document, ``None`` for any other name."""
    return numbered(CLUSTER_DEVICE_PREFIX, name)


def numbered(prefix: str, name: str) -> int | None:
    """Return the number that follows ``prefix`` in ``name``, if ``name`` is just that."""
    number = name.removeprefix(prefix)
    # Without leading zeros, so that each number has one name.
    if number == name or not number.isascii() or not number.isdigit() or str(int(number)) != number:
        return None
    return int(number)


def member(key: str, text: str) -> str:
    """Return one member of a value: ``key`` and the entry's JSON text."""
    return f"{go_json.encode(key)}:{text}"


def value_of(members: Iterable[str]) -> str:
    """Return a value from its members in key order; empty without any (checklist item 6)."""
    joined = ",".join(members)
    return f"{{{joined}}}" if joined else ""


def entry_texts(value: str, document: str) -> dict[str, str]:
    """Return the JSON text of each member of a value, unread; raises ``DocumentError``."""
    if not value:
        return {}
    try:
        return {key: bytes(raw).decode() for key, raw in _raw_entries.decode(value).items()}
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DocumentError(
            document, "$", f"is not a valid object of entries: {decode_text(error)}"
        ) from None


def read_device_entry(key: str, text: str, document: str) -> tuple[str, DeviceEntry]:
    """Return the node that a member of cluster-info-device is about, and its entry.

    Raises ``DocumentError`` where a reader would not understand it: types, the five keys, names in
    the lists, the fault list (M3 to M6).
    """
    entry = decode(text, DeviceEntry, document, f"$.{key}")
    node = key.removeprefix(DEVICE_INFO_PREFIX)
    if node == key or not node or entry.CmName != key:
        raise DocumentError(document, f"$.{key}", "is not named after the node's device-info")
    resource, problem = _device_list_problem(entry.DeviceList or {})
    if problem is not None:
        raise DocumentError(document, f"$.{key}.DeviceList", problem)
    faults = (entry.DeviceList or {})[f"{resource}-Fault"]
    if faults != "[]":
        decode(faults, list[DeviceFault], document, f"$.{key}.DeviceList['{resource}-Fault']")
    return node, entry


def _device_list_problem(devices: dict[str, str]) -> tuple[str, str | None]:
    # The key of the free list is a prefix of the other four, so it sorts before them.
    resource = min(devices, default="")
    # A key that is missing would leave the reader's earlier value in force (consumers#7.1, M5).
    if set(devices) != {resource + suffix for suffix in _SUFFIXES}:
        return resource, f"must have the five keys of one chip type, has {sorted(devices)}"
    for key, names in devices.items():
        if not key.endswith("-Fault") and names and not all(n == n.strip() for n in _listed(names)):
            return resource, f"{key} is not a plain comma list: {names!r}"
    return resource, None


def _listed(names: str) -> list[str]:
    # An empty name is turned into a blank one, which is not a trimmed name either.
    return [name or " " for name in names.split(",")]


def record_of(entry: DeviceEntry) -> DeviceRecord:
    """Return what is taken over from an entry of an earlier run: chips and ids, but no faults."""
    devices = entry.DeviceList or {}
    resource = min(devices, default="huawei.com/npu")
    return DeviceRecord(
        chip_type=resource.removeprefix("huawei.com/"),
        available=_names(devices, resource),
        unhealthy=(),
        network_unhealthy=(),
        recovering=(),
        faults=(),
        update_time=entry.UpdateTime,
        super_pod_id=entry.SuperPodID,
        rack_id=entry.RackID,
        server_index=entry.ServerIndex,
    )


def _names(devices: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(name for name in devices.get(key, "").split(",") if name)


def record_as_shown(entry: DeviceEntry, document: str) -> DeviceRecord:
    """Return the content of an entry that ``read_device_entry`` has read, with its faults."""
    devices = entry.DeviceList or {}
    resource = min(devices, default="")
    faults = devices.get(f"{resource}-Fault", "[]")
    return msgspec.structs.replace(
        record_of(entry),
        unhealthy=_names(devices, f"{resource}-Unhealthy"),
        network_unhealthy=_names(devices, f"{resource}-NetworkUnhealthy"),
        recovering=_names(devices, f"{resource}-Recovering"),
        faults=tuple(
            entry for fault in decode(faults, list[DeviceFault], document) for entry in split(fault)
        ),
    )


def verify_device_value(value: str, document: str, nodes: int) -> None:
    """Read a value that is about to be written as its readers will.

    Raises ``DocumentError`` when one of ``nodes`` entries would not arrive, or when it is larger
    than an object may be with more than one entry in it.
    """
    verify_value(_typed_entries, value, document, nodes)


def verify_value(
    reader: msgspec.json.Decoder[dict[str, Entry]], value: str, document: str, nodes: int
) -> None:
    """``verify_device_value`` with the reader of any kind of entry."""
    if not value:
        if nodes:
            raise DocumentError(document, "$", f"is empty and must have {nodes} nodes")
        return
    try:
        entries = reader.decode(value)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DocumentError(
            document, "$", f"a reader would refuse it: {decode_text(error)}"
        ) from None
    if len(entries) != nodes:
        raise DocumentError(
            document, "$", f"has {plural(len(entries), 'node')} and must have {nodes}"
        )
    size = len(value.encode())
    # One entry alone cannot be split any further (M20).
    if size > VALUE_LIMIT and nodes > 1:
        raise DocumentError(document, "$", f"has {size} bytes, at most {VALUE_LIMIT} are allowed")


_typed_entries = msgspec.json.Decoder(dict[str, DeviceEntry])


class NodeEntry(GoStruct, frozen=True):
    """A node's member of cluster-info-node-cm, as Volcano reads it."""

    FaultDevList: list[FaultDevice] | None = None
    NodeStatus: str = ""
    CmName: str = ""
    UpdateTime: Int64 = 0


def read_node_entry(key: str, text: str, document: str) -> tuple[str, NodeRecord]:
    """Return the node that a member of cluster-info-node-cm is about, and what it contains.

    Raises ``DocumentError`` where a reader would not understand it.
    """
    entry = decode(text, NodeEntry, document, f"$.{key}")
    node = key.removeprefix(NODE_INFO_PREFIX)
    if node == key or not node or entry.CmName != key:
        raise DocumentError(document, f"$.{key}", "is not named after the node's node-info")
    return node, NodeRecord(tuple(entry.FaultDevList or ()), entry.NodeStatus, entry.UpdateTime)


def pre_separate_node(record: NodeRecord, chips_in_use: bool | None) -> NodeRecord:
    """Decide the status of a node whose worst fault is a pre-separation (clusterd#3.8).

    Busy chips keep it ``Healthy``, idle ones make it ``UnHealthy``; ``None`` (not known) leaves
    what the node reported.
    """
    worst = next((level for level in _LEVELS if _has(record, level)), None)
    if chips_in_use is None or record.status == "UnHealthy" or worst != "PreSeparateFault":
        return record
    return msgspec.structs.replace(record, status="Healthy" if chips_in_use else "UnHealthy")


def _has(record: NodeRecord, level: str) -> bool:
    return any(device.fault_level == level for device in record.faults)


def lost_node(record: NodeRecord | None) -> NodeRecord:
    """Return what is published of a node that fell silent; its last known faults stay."""
    if record is None:
        return NodeRecord((), UNHEALTHY, 0)
    return msgspec.structs.replace(record, status=UNHEALTHY)


def is_only_silence(record: NodeRecord) -> bool:
    """Return whether ``record`` is what ``lost_node`` makes of a node whose faults do no harm."""
    return record.status == UNHEALTHY and all(
        device.fault_level == "NotHandleFault" for device in record.faults
    )


def missed(text: str) -> int:
    """Return how much an entry would be missed: 0 by no reader, 1 by people, 2 by schedulers (B7).

    Readers take a node without an entry for healthy.
    """
    # Our encoder wrote the text, so its members have one order, and decoding is not needed.
    if f'"NodeStatus":"{HEALTHY}"' not in text:
        return 2
    return 0 if text.startswith('{"FaultDevList":null,') else 1


def verify_node_value(value: str, document: str, nodes: int) -> None:
    """Read the value that is about to be written as its readers will.

    Raises ``DocumentError`` when one of ``nodes`` entries would not arrive, or when the value is
    too large for the one document there is.
    """
    verify_value(_node_entries, value, document, nodes)


_node_entries = msgspec.json.Decoder(dict[str, NodeEntry])


class SwitchEntry(SwitchInfoCfg, frozen=True):
    """A node's member of cluster-info-switch, as Volcano reads it."""

    cm_name: str = msgspec.field(default="", name="CmName")


def cluster_switch_name(index: int) -> str:
    """Return the name of a switch document and of its only data key."""
    return f"{CLUSTER_SWITCH_PREFIX}{index}"


def cluster_switch_index(name: str) -> int | None:
    """Return the number of a switch document, ``None`` for any other name."""
    return numbered(CLUSTER_SWITCH_PREFIX, name)


def read_switch_entry(key: str, text: str, document: str) -> tuple[str, SwitchRecord]:
    """Return the node that a member of cluster-info-switch is about, and what it contains.

    Raises ``DocumentError`` where a reader would not understand it.
    """
    entry = decode(text, SwitchEntry, document, f"$.{key}")
    node = key.removeprefix(SWITCH_INFO_PREFIX)
    if node == key or not node or entry.cm_name != key:
        raise DocumentError(document, f"$.{key}", "is not named after the node's switch-info")
    return node, record_of_switches(entry, document, f"$.{key}")


def pre_separate_switch(record: SwitchRecord, chips_in_use: bool | None) -> SwitchRecord:
    """Decide the status of a node whose switch level is a pre-separation (clusterd#3.8).

    Busy chips keep it ``Healthy``, idle ones make it ``UnHealthy``; ``None`` (not known) leaves
    what the node reported.
    """
    if chips_in_use is None or record.status == "UnHealthy" or record.level != "PreSeparate":
        return record
    return msgspec.structs.replace(record, status="Healthy" if chips_in_use else "UnHealthy")


def healed_switch(record: SwitchRecord) -> SwitchRecord:
    """Return ``record`` without any fault (M9)."""
    return msgspec.structs.replace(record, events=(), level="", status="Healthy", times=())


def verify_switch_value(value: str, document: str, nodes: int) -> None:
    """Read a value that is about to be written as its readers will.

    Raises ``DocumentError`` when one of ``nodes`` entries would not arrive.
    """
    verify_value(_switch_entries, value, document, nodes)


_switch_entries = msgspec.json.Decoder(dict[str, SwitchEntry])
