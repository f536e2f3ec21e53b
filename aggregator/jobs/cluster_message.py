"""What is wrong on a node, of all jobs and none (``docs/spec/clusterd.md#5.4``, "Cluster view").

Only nodes with a device-info are reported, and only where something is wrong. A healthy switch is
no fault, and of the faults of a chip the worst one counts, in whatever order they come (B26).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.grpc.fault_messages import DeviceFaultInfo, NodeFaultInfo, SwitchFaultInfo
from aggregator.jobs.health import Health, health_of_level, health_of_status
from aggregator.jobs.messages import worst_levels, worst_word
from aggregator.jobs.rank_faults import NODE, NPU, SWITCH, WHOLE, device_id_of
from contract.documents.switch_info import event_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator.cluster_documents.published_node import PublishedNode
    from contract.documents.cluster_device import CodeFault, DeviceRecord
    from contract.documents.node_info import NodeRecord
    from contract.documents.switch_info import SwitchRecord

_PRE_SEPARATE = "PreSeparateFault"


def cluster_info(
    name: str, ip: str, serial_number: str, published: PublishedNode, *, ready: bool
) -> NodeFaultInfo | None:
    """Return the node's part of the cluster's message; ``None`` where nothing is wrong."""
    if published.device is None:
        return None
    devices = (
        *_chips(published.device),
        *_switch(published.switch),
        *_parts(published.node),
        *(() if ready else (DeviceFaultInfo(WHOLE, NODE, (), Health.UNHEALTHY.word),)),
    )
    if not devices:
        return None
    return NodeFaultInfo(name, ip, serial_number, worst_word(devices), devices)


def _chips(record: DeviceRecord) -> Iterator[DeviceFaultInfo]:
    by_chip: dict[str, list[CodeFault]] = {}
    for fault in record.faults:
        by_chip.setdefault(device_id_of(fault.chip), []).append(fault)
    for device_id, faults in sorted(by_chip.items()):
        levels = worst_levels(((fault.code, fault.level) for fault in faults), is_chip=True)
        health = max(health_of_level(fault.level) for fault in faults)
        yield DeviceFaultInfo(device_id, NPU, tuple(levels), health.word, tuple(levels.values()))


def _switch(record: SwitchRecord | None) -> Iterator[DeviceFaultInfo]:
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


def _parts(record: NodeRecord | None) -> Iterator[DeviceFaultInfo]:
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
