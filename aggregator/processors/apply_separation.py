"""Chips that the aggregator separated because a fault came too often (``clusterd#3.9``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.processors.record_edits import add_faults
from contract.codes.levels import ChipLevel
from contract.documents.cluster_device import CodeFault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.documents.cluster_device import DeviceRecord

_LEVEL = ChipLevel.MANUALLY_SEPARATE_NPU.value


def separate(record: DeviceRecord, chips: Iterable[str]) -> DeviceRecord:
    """Return ``record`` with ``chips`` separated: a fault without a code, as a device plugin has
    it.

    A device plugin may begin to name the same chips by another type (``npu-3``).
    """
    names = {chip if chip in record.chips else _renamed(chip, record) for chip in chips}
    faults = [CodeFault("CardUnhealthy", chip, _LEVEL, _LEVEL, -1, _LEVEL) for chip in names]
    return add_faults(record, faults)


def _renamed(chip: str, record: DeviceRecord) -> str:
    name = f"{record.chip_type}-{chip.rpartition('-')[2]}"
    return name if name in record.chips else chip
