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
    from collections.abc import Iterator, Mapping

    from aggregator.inputs.node_documents import DocumentWatch
    from aggregator.merge.pipeline import Pipeline
    from contract.documents.isolation_request import IsolationRequest
    from contract.documents.vigil_key import FaultAnswer


class FaultDetail(msgspec.Struct, frozen=True):
    """Severity of a fault and whether it is a device fault, ``None`` where nobody knows."""

    severity: str | None
    device_fault: bool | None
    severity_source: Literal["agent", "catalogue"]


class ChipFaultDetails:
    """The answers about the chips of one node, as they are now."""

    def __init__(self, pipeline: Pipeline, node: str) -> None:
        self._details = _details(pipeline, node)

    def of(self, chip: str, code: str) -> FaultDetail:
        """Return the answer about a code on the chip of this device name."""
        detail = self._details.get((chip.rpartition("-")[2], code))
        if detail is not None:
            return FaultDetail(detail.severity, detail.device_fault, "agent")
        severity = shipped().severity_of(code)
        if severity is None:
            return FaultDetail(None, None, "catalogue")
        return FaultDetail(severity.word, is_device_fault(severity), "catalogue")


def isolation_requests(pipeline: Pipeline, node: str) -> Mapping[int, IsolationRequest]:
    """Return who isolated chips of a node, as the device-info that counts states it."""
    for watch in _watches_that_count(pipeline, node):
        return watch.isolations.get(node, {})
    return {}


def _details(pipeline: Pipeline, node: str) -> Mapping[tuple[str, str], FaultAnswer]:
    """What the own key of the device-info that counts has, by the chip's number and code."""
    for watch in _watches_that_count(pipeline, node):
        key = watch.own_key.reports.get(node)
        if key is not None:
            return {(str(one.chip), one.code): one for one in key.record.faults}
    return {}


def _watches_that_count(pipeline: Pipeline, node: str) -> Iterator[DocumentWatch]:
    report = newest(pipeline.device.inboxes, node)
    for source in pipeline.sources:
        if report is not None and source.device.reports.get(node) is report:
            yield source.devices
