"""The status of the aggregator, its nodes, stores and documents, for pages and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aggregator.absence.ended_documents import DOCUMENTS
from aggregator.absence.last_known_documents import LastingDocumentWatch
from aggregator.agent_reports.blindness import blind_statuses, record_of
from aggregator.grpc.status import GrpcStatus
from aggregator.inputs.node_documents import newest
from aggregator.liveness import clock_skew
from aggregator.merge.stale_documents import stale_documents
from aggregator.notify.history import HistoryStatus
from aggregator.notify.leader_events import role_of
from aggregator.rank_tables.plugin import RankTablesStatus
from contract.documents.cluster_info import cluster_device_name
from contract.pages.aggregator_status import (
    DocumentStatus,
    LeaderStatus,
    LivenessStatus,
    MissingCount,
    MissingStatus,
    NodeStatus,
    RejectedStatus,
    SourceStatus,
    StaleDocument,
)
from service.pages.event_stream import StreamStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aggregator.absence.directory_mark import DirectoryMarks
    from aggregator.absence.ended_documents import Absence
    from aggregator.inputs.cluster_state import ClusterState
    from aggregator.inputs.node_documents import NodeReport
    from aggregator.liveness.lost_nodes import HeartbeatListing, ObservedHeartbeat
    from aggregator.liveness.monitor import HeartbeatMonitor
    from aggregator.liveness.unread_heartbeats import Unread
    from aggregator.merge.pipeline import Pipeline
    from aggregator.publish.publisher import StorePublisher
    from contract.documents.cluster_device import DeviceRecord
    from service.clock import Instant
    from service.election.leadership import Leadership
    from stores.base import Store


class ProbeStatus(msgspec.Struct, frozen=True):
    """What probes ask for: stalled tasks, and why the daemon is not ready.

    ``warnings``: documents that cannot be written, or that another program writes. A leader that
    writes all others stays ready.
    """

    stalled: dict[str, float]
    not_ready: tuple[str, ...]
    warnings: tuple[str, ...] = ()


class ServicesStatus(msgspec.Struct, frozen=True):
    """The services besides documents. ``grpc`` is ``null`` where it is not configured."""

    grpc: GrpcStatus | None
    rank_tables: RankTablesStatus
    stream: StreamStatus
    history: HistoryStatus


def leader_status(leadership: Leadership) -> LeaderStatus:
    """Return which replica writes now."""
    return LeaderStatus(
        role=role_of(leadership),
        leads=leadership.leads,
        holder=leadership.holder,
        elected_by=leadership.elected_by,
        taken=leadership.taken_total,
    )


def liveness_status(heartbeat_monitor: HeartbeatMonitor, published: bool) -> LivenessStatus:
    """Return which nodes fell silent."""
    verdict = heartbeat_monitor.lost_nodes
    unread = heartbeat_monitor.unread
    listings = {
        node
        for place, listing in heartbeat_monitor.listings.items()
        if place not in unread
        for node in listing.heartbeats
    }
    held = frozenset(verdict.brake.nodes if verdict.brake is not None else ())
    return LivenessStatus(
        alarm=verdict.brake is not None,
        published=published,
        alive=len(listings - verdict.lost.keys() - held),
        lost=tuple(sorted(verdict.lost)),
        held=tuple(sorted(held)),
        problems=heartbeat_monitor.problems,
        wrong_clocks=tuple(sorted(clock_skew.wrong(heartbeat_monitor.skews.values()))),
        listed_seconds_ago={place: age / 1000 for place, age in heartbeat_monitor.ages_ms.items()},
    )


def node_statuses(
    pipeline: Pipeline, heartbeat_monitor: HeartbeatMonitor, now: Instant
) -> Iterator[NodeStatus]:
    """Yield every node that is published or has a report, by name. It may be read in slices."""
    nodes = {node for table in pipeline.tables for node in table.entries}
    for source in pipeline.sources:
        for cache in source.caches:
            nodes |= cache.reports.keys() | cache.rejected.keys()
    heartbeats = _Heartbeats.of(heartbeat_monitor)
    for listing in heartbeats.listings.values():
        nodes |= listing.heartbeats.keys()
    for node in sorted(nodes):
        yield _status_of(pipeline, heartbeats, node, now)


def node_status(
    pipeline: Pipeline, heartbeat_monitor: HeartbeatMonitor, node: str, now: Instant
) -> NodeStatus | None:
    """Return one node; ``None`` where there is none."""
    heartbeats = _Heartbeats.of(heartbeat_monitor)
    is_known = any(node in table.entries for table in pipeline.tables) or any(
        node in cache.reports or node in cache.rejected
        for source in pipeline.sources
        for cache in source.caches
    )
    if not is_known and not heartbeats.observed(node):
        return None
    return _status_of(pipeline, heartbeats, node, now)


class _Heartbeats(NamedTuple):
    """What is known of heartbeats; ``listings`` and ``unread`` by place."""

    monitor: HeartbeatMonitor
    listings: Mapping[str, HeartbeatListing]
    unread: Mapping[str, Unread]

    @classmethod
    def of(cls, monitor: HeartbeatMonitor) -> _Heartbeats:
        """Return what is known now."""
        return cls(monitor, monitor.listings, monitor.unread)

    def observed(self, node: str) -> list[ObservedHeartbeat]:
        """Return the heartbeats of a node, the newest first."""
        heartbeats = (listing.heartbeats.get(node) for listing in self.listings.values())
        seen = [heartbeat for heartbeat in heartbeats if heartbeat is not None]
        return sorted(seen, key=lambda heartbeat: heartbeat.changed_at_ms, reverse=True)

    def problem(self, node: str) -> str | None:
        """Return why no place reads the heartbeats of ``node``; ``None`` where one does."""
        places = [place for place, listing in self.listings.items() if node in listing.heartbeats]
        texts = [self.unread[place].text for place in places if place in self.unread]
        return "; ".join(texts) if texts and len(texts) == len(places) else None

    def state(self, node: str, *, is_read: bool) -> str:
        """Return one of ``HEARTBEATS``."""
        verdict = self.monitor.lost_nodes
        if node in verdict.lost:
            return "lost"
        if verdict.brake is not None and node in verdict.brake.nodes:
            return "silent"
        return "alive" if is_read else "unknown"

    def clock_skew_seconds(self, node: str) -> float | None:
        """Return by how much the node's clock is off at least; ``None`` where it is not known."""
        skews = [skew.nodes[node] for skew in self.monitor.skews.values() if node in skew.nodes]
        least_ms = min((skew.least_ms for skew in skews), key=abs, default=None)
        return None if least_ms is None else least_ms / 1000


def _status_of(pipeline: Pipeline, heartbeats: _Heartbeats, node: str, now: Instant) -> NodeStatus:
    seen, problem = heartbeats.observed(node), heartbeats.problem(node)
    observed = seen[0] if seen else None
    heartbeat = heartbeats.state(node, is_read=observed is not None and problem is None)
    # Heartbeats for readers of old releases have no blind sources.
    blind = next((heartbeat.blind for heartbeat in seen if heartbeat.blind is not None), None)
    stale: tuple[StaleDocument, ...] = ()
    if heartbeat == "alive" and observed is not None:
        stale = stale_documents(pipeline, node, observed.beaten_at_ms)
    report = newest(pipeline.device.caches, node)
    rejected = tuple(
        RejectedStatus(source.url, cache.kind.name, refused.since_ms, refused.reason)
        for source in pipeline.sources
        for cache in source.caches
        if (refused := cache.rejected.get(node)) is not None
    )
    entry = pipeline.device.entries.get(node)
    home = pipeline.device.layout.home(node)
    switch = pipeline.switch.entries.get(node)
    server = pipeline.node.entries.get(node)
    own_key = record_of(pipeline, node)
    return NodeStatus(
        node=node,
        state=_state(pipeline, node, report),
        document=None if home is None else cluster_device_name(home),
        update_time=None if entry is None else entry.stamp,
        reported_update_time=None if report is None else report.record.update_time,
        report_age_seconds=(
            None if report is None else max(0, now.wall_ms - report.received_at_ms) / 1000
        ),
        faults=0 if report is None else len(report.record.faults),
        faults_problem=None if report is None else report.problem,
        heartbeat=heartbeat,
        heartbeat_age_seconds=(
            None if observed is None else max(0, now.steady_ms - observed.changed_at_ms) / 1000
        ),
        heartbeat_interval_seconds=None if observed is None else observed.interval_ms / 1000,
        clock_skew_seconds=heartbeats.clock_skew_seconds(node),
        switch_status=None if switch is None else switch.record.status,
        node_status=None if server is None else server.record.status,
        rejected=rejected,
        blind=blind_statuses(pipeline, node, blind),
        blind_left_out=0 if own_key is None else own_key.left_out,
        heartbeat_problem=problem,
        stale=stale,
        missing=tuple(_missing(pipeline, node)),
    )


def _missing(pipeline: Pipeline, node: str) -> Iterator[MissingStatus]:
    for source in pipeline.sources:
        for document, watch in (("device-info", source.devices), ("node-info", source.nodes)):
            if (
                isinstance(watch, LastingDocumentWatch)
                and (absent := watch.absent.get(node)) is not None
            ):
                yield MissingStatus(source.url, document, absent.since_ms, absent.is_reported)


def missing_counts(absences: Iterable[Absence], now: Instant) -> Iterator[MissingCount]:
    """Yield what the stores lack, by kind of document."""
    for absence in absences:
        missing = absence.missing(now)
        for document in DOCUMENTS:
            mine = [row for row in missing if row.document == document]
            yield MissingCount(absence.url, document, len(mine), sum(row.is_held for row in mine))


def _state(pipeline: Pipeline, node: str, report: NodeReport[DeviceRecord] | None) -> str:
    rejected = any(node in cache.rejected for cache in pipeline.device.caches)
    watches = [source.devices for source in pipeline.sources]
    if not any(watch.has(node) for watch in watches) and any(
        isinstance(watch, LastingDocumentWatch) and node in watch.absent for watch in watches
    ):
        return "missing"
    if report is not None:
        return "kept" if rejected else "reported"
    if rejected:
        return "kept" if node in pipeline.device.entries else "rejected"
    if node not in pipeline.device.entries:
        return "unreported"
    return "deleted" if node in pipeline.device.healing else "earlier"


def source_statuses(
    pipeline: Pipeline, cluster_state: ClusterState, stores: Iterable[Store], marks: DirectoryMarks
) -> Iterator[SourceStatus]:
    """Yield the stores that are read; ``stores`` are those of ``pipeline``, in its order."""
    for number, (source, store) in enumerate(zip(pipeline.sources, stores, strict=True)):
        pods = cluster_state.pods_of(number)
        yield SourceStatus(
            store=source.url,
            listed=source.listed,
            interrupted=source.interrupted,
            interruptions=sum(watch.interruptions_total for watch in source.watches),
            nodes=len(source.device.reports),
            switches=len(source.switch.reports),
            servers=len(source.node.reports),
            rejected_nodes=len(set().union(*(cache.rejected for cache in source.caches))),
            rejected_documents=sum(cache.rejected_total for cache in source.caches),
            pods=sum(bool(pod.chips) for pod in pods.items.values()) if pods.known else None,
            pods_interrupted=pods.interrupted,
            missed_changes=store.missed_changes,
            replaced=marks.problem(source.url),
        )


def document_statuses(
    publishers: Iterable[StorePublisher], now_ms: int
) -> Iterator[DocumentStatus]:
    """Yield the documents in the stores that are published to."""
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
                touches=output.touches_total,
                left_out_nodes=output.left_out,
                foreign_writes=output.foreign.total,
                refused_writes=output.refused_total,
                conflict=output.conflict,
                conflict_writer=output.foreign.writer.name or None,
                error=output.trouble.reason or output.touch_trouble.reason,
                lag_seconds=0.0 if since_ms is None else max(0, now_ms - since_ms) / 1000,
            )
