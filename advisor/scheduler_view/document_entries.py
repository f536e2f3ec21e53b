"""The entries of documents as the scheduler reads them (``docs/spec/consumers.md#1.2`` and 1.3).

One wrong type rejects the whole ConfigMap. Members that the scheduler does not have may be of any
type.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from contract.errors import DocumentError
from contract.go.decode import GoStruct, Int32, Int64, decode
from contract.names import DEVICE_INFO_PREFIX, NODE_INFO_PREFIX, SWITCH_INFO_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


UNHEALTHY = "-Unhealthy"
NETWORK_UNHEALTHY = "-NetworkUnhealthy"
RECOVERING = "-Recovering"
FAULT = "-Fault"
"""What follows the resource in the keys of a ``DeviceList`` (consumers#1.3)."""


class VolcanoDeviceEntry(GoStruct, frozen=True, gc=False):
    """What a document has of the chips of a node. ``UpdateTime`` is in Unix seconds."""

    DeviceList: dict[str, str] | None = None
    UpdateTime: Int64 = 0
    SuperPodID: Int32 = 0
    RackID: Int32 = 0


class VolcanoSwitchEntry(GoStruct, frozen=True, gc=False):
    """What a document has of the switch of a node."""

    FaultCode: list[str] | None = None
    FaultLevel: str = ""
    UpdateTime: Int64 = 0
    NodeStatus: str = ""


class VolcanoFaultDevice(GoStruct, frozen=True, gc=False):
    """A part of a host at fault."""

    DeviceType: str = ""
    DeviceId: Int64 = 0
    FaultCode: list[str] | None = None
    FaultLevel: str = ""


class VolcanoNodeEntry(GoStruct, frozen=True, gc=False):
    """What a document has of a host."""

    FaultDevList: list[VolcanoFaultDevice] | None = None
    NodeStatus: str = ""


class CardFault(GoStruct, frozen=True, gc=False):
    """An element of ``<R>-Fault``."""

    fault_type: str = ""
    npu_name: str = ""
    large_model_fault_level: str = ""
    fault_level: str = ""
    fault_handling: str = ""
    fault_code: str = ""


class _DeviceInfo(GoStruct, frozen=True, gc=False):
    DeviceList: dict[str, str] | None = None
    UpdateTime: Int64 = 0


class _DeviceInfoCfg(GoStruct, frozen=True, gc=False):
    DeviceInfo: _DeviceInfo = _DeviceInfo()
    SuperPodID: Int32 = 0
    ServerIndex: Int32 = 0
    RackID: Int32 = 0
    CheckCode: str = ""


class _NodeInfo(GoStruct, frozen=True, gc=False):
    NodeInfo: VolcanoNodeEntry = VolcanoNodeEntry()
    CheckCode: str = ""


class _FastDevice(msgspec.Struct, forbid_unknown_fields=True):
    """The members that ClusterD and this project write, those without a reader as they come."""

    DeviceList: dict[str, str]
    UpdateTime: Int64
    CmName: msgspec.Raw = msgspec.Raw()
    SuperPodID: Int32 = 0
    RackID: Int32 = 0
    ServerIndex: msgspec.Raw = msgspec.Raw()


class _FastSwitch(msgspec.Struct, forbid_unknown_fields=True):
    FaultCode: list[str]
    FaultLevel: str
    UpdateTime: Int64
    NodeStatus: str
    FaultTimeAndLevelMap: msgspec.Raw = msgspec.Raw()


_fast_device = msgspec.json.Decoder(_FastDevice)
_fast_switch = msgspec.json.Decoder(_FastSwitch)
_fast_node = msgspec.json.Decoder(VolcanoNodeEntry)
_pieces = msgspec.json.Decoder(dict[str, msgspec.Raw])

E = TypeVar("E")
# What the quick form refuses is read once more by Go's rules, which also name the error.
_NOT_FAST = (msgspec.MsgspecError, UnicodeError, RecursionError)


def _device(entry: _FastDevice) -> VolcanoDeviceEntry:
    return VolcanoDeviceEntry(entry.DeviceList, entry.UpdateTime, entry.SuperPodID, entry.RackID)


def _switch(entry: _FastSwitch) -> VolcanoSwitchEntry:
    return VolcanoSwitchEntry(entry.FaultCode, entry.FaultLevel, entry.UpdateTime, entry.NodeStatus)


class EntryForm(NamedTuple, Generic[E]):
    """A kind of cluster document: what comes before a node in its keys, and how it is read.

    ``whole`` is the type of a document, ``read_entry`` reads one entry without unusual members.
    """

    prefix: str
    whole: type[dict[str, E]]
    read_entry: Callable[[msgspec.Raw], E]


DEVICES = EntryForm(
    DEVICE_INFO_PREFIX,
    dict[str, VolcanoDeviceEntry],
    lambda raw: _device(_fast_device.decode(raw)),
)
SWITCHES = EntryForm(
    SWITCH_INFO_PREFIX,
    dict[str, VolcanoSwitchEntry],
    lambda raw: _switch(_fast_switch.decode(raw)),
)
NODES = EntryForm(NODE_INFO_PREFIX, dict[str, VolcanoNodeEntry], _fast_node.decode)


class Entries(NamedTuple, Generic[E]):
    """The entries of a document by key, with their texts where each was read by itself."""

    entries: dict[str, E]
    pieces: dict[str, msgspec.Raw] | None = None


def read_entries(text: str, document: str, form: EntryForm[E], before: Entries[E]) -> Entries[E]:
    """Return the entries of a document; those with the same text as ``before`` are not read again.

    An entry that is equal is the same object. Raises ``DocumentError`` for what Go refuses.
    """
    entries, texts = before
    pieces: dict[str, msgspec.Raw] | None
    try:
        pieces = _pieces.decode(text or "{}")
        # The same keys in the same order: only entries whose text differs are read.
        if texts is not None and list(pieces) == list(texts):
            others = [key for key, piece in pieces.items() if texts[key] != piece]
            merged = entries | {key: form.read_entry(pieces[key]) for key in others}
        else:
            merged = {key: form.read_entry(piece) for key, piece in pieces.items()}
            others = list(merged)
    except _NOT_FAST:
        # Without pieces the next text is read as a whole, as nothing could be compared.
        pieces, merged = None, decode(text, form.whole, document)
        others = list(merged)
    for key in others:
        old = entries.get(key)
        # The old object stays, so that later comparisons are by identity.
        if old == merged[key]:
            merged[key] = old
    return Entries(merged, pieces)


def read_device_info(text: str, document: str) -> VolcanoDeviceEntry:
    """Return the chips of a device-info document. Its check code is not verified.

    Source: docs/spec/consumers.md#1.13.
    """
    outer = decode(text, _DeviceInfoCfg, document)
    inner = outer.DeviceInfo
    return VolcanoDeviceEntry(inner.DeviceList, inner.UpdateTime, outer.SuperPodID, outer.RackID)


def read_switch_info(text: str, document: str) -> VolcanoSwitchEntry:
    """Return the switch of a device-info document."""
    return decode(text, VolcanoSwitchEntry, document)


def read_node_info(text: str, document: str) -> VolcanoNodeEntry:
    """Return the host of a node-info document."""
    return decode(text, _NodeInfo, document).NodeInfo


# Nodes without faults share a text, and a text lasts for many sessions.
@lru_cache(maxsize=4096)
def read_faults(text: str) -> tuple[CardFault, ...] | None:
    """Return the elements of a ``-Fault`` text; ``None`` where it cannot be read.

    Source: docs/spec/consumers.md#1.8.
    """
    try:
        elements = decode(text, list[_AnyFault], "-Fault")
    except DocumentError:
        return None
    return tuple(
        CardFault(
            element.fault_type,
            element.npu_name,
            element.large_model_fault_level,
            element.fault_level,
            element.fault_handling,
            element.fault_code,
        )
        for element in elements
    )


class _Time(GoStruct, frozen=True, gc=False):
    fault_time: Int64 = 0
    fault_level: str = ""


class _AnyFault(CardFault, frozen=True, gc=False):
    fault_time_and_level_map: dict[str, _Time] | None = None


def names(text: str | None) -> tuple[str, ...]:
    """Return the names of a comma list as they are between the commas."""
    return _names(text) if text else ()


@lru_cache(maxsize=4096)
def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def device_type(keys: Mapping[str, Any]) -> str:
    """Return the chip type that the keys of a ``DeviceList`` show (consumers#1.3)."""
    return _device_type(tuple(keys))


@lru_cache(maxsize=1024)
def _device_type(keys: tuple[str, ...]) -> str:
    # Ascend 950 names its resource ``npu``; it comes first, as in the plugin (consumers#1.3).
    if any(key.startswith("huawei.com/npu") for key in keys):
        return "npu"
    # The longer name before its prefix: ``Ascend310`` is part of ``Ascend310P``.
    for candidate in ("Ascend910", "Ascend310P", "Ascend310"):
        if any(candidate in key for key in keys):
            return candidate
    return "Ascend910"
