"""Adding faults to a record and taking them away, with the lists that follow from them.

Source: ``clusterd#2.3`` (``AddFaultAndFix``, ``DelFaultAndFix``). Unlike there, the lists
stay sorted (defect B17).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.codes.levels import ChipLevel
from contract.documents.cluster_device import CodeFault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from contract.documents.cluster_device import DeviceRecord

PUBLIC_FAULT = "PublicFault"
_NETWORK = "CardNetworkUnhealthy"
# Public faults count as faults of the chip itself, not of its network (clusterd#3.2).
_CARD = frozenset({"CardUnhealthy", PUBLIC_FAULT})

HARMLESS = frozenset(
    {
        ChipLevel.NOT_HANDLE_FAULT.value,
        ChipLevel.SUB_HEALTH_FAULT.value,
        ChipLevel.NORMAL_NPU.value,
        "NormalNetwork",
    }
)
"""Levels at which a chip stays available."""


def add_faults(record: DeviceRecord, faults: Collection[CodeFault]) -> DeviceRecord:
    """Return ``record`` with ``faults`` too; one that is there already is not doubled.

    A chip with one that is not harmless leaves the available list for the one of its type, also
    where the node has the fault, but not the chip in that list.
    """
    # Sets, because the same fault may come from two sources.
    new = set(faults).difference(record.faults)
    serious = [fault for fault in faults if fault.level not in HARMLESS]
    # From all faults, not only the new ones: the lists follow even if the fault was there already.
    card = {fault.chip for fault in serious if fault.fault_type in _CARD}
    network = {fault.chip for fault in serious if fault.fault_type == _NETWORK}
    away = card | network
    return msgspec.structs.replace(
        record,
        available=tuple(chip for chip in record.available if chip not in away),
        unhealthy=_with(record.unhealthy, card),
        network_unhealthy=_with(record.network_unhealthy, network),
        faults=tuple(sorted((*record.faults, *new))) if new else record.faults,
    )


def remove_faults(record: DeviceRecord, faults: Collection[CodeFault]) -> DeviceRecord:
    """Return ``record`` without ``faults``.

    A chip without any other serious fault of a class leaves the unhealthy list of that class. It
    does not become available by that.
    """
    gone = set(faults)
    # The same object comes back where there is nothing to remove, so that no text is rendered.
    if gone.isdisjoint(record.faults):
        return record
    remaining = tuple(fault for fault in record.faults if fault not in gone)
    serious = [fault for fault in remaining if fault.level not in HARMLESS]
    card = {fault.chip for fault in gone if fault.fault_type in _CARD}
    # A chip stays in the list of a class while another serious fault of that class is left.
    card -= {fault.chip for fault in serious if fault.fault_type in _CARD}
    network = {fault.chip for fault in gone if fault.fault_type == _NETWORK}
    network -= {fault.chip for fault in serious if fault.fault_type == _NETWORK}
    return msgspec.structs.replace(
        record,
        unhealthy=tuple(chip for chip in record.unhealthy if chip not in card),
        network_unhealthy=tuple(chip for chip in record.network_unhealthy if chip not in network),
        faults=remaining,
    )


def separate(record: DeviceRecord, chips: Iterable[str]) -> DeviceRecord:
    """Return ``record`` with ``chips`` in manual separation (``clusterd#3.9``): a fault without a
    code, as a device plugin has it.

    A device plugin may begin to name the same chips by another type (``npu-3``).
    """
    # Types are part of the names, and a plugin of another release may name the type otherwise.
    names = {chip if chip in record.chips else _renamed(chip, record) for chip in chips}
    level = ChipLevel.MANUALLY_SEPARATE_NPU.value
    return add_faults(
        record, [CodeFault("CardUnhealthy", chip, level, level, -1, level) for chip in names]
    )


def _renamed(chip: str, record: DeviceRecord) -> str:
    # The number after the last dash is the chip's physical id in both names.
    name = f"{record.chip_type}-{chip.rpartition('-')[2]}"
    return name if name in record.chips else chip


def unlisted(record: DeviceRecord, chips: Collection[str]) -> frozenset[str]:
    """Return those of ``chips`` that are in no list."""
    return frozenset(chips).difference(
        record.available, record.unhealthy, record.network_unhealthy, record.recovering
    )


def list_recovering(record: DeviceRecord, chips: Collection[str]) -> DeviceRecord:
    """Return ``record`` with ``chips`` among those that recover, where they are in no list.

    Such a chip is not schedulable, and running pods are not rescheduled.
    """
    missing = unlisted(record, chips)
    if not missing:
        return record
    return msgspec.structs.replace(record, recovering=_with(record.recovering, missing))


def _with(names: tuple[str, ...], more: Collection[str]) -> tuple[str, ...]:
    # Each name once, also where ``names`` has it already.
    return tuple(sorted({*more}.difference(names).union(names))) if more else names
