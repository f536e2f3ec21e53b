"""What the agent of a node answers about a fault, and for other documents what the catalogue does.

A real Device Plugin's document has a code and its level only. Our agent knows more: the severity
that came with the event, and what ``hccn_tool`` finds. It reports both in its own data key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from aggregator.inputs.node_documents import newest
from contract.codes.catalogue import shipped
from contract.codes.levels import is_device_fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aggregator.merge.pipeline import Pipeline
    from contract.documents.vigil_key import FaultAnswer


class FaultDetail(msgspec.Struct, frozen=True):
    """Severity of a fault and whether it is a device fault, ``None`` where nobody knows."""

    severity: str | None
    device_fault: bool | None
    severity_source: Literal["agent", "catalogue"]


class ChipFaultDetails:
    """The answers about the chips of one node, as they are now."""

    def __init__(self, pipeline: Pipeline, node: str) -> None:
        self._told = _told(pipeline, node)

    def of(self, chip: str, code: str) -> FaultDetail:
        """Return the answer about a code on the chip of this device name."""
        told = self._told.get((chip.rpartition("-")[2], code))
        if told is not None:
            return FaultDetail(told.severity, told.device_fault, "agent")
        severity = shipped().severity_of(code)
        if severity is None:
            return FaultDetail(None, None, "catalogue")
        return FaultDetail(severity.word, is_device_fault(severity), "catalogue")


def _told(pipeline: Pipeline, node: str) -> Mapping[tuple[str, str], FaultAnswer]:
    """What the own key of the device-info that counts has, by the chip's number and code."""
    report = newest(pipeline.device.inboxes, node)
    for source in pipeline.sources:
        if report is None or source.device.reports.get(node) is not report:
            continue
        key = source.devices.own_key.reports.get(node)
        if key is not None:
            return {(str(one.chip), one.code): one for one in key.record.faults}
    return {}
