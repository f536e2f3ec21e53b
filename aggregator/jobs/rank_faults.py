"""The faults of a node that hit a job, one by one, and what they do to its ranks.

Source: ``clusterd#6``. Without rank tables: a job is where its pods are, and has the chips
that they have. A pod that has none yet is hit by what concerns the whole node, and not by the
switch, which only its chips would use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.cluster_documents.published_node import FILTER
from contract.pages.aggregator_status import RankFaultDevice

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from aggregator.cluster_documents.published_node import PublishedNode
    from contract.documents.cluster_device import CodeFault, DeviceRecord
    from contract.documents.node_info import NodeRecord
    from contract.documents.switch_info import SwitchEvent

NPU = "NPU"
SWITCH = "Switch"
NODE = "Node"
WHOLE = "-1"
"""The device id of what is not a single device."""

SEPARATE = "SeparateNPU"
SUB_HEALTH = "SubHealthFault"
_UNHEALTHY = "UnHealthy"
_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999. A node may claim a later time, which is none."""
_FREE_RESTART = "FreeRestartNPU"
_BY_SWITCH = {_UNHEALTHY: SEPARATE, "SubHealthy": SUB_HEALTH}


class RankFault(msgspec.Struct, frozen=True):
    """What a rank suffers from. ``chip`` is empty where every rank of the job on the node does."""

    chip: str
    code: str
    level: str
    time_ms: int = 0


def device_id_of(chip: str) -> str:
    """Return ``3`` for ``Ascend910-3``; ``-1`` for a name without a number."""
    return chip.partition("-")[2].partition("-")[0] or WHOLE


def is_quiet(published: PublishedNode, *, ready: bool) -> bool:
    """Return whether nothing at all is wrong on the node, which is so for most of them."""
    return (
        ready
        and (published.device is None or not published.device.faults)
        and (
            published.switch is None
            or (not published.switch.events and published.switch.status not in _BY_SWITCH)
        )
        and (
            published.node is None
            or (not published.node.faults and published.node.status != _UNHEALTHY)
        )
        and not published.hidden_events
        and not _filtered(published)
    )


def fault_devices(
    published: PublishedNode, chips: Collection[str], *, ready: bool
) -> list[RankFaultDevice]:
    """Yield everything on the node that hits pods with these chips, withheld faults, too."""
    faults: list[RankFaultDevice] = []
    if chips:
        if published.switch is not None:
            faults += (
                _of_switch(event, published.switch.level) for event in published.switch.events
            )
        faults += (
            _of_switch(withheld.event, withheld.level) for withheld in published.hidden_events
        )
    if not ready:
        faults.append(RankFaultDevice(WHOLE, NODE, "", SEPARATE))
    faults += of_parts(published.node)
    hidden = _counting(_filtered(published), published.device, chips)
    for fault in (*_of_chips(published.device, chips), *hidden):
        device_id = device_id_of(fault.chip)
        faults.append(RankFaultDevice(device_id, NPU, fault.code, fault.level, _began_ms(fault)))
    return faults


def rank_faults(
    published: PublishedNode, chips: Collection[str], *, ready: bool
) -> list[RankFault]:
    """Return the faults that hit the ranks of the job on the node; withheld ones do not count."""
    faults: list[RankFault] = []
    if chips and published.switch is not None and published.switch.status in _BY_SWITCH:
        codes = _joined(event.assembled_fault_code for event in published.switch.events)
        faults.append(RankFault("", codes, _BY_SWITCH[published.switch.status]))
    if published.node is not None and published.node.status == _UNHEALTHY:
        parts = (code for device in published.node.faults for code in device.fault_code or ())
        faults.append(RankFault("", _joined(parts), SEPARATE))
    if not ready:
        faults.append(RankFault("", "", SEPARATE))
    for fault in _of_chips(published.device, chips):
        faults.append(RankFault(fault.chip, fault.code, fault.level, _began_ms(fault)))
    return faults


def _filtered(published: PublishedNode) -> list[CodeFault]:
    """Return the chip faults that only a filter withholds."""
    return [withheld.fault for withheld in published.hidden if withheld.why == FILTER]


def _began_ms(fault: CodeFault) -> int:
    """Return when a fault began; 0 where the writer gave no time.

    Public faults are published with seconds (clusterd#3.2).
    """
    at_ms = max(fault.time_ms, 0) * (1000 if fault.fault_type == "PublicFault" else 1)
    return at_ms if at_ms <= _LATEST_MS else 0


def _joined(codes: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(codes))


def of_parts(record: NodeRecord | None) -> Iterator[RankFaultDevice]:
    """Yield the parts of the server, one for each of their codes."""
    for device in () if record is None else record.faults:
        for code in device.fault_code or ():
            yield RankFaultDevice(
                str(device.device_id),
                device.device_type,
                code,
                device.fault_level,
                0 if record is None else record.update_time_ms,
            )


def _of_switch(event: SwitchEvent, level: str) -> RankFaultDevice:
    return RankFaultDevice(
        WHOLE,
        SWITCH,
        event.assembled_fault_code,
        level,
        event.alarm_raised_time,
        str(event.switch_chip_id),
        str(event.switch_port_id),
        str(event.alarm_raised_time),
    )


def _of_chips(record: DeviceRecord | None, chips: Collection[str]) -> Iterator[CodeFault]:
    if record is not None:
        yield from _counting(record.faults, record, chips)


def _counting(
    faults: Iterable[CodeFault], record: DeviceRecord | None, chips: Collection[str]
) -> Iterator[CodeFault]:
    """Yield the faults that count: a restart that waits for a free chip hits no rank while the chip
    is in no list.
    """
    for fault in faults:
        if fault.chip not in chips:
            continue
        if fault.level == _FREE_RESTART and not _is_listed(record, fault.chip):
            continue
        yield fault


def _is_listed(record: DeviceRecord | None, chip: str) -> bool:
    return record is not None and (chip in record.unhealthy or chip in record.network_unhealthy)
