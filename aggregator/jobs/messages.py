"""From the faults that hit a job to its message (``docs/spec/clusterd.md#5.4``).

Of a code that a device has twice the worse level counts, in whatever order they come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.grpc.fault_messages import (
    FAULT,
    NORMAL,
    DeviceFaultInfo,
    FaultMsgSignal,
    NodeFaultInfo,
    SwitchFaultInfo,
)
from aggregator.jobs.health import Health, health_of_level
from aggregator.jobs.rank_faults import NPU, SWITCH
from contract.codes.levels import ChipLevel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aggregator.jobs.rank_faults import RankFaultDevice

_BY_SERIOUSNESS = {level.value: -rank for rank, level in enumerate(ChipLevel)}
_LEAST = -len(_BY_SERIOUSNESS)


def message(job: str, nodes: Iterable[NodeFaultInfo]) -> FaultMsgSignal:
    """Return the message about a job that is hit on these nodes."""
    ordered = tuple(sorted(nodes, key=lambda node: (node.node_ip, node.node_name)))
    return FaultMsgSignal(job, FAULT if ordered else NORMAL, ordered)


def node_info(
    name: str, ip: str, serial_number: str, faults: Iterable[RankFaultDevice]
) -> NodeFaultInfo:
    """Return the part of a message about one node; its devices are sorted by id and type
    as texts.
    """
    by_device: dict[tuple[str, str], list[RankFaultDevice]] = {}
    for fault in faults:
        by_device.setdefault((fault.device_id, fault.device_type), []).append(fault)
    devices = tuple(_device(members) for _, members in sorted(by_device.items()))
    return NodeFaultInfo(name, ip, serial_number, worst_word(devices), devices)


def worst_word(devices: Iterable[DeviceFaultInfo]) -> str:
    """Return the health of the worst of these devices."""
    return max((_BY_WORD[one.fault_level] for one in devices), default=Health.HEALTHY).word


_BY_WORD = {health.word: health for health in Health}


def _device(faults: Sequence[RankFaultDevice]) -> DeviceFaultInfo:
    first = faults[0]
    health = max(health_of_level(fault.level) for fault in faults)
    levels = worst_levels(
        ((fault.code, fault.level) for fault in faults), is_chip=first.device_type == NPU
    )
    codes = tuple(sorted(levels))
    return DeviceFaultInfo(
        first.device_id,
        first.device_type,
        codes,
        health.word,
        tuple(levels[code] for code in codes),
        _switch_faults(faults) if first.device_type == SWITCH else (),
    )


def worst_levels(faults: Iterable[tuple[str, str]], *, is_chip: bool) -> dict[str, str]:
    """Return the level of each code, the codes in the order in which they come first.

    An empty code is none. For a chip, a level that is not a chip's counts least: the chip's health
    shows how bad it is.
    """
    worst: dict[str, str] = {}
    for code, level in faults:
        if code and (code not in worst or _is_worse(level, worst[code], is_chip)):
            worst[code] = level
    return worst


def _is_worse(level: str, other: str, is_chip: bool) -> bool:
    if is_chip:
        return _BY_SERIOUSNESS.get(level, _LEAST) > _BY_SERIOUSNESS.get(other, _LEAST)
    return health_of_level(level) >= health_of_level(other)


def _switch_faults(faults: Iterable[RankFaultDevice]) -> tuple[SwitchFaultInfo, ...]:
    """Return one fault for each event; one that is raised to another level stays one event."""
    events: dict[tuple[str, str, str], SwitchFaultInfo] = {}
    for fault in faults:
        key = (fault.code, fault.switch_chip, fault.switch_port)
        known = events.get(key)
        if known is None:
            info = SwitchFaultInfo(*key, fault.switch_time, fault.level)
        elif health_of_level(fault.level) > health_of_level(known.fault_level):
            info = SwitchFaultInfo(*key, known.fault_time, fault.level)
        else:
            continue
        events[key] = info
    return tuple(events.values())
