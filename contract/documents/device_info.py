"""The device-info document: what a node reports about its chips.

``encode`` writes the data keys byte for byte as upstream's device plugin does, ``decode`` reads
them by ClusterD's rules. Sources: ``device-plugin#1.2`` to 1.6, ``clusterd#1.3``,
1.4 and 1.6.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from contract.codes.families import SwitchInfo, device_type_of, resource_of
from contract.codes.levels import ChipLevel
from contract.errors import CheckCodeMismatch, DocumentError
from contract.go import encode as go_json
from contract.go.decode import GoStruct, Int32, Int64
from contract.go.decode import decode as decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.codes.families import Family

DEVICE_INFO_KEY = "DeviceInfoCfg"
SWITCH_INFO_KEY = "SwitchInfoCfg"
MANUALLY_SEPARATE_KEY = "ManuallySeparateNPU"
UPGRADE_REASON_KEY = "UpgradeFaultReason"
DESCRIPTION_KEY = "Description"

DESCRIPTION = (
    "The field[xxx.com/xxx] is sunset. Volcano has the ability to maintain the usage status of "
    "chips on its own, and can temporarily use this field by configuring the Volcano parameter "
    "'self-maintain-available-card'"
)
"""The notice upstream puts into every document; no program reads it (``device-plugin#1.2``)."""

REFRESH_SECONDS = 300.0
"""An unchanged document is written again, so that readers see its age (``device-plugin#1.7``)."""

CARD_UNHEALTHY = "CardUnhealthy"
CARD_NETWORK_UNHEALTHY = "CardNetworkUnhealthy"

UNKNOWN_ID = -2
"""Super-pod id and server index of a card that has none (``docs/spec/device-plugin.md#1.6``)."""
_LEVELS = frozenset(ChipLevel)
_SHARED_LENGTH = 512
LEAD_SECONDS = 5
"""How far ``UpdateTime`` may be ahead of the clock (``docs/decisions/003``, consumers#7.1, M7).

A stamp that would be further ahead waits.
"""


class TimeAndLevel(GoStruct, frozen=True):
    """When a code was first seen (epoch milliseconds) and its own level."""

    fault_time: Int64 = 0
    fault_level: str = ""


class DeviceFault(GoStruct, frozen=True):
    """One entry of the fault list: all codes of one chip and one fault type."""

    fault_type: str = ""
    npu_name: str = ""
    large_model_fault_level: str = ""
    fault_level: str = ""
    fault_handling: str = ""
    fault_code: str = ""
    fault_time_and_level_map: dict[str, TimeAndLevel] | None = None


class DeviceInfo(msgspec.Struct, frozen=True):
    """The content of a device-info document.

    ``update_time`` is in epoch seconds. ``faults_problem`` is why the fault list could not be
    read; its reader then knows no faults but keeps the lists. ``manually_separated`` and
    ``upgrade_reasons`` are the texts of their keys. ``switch_info`` is the text of its key or
    ``None`` where there is none.
    """

    device_type: str
    free: tuple[str, ...]
    unhealthy: tuple[str, ...]
    network_unhealthy: tuple[str, ...]
    recovering: tuple[str, ...]
    faults: tuple[DeviceFault, ...]
    update_time: int
    super_pod_id: int = UNKNOWN_ID
    server_index: int = UNKNOWN_ID
    rack_id: int = 0
    manually_separated: str = ""
    upgrade_reasons: str = "{}"
    switch_info: str | None = None
    faults_problem: str | None = None


class _DeviceInfoInner(GoStruct, frozen=True):
    DeviceList: dict[str, str] | None = None
    UpdateTime: Int64 = 0


class _DeviceInfoOuter(GoStruct, frozen=True):
    DeviceInfo: _DeviceInfoInner = _DeviceInfoInner()
    SuperPodID: Int32 = 0
    ServerIndex: Int32 = 0
    CheckCode: str = ""
    RackID: Int32 = 0


def clean_switch_info(family: Family, update_time: int) -> str | None:
    """``SwitchInfoCfg`` of a node whose switch reports nothing (``device-plugin#5.3``)."""
    match family.switch_info:
        case SwitchInfo.NONE:
            return None
        case SwitchInfo.CLEAN:
            return go_json.encode(
                {
                    "FaultCode": [],
                    "FaultLevel": "",
                    "UpdateTime": update_time,
                    "NodeStatus": "Healthy",
                    "FaultTimeAndLevelMap": {},
                }
            )
        case SwitchInfo.ZERO:
            return unread_switch_info()


def unread_switch_info() -> str:
    """Return ``SwitchInfoCfg`` of a node whose switches are not read: neither healthy nor faulty.

    Source: docs/spec/device-plugin.md#5.3.
    """
    return go_json.encode(
        {
            "FaultCode": None,
            "FaultLevel": "",
            "UpdateTime": 0,
            "NodeStatus": "",
            "FaultTimeAndLevelMap": None,
        }
    )


def encode(info: DeviceInfo, family: Family) -> dict[str, str]:
    """Return the data keys of ``info``, as the device plugin of ``family`` writes them."""
    resource = family.resource
    devices = {
        resource: _join(info.free),
        f"{resource}-Unhealthy": _join(info.unhealthy),
        # The list is a text inside the JSON, so it is encoded twice (device-plugin#1.3).
        family.fault_key: encode_faults(info.faults),
    }
    # Families without a parameter plane have three keys (device-plugin#1.3).
    if family.has_network:
        devices[f"{resource}-NetworkUnhealthy"] = _join(info.network_unhealthy)
        devices[f"{resource}-Recovering"] = _join(info.recovering)
    # Go sorts the keys of a map; members of a struct stay in their order (device-plugin#1.3).
    inner: dict[str, go_json.Value] = {
        "DeviceList": go_json.sorted_map(devices),
        "UpdateTime": info.update_time,
    }
    outer: dict[str, go_json.Value] = {
        "DeviceInfo": inner,
        "SuperPodID": info.super_pod_id,
        "ServerIndex": info.server_index,
        # Only the inner object is covered, neither ids nor other keys (device-plugin#1.4).
        "CheckCode": go_json.check_code(inner),
    }
    # Upstream has it on A5 only (device-plugin#1.3).
    if info.rack_id:
        outer["RackID"] = info.rack_id
    data = {
        DESCRIPTION_KEY: DESCRIPTION,
        DEVICE_INFO_KEY: go_json.encode(outer),
        MANUALLY_SEPARATE_KEY: info.manually_separated,
        UPGRADE_REASON_KEY: info.upgrade_reasons,
    }
    if info.switch_info is not None:
        data[SWITCH_INFO_KEY] = info.switch_info
    return data


def encode_faults(faults: tuple[DeviceFault, ...]) -> str:
    """Return the text of the fault list; codes are the sorted keys of the map, as in Go."""
    return go_json.encode([_fault(fault) for fault in faults])


def _fault(fault: DeviceFault) -> dict[str, go_json.Value]:
    members: dict[str, go_json.Value] = msgspec.to_builtins(fault)
    if fault.fault_time_and_level_map is not None:
        members["fault_time_and_level_map"] = go_json.sorted_map(
            msgspec.to_builtins(fault.fault_time_and_level_map)
        )
    return members


def _join(names: tuple[str, ...]) -> str:
    """Return a comma list in bytewise order, as upstream's string set gives it."""
    return ",".join(sorted(names))


def decode(data: Mapping[str, str], document: str) -> DeviceInfo:
    """Read the data keys of ``document`` by ClusterD's rules.

    Raises ``DocumentError``, or ``CheckCodeMismatch`` for a check code that is missing or wrong.
    """
    text = data.get(DEVICE_INFO_KEY)
    if text is None:
        raise DocumentError(document, DEVICE_INFO_KEY, "is missing")
    outer = decode_json(text, _DeviceInfoOuter, document, DEVICE_INFO_KEY)
    _verify(outer, document)
    devices = outer.DeviceInfo.DeviceList or {}
    device_type = device_type_of(devices.keys())
    resource = resource_of(device_type)
    faults, problem = _read_faults(_fault_text(devices, device_type), document)
    return DeviceInfo(
        device_type=device_type,
        free=_split(devices.get(resource)),
        unhealthy=_split(devices.get(f"{resource}-Unhealthy")),
        network_unhealthy=_split(devices.get(f"{resource}-NetworkUnhealthy")),
        recovering=_split(devices.get(f"{resource}-Recovering")),
        faults=faults,
        update_time=outer.DeviceInfo.UpdateTime,
        super_pod_id=outer.SuperPodID,
        server_index=outer.ServerIndex,
        rack_id=outer.RackID,
        manually_separated=data.get(MANUALLY_SEPARATE_KEY, ""),
        upgrade_reasons=data.get(UPGRADE_REASON_KEY, "{}"),
        switch_info=data.get(SWITCH_INFO_KEY),
        faults_problem=problem,
    )


def _verify(outer: _DeviceInfoOuter, document: str) -> None:
    # Of the decoded members: upstream drops unknown ones before it hashes (clusterd#1.4).
    expected = go_json.check_code(
        {
            # A list that is absent is null in the hash, not an empty object (clusterd#1.4).
            "DeviceList": None
            if outer.DeviceInfo.DeviceList is None
            else go_json.sorted_map(outer.DeviceInfo.DeviceList),
            "UpdateTime": outer.DeviceInfo.UpdateTime,
        }
    )
    if outer.CheckCode != expected:
        actual = f"is {outer.CheckCode!r}" if outer.CheckCode else "is missing"
        raise CheckCodeMismatch(
            document, f"{DEVICE_INFO_KEY}.CheckCode", f"{actual}, the content gives {expected!r}"
        )


def _fault_text(devices: Mapping[str, str], device_type: str) -> str:
    text = devices.get(f"{resource_of(device_type)}-Fault")
    # Upstream writes the list of a 310 under the key of the 310P (defect K19).
    if text is None and device_type == "Ascend310":
        text = devices.get(f"{resource_of('Ascend310P')}-Fault")
    return text or ""


def _read_faults(text: str, document: str) -> tuple[tuple[DeviceFault, ...], str | None]:
    if not text or text == "[]":
        return (), None
    try:
        return tuple(decode_json(text, list[DeviceFault], document, "-Fault")), None
    # ClusterD keeps the lists of chips where the fault list cannot be read (clusterd#1.6).
    except DocumentError as error:
        return (), str(error)


def _split(text: str | None) -> tuple[str, ...]:
    # ``split`` would make one empty name of an empty list (clusterd#1.6).
    if not text:
        return ()
    return _shared(text) if len(text) <= _SHARED_LENGTH else tuple(text.split(","))


@lru_cache(maxsize=256)
def _shared(text: str) -> tuple[str, ...]:
    """Return the names in ``text``, one value for all nodes that report the same, as most do.

    Lists that differ share their names.
    """
    return tuple(map(sys.intern, text.split(",")))


def verify_published(data: Mapping[str, str], document: str) -> DeviceInfo:
    """Decode what is about to be published as its readers will, and refuse what they would not
    understand whole. Raises ``DocumentError``.
    """
    info = decode(data, document)
    if info.faults_problem is not None:
        raise DocumentError(document, "-Fault", info.faults_problem)
    for name in (*info.free, *info.unhealthy, *info.network_unhealthy, *_named(info)):
        # Readers compare names as text with those of pods and Nodes (consumers#7.1, M6).
        if not name.startswith(info.device_type + "-") or not name.rpartition("-")[2].isdecimal():
            raise DocumentError(document, "DeviceList", f"{name!r} is not a valid device name")
    # The free list must be a subset of the healthy chips (consumers#7.1, M14).
    if both := set(info.free) & set(info.unhealthy):
        raise DocumentError(document, "DeviceList", f"{sorted(both)} are free and unhealthy")
    for fault in info.faults:
        if fault.fault_level not in _LEVELS:
            raise DocumentError(document, "-Fault", f"{fault.fault_level!r} is not a valid level")
    return info


def _named(info: DeviceInfo) -> list[str]:
    return [fault.npu_name for fault in info.faults]
