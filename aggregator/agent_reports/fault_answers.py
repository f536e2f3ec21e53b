"""Severity of a fault by the agent of its node, or else by the fault catalogue.

A real Device Plugin's document has a code and its level only. An agent of NPU Vigil reports more in
its own data key: the severity that came with the event, and the result of ``hccn_tool``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from aggregator.inputs.node_documents import newest
from contract.codes.catalogue import shipped
from contract.codes.levels import is_device_fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aggregator.inputs.node_documents import DocumentWatch
    from aggregator.merge.pipeline import Pipeline
    from contract.documents.isolation_request import IsolationRequest
    from contract.documents.vigil_key import FaultAnswer


class FaultDetail(msgspec.Struct, frozen=True):
    """Severity of a fault and whether it is a device fault, ``None`` where that is not known."""

    severity: str | None
    device_fault: bool | None
    severity_source: Literal["agent", "catalogue"]


class ChipFaultDetails:
    """The answers about the chips of one node, as they are now."""

    def __init__(self, pipeline: Pipeline, node: str) -> None:
        self._details = _details(pipeline, node)

    def of(self, chip: str, code: str) -> FaultDetail:
        """Return what is known of a code on the chip of this device name."""
        detail = self._details.get((chip.rpartition("-")[2], code))
        if detail is not None:
            return FaultDetail(detail.severity, detail.device_fault, "agent")
        severity = shipped().severity_of(code)
        if severity is None:
            return FaultDetail(None, None, "catalogue")
        return FaultDetail(severity.word, is_device_fault(severity), "catalogue")


def isolation_requests(pipeline: Pipeline, node: str) -> Mapping[int, IsolationRequest]:
    """Return the isolation requests of a node by chip number, from the device-info that counts."""
    watch = _watch_that_counts(pipeline, node)
    return {} if watch is None else watch.isolations.get(node, {})


def _details(pipeline: Pipeline, node: str) -> Mapping[tuple[str, str], FaultAnswer]:
    """Return the details in the own key of the device-info that counts, by chip number and code."""
    watch = _watch_that_counts(pipeline, node)
    key = None if watch is None else watch.own_key.reports.get(node)
    return (
        {} if key is None else {(str(fault.chip), fault.code): fault for fault in key.record.faults}
    )


def _watch_that_counts(pipeline: Pipeline, node: str) -> DocumentWatch | None:
    report = newest(pipeline.device.caches, node)
    for source in pipeline.sources:
        if report is not None and source.device.reports.get(node) is report:
            return source.devices
    return None
