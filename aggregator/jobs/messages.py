"""Messages about jobs and about the whole cluster (``docs/spec/clusterd.md#5.4``), and what
hits a job on one node (``docs/spec/clusterd.md#6``), from which they are made.

Of a code that a device has twice the worse level counts, in whatever order they come (B26). In the
message about the cluster are nodes with a device-info on which something is wrong; a healthy switch
is not a fault. ``Health`` is what levels and states mean in the words of these messages.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from aggregator.grpc.interfaces import (
    FAULT,
    NORMAL,
    DeviceFaultInfo,
    FaultMsgSignal,
    NodeFaultInfo,
    SwitchFaultInfo,
)
from aggregator.jobs.rank_faults import (
    NODE,
    NPU,
    SWITCH,
    WHOLE,
    device_id_of,
    fault_devices,
    rank_faults,
)
from aggregator.jobs.relations import SEPARATE, SUB_HEALTH, relation_fault_devices
from contract.codes.levels import ChipLevel
from contract.documents.switch_info import event_key
from contract.pages.aggregator_status import RankFaultDevice

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from aggregator.cluster_documents.published_node import PublishedNode
    from aggregator.inputs.node_context import NodeState
    from aggregator.jobs.relations import FaultPlace, Track
    from contract.documents.cluster_device import CodeFault, DeviceRecord
    from contract.documents.node_info import NodeRecord
    from contract.documents.switch_info import SwitchRecord


class Health(IntEnum):
    """The health of a part, node or job in these words; the greater is the worse."""

    HEALTHY = 0
    SUB_HEALTHY = 1
    UNHEALTHY = 2

    @property
    def word(self) -> str:
        """As on the wire."""
        return _WORDS[self]


_WORDS = ("Healthy", "SubHealthy", "UnHealthy")

_BY_LEVEL = {
    **dict.fromkeys(
        ("SubHealthFault", "SubHealth", "PreSeparateFault", "PreSeparate", "PreSeparateNPU"),
        Health.SUB_HEALTHY,
    ),
    **dict.fromkeys(
        ("RestartRequest", "RestartBusiness", "RestartNPU", "FreeRestartNPU"), Health.UNHEALTHY
    ),
    **dict.fromkeys(
        ("SeparateNPU", "ManuallySeparateNPU", "SeparateFault", "Separate"), Health.UNHEALTHY
    ),
}

_BY_STATUS = {
    "SubHealthy": Health.SUB_HEALTHY,
    "PreSeparate": Health.SUB_HEALTHY,
    "UnHealthy": Health.UNHEALTHY,
}


def health_of_level(level: str) -> Health:
    """Return the health that a level of a chip, switch or part means; healthy for an
    unknown one.
    """
    return _BY_LEVEL.get(level, Health.HEALTHY)


def health_of_status(status: str) -> Health:
    """Return the health that a ``NodeStatus`` means; healthy for an unknown one."""
    return _BY_STATUS.get(status, Health.HEALTHY)


_BY_SERIOUSNESS = {level.value: -rank for rank, level in enumerate(ChipLevel)}
_UNKNOWN_SERIOUSNESS = -len(_BY_SERIOUSNESS)
_PRE_SEPARATE = "PreSeparateFault"


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
    return max((_BY_WORD[device.fault_level] for device in devices), default=Health.HEALTHY).word


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
        return _BY_SERIOUSNESS.get(level, _UNKNOWN_SERIOUSNESS) > _BY_SERIOUSNESS.get(
            other, _UNKNOWN_SERIOUSNESS
        )
    return health_of_level(level) >= health_of_level(other)


def _switch_faults(faults: Iterable[RankFaultDevice]) -> tuple[SwitchFaultInfo, ...]:
    """Return one fault for each event; one that is raised to another level stays one event."""
    events: dict[tuple[str, str, str], SwitchFaultInfo] = {}
    for fault in faults:
        key = (fault.code, fault.switch_chip, fault.switch_port)
        before = events.get(key)
        if before is None:
            info = SwitchFaultInfo(*key, fault.switch_time, fault.level)
        elif health_of_level(fault.level) > health_of_level(before.fault_level):
            info = SwitchFaultInfo(*key, before.fault_time, fault.level)
        else:
            continue
        events[key] = info
    return tuple(events.values())


def cluster_info(
    name: str, ip: str, serial_number: str, published: PublishedNode, *, ready: bool
) -> NodeFaultInfo | None:
    """Return the node's part of the cluster's message; ``None`` where nothing is wrong."""
    if published.device is None:
        return None
    devices = (
        *_of_chips(published.device),
        *_of_switch(published.switch),
        *_of_parts(published.node),
        *(() if ready else (DeviceFaultInfo(WHOLE, NODE, (), Health.UNHEALTHY.word),)),
    )
    if not devices:
        return None
    return NodeFaultInfo(name, ip, serial_number, worst_word(devices), devices)


def _of_chips(record: DeviceRecord) -> Iterator[DeviceFaultInfo]:
    by_chip: dict[str, list[CodeFault]] = {}
    for fault in record.faults:
        by_chip.setdefault(device_id_of(fault.chip), []).append(fault)
    for device_id, faults in sorted(by_chip.items()):
        levels = worst_levels(((fault.code, fault.level) for fault in faults), is_chip=True)
        health = max(health_of_level(fault.level) for fault in faults)
        yield DeviceFaultInfo(device_id, NPU, tuple(levels), health.word, tuple(levels.values()))


def _of_switch(record: SwitchRecord | None) -> Iterator[DeviceFaultInfo]:
    if record is None:
        return
    health = health_of_status(record.status)
    if not record.events and health is Health.HEALTHY:
        return
    levels = {key: level for key, _, level in record.times or ()}
    faults = []
    for event in record.events:
        code, chip, port = event.assembled_fault_code, event.switch_chip_id, event.switch_port_id
        level = levels.get(event_key(event), "")
        times = str(event.alarm_raised_time)
        faults.append(SwitchFaultInfo(code, str(chip), str(port), times, level))
    codes = tuple(fault.fault_code for fault in faults)
    yield DeviceFaultInfo(WHOLE, SWITCH, codes, health.word, (), tuple(faults))


def _of_parts(record: NodeRecord | None) -> Iterator[DeviceFaultInfo]:
    """Yield the parts of a server with their faults.

    A part that is to be isolated is as bad as the node, which waits until its chips are free.
    """
    if record is None:
        return
    for device in record.faults:
        health = health_of_level(device.fault_level)
        if device.fault_level == _PRE_SEPARATE:
            health = health_of_status(record.status)
        codes = tuple(device.fault_code or ())
        yield DeviceFaultInfo(str(device.device_id), device.device_type, codes, health.word)


_BY_STRATEGY = {SUB_HEALTH: Health.SUB_HEALTHY, SEPARATE: Health.UNHEALTHY}
_MILD = frozenset({"NotHandleFault", "PreSeparate", "PreSeparateNPU"})
_SUB_HEALTH_FAULT = "SubHealthFault"


class NodeImpact(msgspec.Struct, frozen=True):
    """What hits a job on a node. ``since_ms`` is the wall time at which the first of it was
    received.
    """

    info: NodeFaultInfo
    faults: tuple[RankFaultDevice, ...]
    health: Health
    since_ms: int


def node_impact(
    node: NodeState,
    published: PublishedNode,
    chips: Collection[str],
    tracks: Mapping[FaultPlace, Track],
    *,
    ready: bool,
    now_ms: int,
) -> NodeImpact | None:
    """Return what hits a job that has these chips on ``node``; ``None`` where nothing does."""
    faults = fault_devices(published, chips, ready=ready)
    faults += relation_fault_devices(node.name, tracks)
    if not faults:
        return None
    info = node_info(node.name, node.ip, node.serial_number, faults)
    health = _health(published, chips, tracks, node.name, ready=ready)
    return NodeImpact(info, tuple(faults), health, _since_ms(published, chips, now_ms))


def _health(
    published: PublishedNode,
    chips: Collection[str],
    tracks: Mapping[FaultPlace, Track],
    node: str,
    *,
    ready: bool,
) -> Health:
    healths = [_rank_health(fault.level) for fault in rank_faults(published, chips, ready=ready)]
    healths += [
        _BY_STRATEGY[track.result]
        for place, track in tracks.items()
        if place.node == node and track.result
    ]
    if chips and published.switch is not None and published.switch.status != "PreSeparate":
        healths.append(health_of_status(published.switch.status))
    return max(healths, default=Health.HEALTHY)


def _rank_health(level: str) -> Health:
    """Return the health of a rank by a level: a pre-separation is healthy, an unknown
    level is not.
    """
    if level == _SUB_HEALTH_FAULT:
        return Health.SUB_HEALTHY
    return Health.HEALTHY if level in _MILD else Health.UNHEALTHY


def _since_ms(published: PublishedNode, chips: Collection[str], now_ms: int) -> int:
    received: Iterable[int | None] = (
        published.received_ms.get(fault.chip, {}).get(fault.code)
        for fault in (() if published.device is None else published.device.faults)
        if fault.chip in chips
    )
    return min((at_ms for at_ms in received if at_ms is not None), default=now_ms)
