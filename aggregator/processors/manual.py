"""Chips that the aggregator separated because a fault came too often (``spec/clusterd.md`` 3.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.processors.fixing import add_faults
from contract.cluster_device import CodeFault
from contract.levels import ChipLevel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.cluster_device import DeviceRecord

_LEVEL = ChipLevel.MANUALLY_SEPARATE_NPU.value


def separate(record: DeviceRecord, chips: Iterable[str]) -> DeviceRecord:
    """``record`` with ``chips`` separated: a fault without a code, as a device plugin has it."""
    faults = [CodeFault("CardUnhealthy", chip, _LEVEL, _LEVEL, -1, _LEVEL) for chip in chips]
    return add_faults(record, faults)
