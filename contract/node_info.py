"""The node-info document and its entry in cluster-info-node-cm.

Sources: ``spec/clusterd.md`` 1.4, 1.5 and 2.2.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from contract import go_json
from contract.errors import CheckCodeMismatch, DocumentError
from contract.go_decode import GoStruct, Int64, decode
from contract.names import NODE_INFO_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DATA_KEY = "NodeInfo"
TIME_KEY = "updateTime"

_LEVELS = ("SeparateFault", "PreSeparateFault", "NotHandleFault")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)")


class FaultDevice(GoStruct, frozen=True):
    """One faulty part of a server: a CPU, a power supply, a disk."""

    device_type: str = msgspec.field(default="", name="DeviceType")
    device_id: Int64 = msgspec.field(default=0, name="DeviceId")
    fault_code: list[str] | None = msgspec.field(default=None, name="FaultCode")
    fault_level: str = msgspec.field(default="", name="FaultLevel")


class _Inner(GoStruct, frozen=True):
    fault_dev_list: list[FaultDevice | None] | None = msgspec.field(
        default=None, name="FaultDevList"
    )
    node_status: str = msgspec.field(default="", name="NodeStatus")


class _Outer(GoStruct, frozen=True):
    node_info: _Inner = msgspec.field(default=_Inner(), name="NodeInfo")
    check_code: str = msgspec.field(default="", name="CheckCode")


class NodeRecord(msgspec.Struct, frozen=True):
    """What a node said about itself. ``update_time_ms`` is 0 where the writer gave no time."""

    faults: tuple[FaultDevice, ...]
    status: str
    update_time_ms: int


def decode_node_info(name: str, data: Mapping[str, str]) -> NodeRecord:
    """Read and verify the node-info ConfigMap ``name``.

    A ``null`` in the device list is dropped, after the check (defects B4 and B5). Raises
    ``DocumentError``; ``CheckCodeMismatch`` when the content is not what was signed.
    """
    text = data.get(DATA_KEY)
    if text is None:
        raise DocumentError(name, DATA_KEY, "the data key is missing")
    outer = decode(text, _Outer, name, DATA_KEY)
    inner = outer.node_info
    expected = go_json.check_code(_inner_tree(inner.fault_dev_list, inner.node_status))
    if outer.check_code != expected:
        raise CheckCodeMismatch(
            name, "CheckCode", f"is {outer.check_code!r}, the content has {expected}"
        )
    faults = tuple(device for device in inner.fault_dev_list or () if device is not None)
    return NodeRecord(faults, inner.node_status, _milliseconds(data.get(TIME_KEY, "")))


def encode_node_info(
    faults: Iterable[FaultDevice], status: str, update_time: str
) -> dict[str, str]:
    """The data of a node-info ConfigMap. ``update_time`` is RFC 3339 text."""
    inner = _inner_tree(list(faults), status)
    outer = {"NodeInfo": inner, "CheckCode": go_json.check_code(inner)}
    return {DATA_KEY: go_json.encode(outer), TIME_KEY: update_time}


def pre_separate_node(record: NodeRecord, chips_in_use: bool | None) -> NodeRecord:
    """Decide the status of a node whose worst fault is a pre-separation (3.8).

    Busy chips keep it ``Healthy``, idle ones make it ``UnHealthy``; ``None`` (nobody knows) leaves
    what the node said.
    """
    worst = next((level for level in _LEVELS if _has(record, level)), None)
    if chips_in_use is None or record.status == "UnHealthy" or worst != "PreSeparateFault":
        return record
    return msgspec.structs.replace(record, status="Healthy" if chips_in_use else "UnHealthy")


def _has(record: NodeRecord, level: str) -> bool:
    return any(device.fault_level == level for device in record.faults)


def render_node_entry(node: str, record: NodeRecord) -> str:
    """The value of a node's member in cluster-info-node-cm. Empty lists are ``null`` there."""
    devices = [_device_tree(device, empty=None) for device in record.faults]
    return go_json.encode(
        {
            "FaultDevList": devices or None,
            "NodeStatus": record.status,
            "CmName": NODE_INFO_PREFIX + node,
            "UpdateTime": record.update_time_ms,
        }
    )


def _inner_tree(devices: Iterable[FaultDevice | None] | None, status: str) -> dict[str, Any]:
    listed = None
    if devices is not None:
        listed = [None if device is None else _device_tree(device, empty=[]) for device in devices]
    return {"FaultDevList": listed, "NodeStatus": status}


def _device_tree(device: FaultDevice, *, empty: list[str] | None) -> dict[str, Any]:
    codes = device.fault_code
    return {
        "DeviceType": device.device_type,
        "DeviceId": device.device_id,
        "FaultCode": empty if codes is not None and not codes else codes,
        "FaultLevel": device.fault_level,
    }


def _milliseconds(text: str) -> int:
    if _RFC3339.fullmatch(text) is None:
        return 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return round(moment.timestamp() * 1000)
