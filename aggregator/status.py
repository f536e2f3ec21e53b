"""One picture of the aggregator, taken at once: the API answers with it, metrics come from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.intake import newest
from contract.catalogue import shipped
from contract.cluster_info import cluster_device_name
from contract.levels import is_device_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aggregator.intake import Report
    from aggregator.pipeline import Pipeline
    from aggregator.publisher import Publisher


class RejectedStatus(msgspec.Struct, frozen=True):
    """A node's newest document was refused, in this store, for this reason."""

    store: str
    since_ms: int
    reason: str


class NodeStatus(msgspec.Struct, frozen=True):
    """One node.

    ``state``: ``reported`` (its newest document counts), ``kept`` (an older good one counts, the
    newest was refused), ``rejected`` (never a good one), ``earlier`` (published by an earlier run,
    not heard of yet), ``deleted`` (published healthy, dropped soon). ``update_time`` is the
    published stamp in epoch seconds, ``reported_update_time`` the node's own.
    """

    node: str
    state: str
    document: str | None
    update_time: int | None
    reported_update_time: int | None
    report_age_seconds: float | None
    faults: int
    faults_problem: str | None
    rejected: tuple[RejectedStatus, ...]


class FaultStatus(msgspec.Struct, frozen=True):
    """One code on one chip.

    ``severity`` and ``device_fault`` are the catalogue's, ``null`` where it knows none: the
    document does not carry them. ``raised_at_ms`` is the node's time (``null`` where it gave
    none), ``received_at_ms`` when the aggregator saw the fault first; both epoch milliseconds.
    """

    node: str
    chip: str
    code: str
    name: str | None
    level: str
    severity: str | None
    device_fault: bool | None
    fault_type: str
    raised_at_ms: int | None
    received_at_ms: int


class SourceStatus(msgspec.Struct, frozen=True):
    """A store that is read."""

    store: str
    listed: bool
    interrupted: str | None
    interruptions: int
    nodes: int
    rejected_nodes: int
    rejected_documents: int


class DocumentStatus(msgspec.Struct, frozen=True):
    """A document in a store that is published to."""

    store: str
    document: str
    nodes: int
    bytes: int
    published: bool
    writes: int
    foreign_writes: int
    conflict: bool
    error: str | None
    lag_seconds: float


class Health(msgspec.Struct, frozen=True):
    """What probes ask for: loops that are stuck, and why the daemon is not ready."""

    stalled: dict[str, float]
    not_ready: tuple[str, ...]


class Status(msgspec.Struct, frozen=True):
    """Everything that is shown outside."""

    at_ms: int
    started_at_ms: int
    health: Health
    nodes: tuple[NodeStatus, ...]
    faults: tuple[FaultStatus, ...]
    sources: tuple[SourceStatus, ...]
    documents: tuple[DocumentStatus, ...]


def node_statuses(pipeline: Pipeline, now_ms: int) -> Iterator[NodeStatus]:
    """Every node that is published or was heard of, sorted by name."""
    nodes = set(pipeline.entries)
    for source in pipeline.sources:
        nodes |= source.reports.keys() | source.rejected.keys()
    for node in sorted(nodes):
        yield _node(pipeline, node, now_ms)


def _node(pipeline: Pipeline, node: str, now_ms: int) -> NodeStatus:
    report = newest(pipeline.sources, node)
    rejected = tuple(
        RejectedStatus(source.url, one.since_ms, one.reason)
        for source in pipeline.sources
        if (one := source.rejected.get(node)) is not None
    )
    entry = pipeline.entries.get(node)
    home = pipeline.shards.home(node)
    return NodeStatus(
        node=node,
        state=_state(pipeline, node, report, rejected),
        document=None if home is None else cluster_device_name(home),
        update_time=None if entry is None else entry.stamp,
        reported_update_time=None if report is None else report.record.update_time,
        report_age_seconds=(
            None if report is None else max(0, now_ms - report.received_at_ms) / 1000
        ),
        faults=0 if report is None else len(report.record.faults),
        faults_problem=None if report is None else report.faults_problem,
        rejected=rejected,
    )


def _state(
    pipeline: Pipeline, node: str, report: Report | None, rejected: tuple[RejectedStatus, ...]
) -> str:
    if report is not None:
        return "kept" if rejected else "reported"
    if rejected:
        return "kept" if node in pipeline.entries else "rejected"
    return "deleted" if node in pipeline.healing else "earlier"


def fault_statuses(pipeline: Pipeline) -> Iterator[FaultStatus]:
    """Every code on every chip of every node that reports."""
    catalogue = shipped()
    nodes: set[str] = set()
    for source in pipeline.sources:
        nodes |= source.reports.keys()
    for node in sorted(nodes):
        report = newest(pipeline.sources, node)
        assert report is not None
        for fault in report.record.faults:
            severity = catalogue.severity_of(fault.code)
            yield FaultStatus(
                node=node,
                chip=fault.chip,
                code=fault.code,
                name=catalogue.name_of(fault.code),
                level=fault.level,
                severity=None if severity is None else severity.word,
                device_fault=None if severity is None else is_device_fault(severity),
                fault_type=fault.fault_type,
                raised_at_ms=fault.time_ms if fault.time_ms > 0 else None,
                received_at_ms=report.first_seen_ms[fault.chip, fault.code],
            )


def source_statuses(pipeline: Pipeline) -> Iterator[SourceStatus]:
    """The stores that are read."""
    for source in pipeline.sources:
        yield SourceStatus(
            store=source.url,
            listed=source.listed,
            interrupted=source.interrupted,
            interruptions=source.interruptions_total,
            nodes=len(source.reports),
            rejected_nodes=len(source.rejected),
            rejected_documents=source.rejected_total,
        )


def document_statuses(publishers: Iterable[Publisher], now_ms: int) -> Iterator[DocumentStatus]:
    """The documents in the stores that are published to."""
    for publisher in publishers:
        for _, output in sorted(publisher.outputs.items()):
            since_ms = output.pending_since_ms
            yield DocumentStatus(
                store=publisher.store.url,
                document=output.name,
                nodes=output.nodes,
                bytes=output.bytes,
                published=output.acknowledged >= 0,
                writes=output.writes_total,
                foreign_writes=output.foreign_total,
                conflict=output.conflict,
                error=output.error,
                lag_seconds=0.0 if since_ms is None else max(0, now_ms - since_ms) / 1000,
            )
