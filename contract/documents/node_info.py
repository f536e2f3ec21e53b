"""The node-info document and its entry in cluster-info-node-cm.

Documents of old releases have a heartbeat in them: generation B (5.0.x) that and nothing else,
generation C (6.0.RC) that and the faults. The CheckCode shows which one a document is: no two of
them cover the same members. A document whose CheckCode covers the faults alone is of generation D,
as for ClusterD since 6.0.0, whatever else is in it.

Sources: ``docs/spec/clusterd.md#1.4``, 1.5 and 2.2, ``docs/spec/noded.md#7.3``, 7.4 and 7.10.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from contract.errors import CheckCodeMismatch, DocumentError
from contract.go import encode as go_json
from contract.go.decode import GoStruct, Int64, decode
from contract.names import NODE_INFO_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DATA_KEY = "NodeInfo"
TIME_KEY = "updateTime"

REFRESH_SECONDS = 1800.0
"""An unchanged document is written again so that readers see its age (``noded#2.5``)."""

_YEAR_9999 = 253_370_764_800
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)")


class FaultDevice(GoStruct, frozen=True):
    """One faulty part of a server: a CPU, a power supply, a disk."""

    device_type: str = msgspec.field(default="", name="DeviceType")
    device_id: Int64 = msgspec.field(default=0, name="DeviceId")
    fault_code: list[str] | None = msgspec.field(default=None, name="FaultCode")
    fault_level: str = msgspec.field(default="", name="FaultLevel")


class Generation(StrEnum):
    """Which of the three documents of that name one is (``docs/spec/noded.md#7.1``)."""

    B = "cm-v5"
    C = "cm-v6rc"
    D = "modern"


class NodeBeat(msgspec.Struct, frozen=True):
    """The heartbeat in a document of generation B or C: Unix seconds, and seconds."""

    at_seconds: int
    interval_seconds: int


class _NodeInfoInner(GoStruct, frozen=True):
    fault_dev_list: list[FaultDevice | None] | None = msgspec.field(
        default=None, name="FaultDevList"
    )
    heartbeat_time: Int64 | None = msgspec.field(default=None, name="HeartbeatTime")
    heartbeat_interval: Int64 | None = msgspec.field(default=None, name="HeartbeatInterval")
    node_status: str = msgspec.field(default="", name="NodeStatus")

    @property
    def beat(self) -> NodeBeat | None:
        """``None`` where neither member is there; one that is missing is 0, as in Go."""
        if self.heartbeat_time is None and self.heartbeat_interval is None:
            return None
        return NodeBeat(self.heartbeat_time or 0, self.heartbeat_interval or 0)


class _NodeInfoOuter(GoStruct, frozen=True):
    node_info: _NodeInfoInner = msgspec.field(default=_NodeInfoInner(), name="NodeInfo")
    check_code: str = msgspec.field(default="", name="CheckCode")


class NodeRecord(msgspec.Struct, frozen=True):
    """What a node reported about itself. ``update_time_ms`` is 0 where the writer gave no time.

    ``beat`` is the heartbeat in the document, where it has one. A document of generation B has
    nothing of the node's parts: neither that they are well nor that they are not.
    """

    faults: tuple[FaultDevice, ...]
    status: str
    update_time_ms: int
    generation: Generation = Generation.D
    beat: NodeBeat | None = None

    @property
    def has_parts(self) -> bool:
        """Whether faults and status are reported."""
        return self.generation is not Generation.B


def decode_node_info(name: str, data: Mapping[str, str]) -> NodeRecord:
    """Read and verify the node-info ConfigMap ``name``, of whichever generation.

    A ``null`` in the device list is dropped, after the check (defects B4 and B5). Raises
    ``DocumentError``; ``CheckCodeMismatch`` when the content is not what was signed.
    """
    text = data.get(DATA_KEY)
    if text is None:
        raise DocumentError(name, DATA_KEY, "the data key is missing")
    outer = decode(text, _NodeInfoOuter, name, DATA_KEY)
    inner = outer.node_info
    parts = _inner_tree(inner.fault_dev_list, inner.node_status)
    expected = go_json.check_code(parts)
    reported_ms = _milliseconds(data.get(TIME_KEY, ""))
    # After the check, because upstream's hash covers a null, too; one would crash it (defect B5).
    faults = tuple(device for device in inner.fault_dev_list or () if device is not None)
    # Generation D first: ClusterD since 6.0.0 checks the faults alone, whatever else is there.
    if outer.check_code == expected:
        return NodeRecord(faults, inner.node_status, reported_ms)
    beat = inner.beat
    if beat is not None:
        # These generations have no ``updateTime``; the heartbeat is their only time.
        beaten_ms = beat.at_seconds * 1000 if 0 < beat.at_seconds <= _YEAR_9999 else 0
        if outer.check_code == go_json.check_code(_with_beat(parts, beat)):
            return NodeRecord(
                faults, inner.node_status, reported_ms or beaten_ms, Generation.C, beat
            )
        if outer.check_code == go_json.check_code(_beat_tree(beat)):
            return NodeRecord((), "", reported_ms or beaten_ms, Generation.B, beat)
    raise CheckCodeMismatch(
        name, "CheckCode", f"is {outer.check_code!r}, the content has {expected}"
    )


def encode_node_info(
    faults: Iterable[FaultDevice], status: str, update_time: str
) -> dict[str, str]:
    """Return the data of a node-info ConfigMap. ``update_time`` is RFC 3339 text."""
    return {DATA_KEY: _signed(_inner_tree(list(faults), status)), TIME_KEY: update_time}


def encode_beating_node_info(
    faults: Iterable[FaultDevice], status: str, beat: NodeBeat
) -> dict[str, str]:
    """Return the data of a node-info ConfigMap of generation C; it has no ``updateTime``."""
    return {DATA_KEY: _signed(_with_beat(_inner_tree(list(faults), status), beat))}


def encode_node_beat(beat: NodeBeat) -> dict[str, str]:
    """Return the data of a node-info ConfigMap of generation B: the heartbeat and nothing else."""
    return {DATA_KEY: _signed(_beat_tree(beat))}


def _signed(inner: dict[str, Any]) -> str:
    return go_json.encode({"NodeInfo": inner, "CheckCode": go_json.check_code(inner)})


def is_same_node(record: NodeRecord, other: NodeRecord) -> bool:
    """Return whether both report the same of the server: times and the order of lists are ignored.

    NodeD gives parts and codes in any order (``clusterd#3``). How often a code is there
    counts.
    """
    return record.status == other.status and (
        record.faults == other.faults or _unordered(record.faults) == _unordered(other.faults)
    )


def _unordered(faults: Iterable[FaultDevice]) -> list[tuple[str, int, str, list[str]]]:
    return sorted(
        (part.device_type, part.device_id, part.fault_level, sorted(part.fault_code or ()))
        for part in faults
    )


def render_node_entry(node: str, record: NodeRecord) -> str:
    """Return the value of a node's member in cluster-info-node-cm; empty lists are ``null``."""
    devices = [_device_tree(device, empty=None) for device in record.faults]
    return go_json.encode(
        {
            # Upstream copies by gob, which loses the difference of
            # an empty list and none (clusterd#2.2).
            "FaultDevList": devices or None,
            "NodeStatus": record.status,
            "CmName": NODE_INFO_PREFIX + node,
            "UpdateTime": record.update_time_ms,
        }
    )


def _beat_tree(beat: NodeBeat) -> dict[str, Any]:
    return {"HeartbeatTime": beat.at_seconds, "HeartbeatInterval": beat.interval_seconds}


def _with_beat(parts: dict[str, Any], beat: NodeBeat) -> dict[str, Any]:
    """Encode generation C: the heartbeat is between the faults and the status."""
    faults, status = parts["FaultDevList"], parts["NodeStatus"]
    return {"FaultDevList": faults, **_beat_tree(beat), "NodeStatus": status}


def _inner_tree(devices: Iterable[FaultDevice | None] | None, status: str) -> dict[str, Any]:
    # Null and an empty list have different hashes (clusterd#1.4).
    listed = None
    if devices is not None:
        listed = [None if device is None else _device_tree(device, empty=[]) for device in devices]
    return {"FaultDevList": listed, "NodeStatus": status}


def _device_tree(device: FaultDevice, *, empty: list[str] | None) -> dict[str, Any]:
    codes = device.fault_code
    return {
        "DeviceType": device.device_type,
        "DeviceId": device.device_id,
        # Upstream's copy turns an empty list into null, its hash does not (clusterd#2.2).
        "FaultCode": empty if codes is not None and not codes else codes,
        "FaultLevel": device.fault_level,
    }


def _milliseconds(text: str) -> int:
    # ``fromisoformat`` takes more forms than Go, such as a date alone.
    if _RFC3339.fullmatch(text) is None:
        return 0
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return round(parsed.timestamp() * 1000)
