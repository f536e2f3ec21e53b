"""What public faults do to a node's record: ``spec/clusterd.md`` 3.2, 2.3 (AddFaultAndFix)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from contract.cluster_device import CodeFault, DeviceRecord
from contract.levels import ChipLevel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.public_faults.values import Standing

PUBLIC_FAULT = "PublicFault"
_LEAVES_FREE = frozenset(
    {ChipLevel.NOT_HANDLE_FAULT, ChipLevel.SUB_HEALTH_FAULT, ChipLevel.NORMAL_NPU}
)


def with_public_faults(
    record: DeviceRecord, faults: Iterable[Standing], now_seconds: int
) -> DeviceRecord:
    """``record`` with these faults.

    Chips are called by the type of the record. A chip that is in no list may be in use, so it is
    shown; one that was never looked for (``placed``) must be in the record. The time of a public
    fault is in seconds, where those of a driver are in milliseconds (3.2).
    """
    chips = record.chips
    added: set[CodeFault] = set()  # equal ones are one (2.3)
    taken: set[str] = set()
    for one in faults:
        for device in one.devices:
            chip = f"{record.chip_type}-{device}"
            if not one.placed and chip not in chips:
                continue
            added.add(
                CodeFault(PUBLIC_FAULT, chip, one.level, one.code, one.time_seconds, one.level)
            )
            if one.level not in _LEAVES_FREE:
                taken.add(chip)
    if not added:
        return record
    return replace(
        record,
        available=tuple(chip for chip in record.available if chip not in taken),
        unhealthy=tuple(sorted({*record.unhealthy, *taken})),
        faults=tuple(sorted([*record.faults, *(added - set(record.faults))])),
        update_time=now_seconds,
    )
