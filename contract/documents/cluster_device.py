"""One node's device record as the aggregator keeps it, and its entry in cluster-info-device.

Sources: ``docs/spec/clusterd.md#1.6`` (splitting and order), 2.2 and 2.3 (merge and bytes), 3.8
(pre-separation). Lists are trimmed (defect B39).
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from contract.codes.families import resource_of
from contract.codes.levels import ChipLevel, most_serious
from contract.go import encode as go_json
from contract.names import device_info_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.documents.device_info import DeviceFault, DeviceInfo

_MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU.value

_PARAMETER_PLANE = frozenset({"81078607", "110001024", "110000002", "81078603"})
"""Codes of the network that never pre-separate a chip (clusterd#3.8)."""

_LEAVES_IN_PLACE = frozenset(
    {
        ChipLevel.NOT_HANDLE_FAULT.value,
        ChipLevel.SUB_HEALTH_FAULT.value,
        ChipLevel.NORMAL_NPU.value,
        ChipLevel.PRE_SEPARATE_NPU.value,
        "NormalNetwork",
    }
)


class CodeFault(msgspec.Struct, frozen=True, order=True):
    """One fault code of one chip. The field order is the sort order of the wire.

    ``time_ms`` is -1 for a manual separation without a code. ``listed_level`` is the level of the
    code's own entry in the time map; it is empty where the writer gave none.
    """

    fault_type: str
    chip: str
    level: str
    code: str
    time_ms: int
    listed_level: str


class DeviceRecord(msgspec.Struct, frozen=True):
    """What a node reported last. Lists and faults are sorted; ``update_time`` is in seconds."""

    chip_type: str
    available: tuple[str, ...]
    unhealthy: tuple[str, ...]
    network_unhealthy: tuple[str, ...]
    recovering: tuple[str, ...]
    faults: tuple[CodeFault, ...]
    update_time: int
    super_pod_id: int
    rack_id: int
    server_index: int

    @property
    def chips(self) -> frozenset[str]:
        """Every chip that is in a list or has a fault."""
        lists = (self.available, self.unhealthy, self.network_unhealthy, self.recovering)
        return frozenset().union(*lists, (fault.chip for fault in self.faults))


def device_record(info: DeviceInfo) -> DeviceRecord:
    """Turn a verified device-info into a record: one fault per code, everything sorted."""
    return DeviceRecord(
        chip_type=info.device_type,
        available=_trimmed(info.free),
        unhealthy=_trimmed(info.unhealthy),
        network_unhealthy=_trimmed(info.network_unhealthy),
        recovering=_trimmed(info.recovering),
        faults=tuple(sorted(entry for fault in info.faults for entry in split(fault))),
        update_time=info.update_time,
        super_pod_id=info.super_pod_id,
        rack_id=info.rack_id,
        server_index=info.server_index,
    )


def _trimmed(names: tuple[str, ...]) -> tuple[str, ...]:
    # Upstream does not trim: a chip would have a name with a leading blank (defect B39).
    trimmed = tuple(sorted(name.strip() for name in names if name.strip()))
    # The tuple that many nodes share (``device_info``), where there is nothing to trim.
    return names if names == trimmed else trimmed


def split(fault: DeviceFault) -> Iterable[CodeFault]:
    """Return one fault per code of an object of the wire (clusterd#1.6)."""
    times = fault.fault_time_and_level_map or {}
    # As upstream: all spaces go before the split (clusterd#1.6).
    for code in fault.fault_code.replace(" ", "").split(","):
        listed = times.get(code)
        # A separation whose code is gone has no code in the document (clusterd#1.6).
        if not code and fault.fault_level == _MANUAL:
            named, level, time_ms, listed_level = _MANUAL, _MANUAL, -1, _MANUAL
        elif listed is not None:
            named, level, time_ms = code, listed.fault_level, listed.fault_time
            listed_level = listed.fault_level
        else:
            named, level, time_ms, listed_level = code, fault.fault_level, 0, ""
        yield CodeFault(fault.fault_type, fault.npu_name, level, named, time_ms, listed_level)


def healed(record: DeviceRecord) -> DeviceRecord:
    """Return ``record`` without any fault.

    The free list is not widened: a reader takes it as it is, and no report shows that a chip that
    was isolated may be used (``docs/spec/consumers.md#7.1``, M14).
    """
    return msgspec.structs.replace(
        record, unhealthy=(), network_unhealthy=(), recovering=(), faults=()
    )


def pre_separates(level: str, code: str) -> bool:
    """Return whether a fault with this level and code is for ``pre_separate_device`` to decide
    about.
    """
    return level == ChipLevel.PRE_SEPARATE_NPU and code not in _PARAMETER_PLANE


def pre_separate_device(record: DeviceRecord, used: frozenset[str] | None) -> DeviceRecord:
    """Decide about chips whose fault is a pre-separation (3.8, M15).

    Such a chip is not schedulable; one that a pod uses stays healthy until the pod is done, unless
    another fault makes it unhealthy. ``used`` is ``None`` where it is not known: then the lists
    stay as the node reported them.
    """
    if used is None:
        return record
    chips = {fault.chip for fault in record.faults if pre_separates(fault.level, fault.code)}
    if not chips:
        return record
    condemned = {
        fault.chip
        for fault in record.faults
        if fault.fault_type != "CardNetworkUnhealthy" and fault.level not in _LEAVES_IN_PLACE
    }
    spared = (chips & used) - condemned
    return msgspec.structs.replace(
        record,
        available=tuple(name for name in record.available if name not in chips),
        unhealthy=tuple(sorted({*record.unhealthy, *(chips - used)} - spared)),
    )


def render_device_entry(node: str, record: DeviceRecord, update_time: int) -> str:
    """Return the value of a node's member in cluster-info-device, stamped with ``update_time``."""
    key = resource_of(record.chip_type)
    return go_json.encode(
        {
            # All five keys, also empty: of a missing one a reader keeps the earlier value (M5).
            "DeviceList": {
                key: ",".join(record.available),
                f"{key}-Fault": _render_faults(record.faults),
                f"{key}-NetworkUnhealthy": ",".join(record.network_unhealthy),
                f"{key}-Recovering": ",".join(record.recovering),
                f"{key}-Unhealthy": ",".join(record.unhealthy),
            },
            "UpdateTime": update_time,
            "CmName": device_info_name(node),
            "SuperPodID": record.super_pod_id,
            "RackID": record.rack_id,
            "ServerIndex": record.server_index,
        }
    )


def _render_faults(faults: tuple[CodeFault, ...]) -> str:
    if not faults:
        return "[]"
    # Stable, so the codes of a group keep the order of the record (clusterd#2.3).
    by_chip = sorted(faults, key=lambda fault: (fault.chip, fault.fault_type))
    groups = groupby(by_chip, key=lambda fault: (fault.chip, fault.fault_type))
    return go_json.encode([_merge(chip, kind, tuple(members)) for (chip, kind), members in groups])


def _merge(chip: str, fault_type: str, members: tuple[CodeFault, ...]) -> dict[str, go_json.Value]:
    level = most_serious(_level(fault.level) for fault in members).value
    # Manual separations are in the level only, neither in the codes nor in the map (clusterd#2.3).
    coded = [fault for fault in members if fault.level != _MANUAL]
    # Of a code that is there twice the later one stays (clusterd#2.3).
    times: dict[str, go_json.Value] = {
        fault.code: {"fault_time": fault.time_ms, "fault_level": fault.listed_level}
        for fault in coded
    }
    return {
        "fault_type": fault_type,
        "npu_name": chip,
        "large_model_fault_level": level,
        "fault_level": level,
        "fault_handling": level,
        "fault_code": ",".join(fault.code for fault in coded),
        "fault_time_and_level_map": go_json.sorted_map(times),
    }


def _level(name: str) -> ChipLevel:
    try:
        return ChipLevel(name)
    except ValueError:
        # Upstream shows an unknown level so, and keeps its name in the map only (clusterd#2.3).
        return ChipLevel.NORMAL_NPU
