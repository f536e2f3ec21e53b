"""The status of each node: its documents, what is published of it, its heartbeat.

No I/O: the pages of an aggregator and the verbs that read documents make the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aggregator.absence.last_known_documents import LastingDocumentWatch
from aggregator.agent_reports.blindness import blind_statuses, record_of
from aggregator.inputs.node_documents import newest
from aggregator.merge.stale_documents import stale_documents
from contract.documents.cluster_info import cluster_device_name
from contract.pages.aggregator_status import (
    MissingStatus,
    NodeStatus,
    RejectedStatus,
    StaleDocument,
)
from contract.sentences import joined

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from aggregator.inputs.node_documents import NodeReport
    from aggregator.liveness.clock_skew import Skews
    from aggregator.liveness.lost_nodes import HeartbeatListing, ObservedHeartbeat
    from aggregator.liveness.monitor import HeartbeatMonitor
    from aggregator.liveness.unread_heartbeats import Unread
    from aggregator.merge.pipeline import Pipeline
    from contract.documents.cluster_device import DeviceRecord
    from service.clock import Instant


class Heartbeats(NamedTuple):
    """What is known of heartbeats.

    ``lost`` nodes fell silent. So did ``held`` ones, which are not published as lost. ``listings``
    and ``unread`` are by place, ``skews`` are the offsets of clocks.
    """

    lost: Collection[str] = ()
    held: Collection[str] = ()
    listings: Mapping[str, HeartbeatListing] = {}
    unread: Mapping[str, Unread] = {}
    skews: Collection[Skews] = ()

    @classmethod
    def of(cls, monitor: HeartbeatMonitor) -> Heartbeats:
        """Return what the monitor knows now."""
        verdict = monitor.lost_nodes
        braked = () if verdict.brake is None else verdict.brake.nodes
        skews = monitor.skews.values()
        return cls(verdict.lost, braked, monitor.listings, monitor.unread, skews)

    def observed(self, node: str) -> list[ObservedHeartbeat]:
        """Return the heartbeats of a node, the newest first."""
        heartbeats = (listing.heartbeats.get(node) for listing in self.listings.values())
        seen = [heartbeat for heartbeat in heartbeats if heartbeat is not None]
        return sorted(seen, key=lambda heartbeat: heartbeat.changed_at_ms, reverse=True)

    def problem(self, node: str) -> str | None:
        """Return why no place reads the heartbeats of ``node``; ``None`` where one does."""
        places = [place for place, listing in self.listings.items() if node in listing.heartbeats]
        texts = [self.unread[place].text for place in places if place in self.unread]
        is_unread = texts and len(texts) == len(places)
        return joined("{before}; {part}", texts) if is_unread else None

    def state(self, node: str, *, is_read: bool) -> str:
        """Return one of ``HEARTBEATS``."""
        if node in self.lost:
            return "lost"
        if node in self.held:
            return "silent"
        return "alive" if is_read else "unknown"

    def clock_skew_seconds(self, node: str) -> float | None:
        """Return by how much the node's clock is off at least; ``None`` where it is not known."""
        skews = [skew.nodes[node] for skew in self.skews if node in skew.nodes]
        least_ms = min((skew.least_ms for skew in skews), key=abs, default=None)
        return None if least_ms is None else least_ms / 1000


def node_statuses(pipeline: Pipeline, heartbeats: Heartbeats, now: Instant) -> Iterator[NodeStatus]:
    """Yield every node that is published or has a report, by name. It may be read in slices."""
    nodes = {node for table in pipeline.tables for node in table.entries}
    for source in pipeline.sources:
        for cache in source.caches:
            nodes |= cache.reports.keys() | cache.rejected.keys()
    for listing in heartbeats.listings.values():
        nodes |= listing.heartbeats.keys()
    for node in sorted(nodes):
        yield _status_of(pipeline, heartbeats, node, now)


def node_status(
    pipeline: Pipeline, heartbeats: Heartbeats, node: str, now: Instant
) -> NodeStatus | None:
    """Return one node; ``None`` where there is none."""
    is_known = any(node in table.entries for table in pipeline.tables) or any(
        node in cache.reports or node in cache.rejected
        for source in pipeline.sources
        for cache in source.caches
    )
    if not is_known and not heartbeats.observed(node):
        return None
    return _status_of(pipeline, heartbeats, node, now)


def _status_of(pipeline: Pipeline, heartbeats: Heartbeats, node: str, now: Instant) -> NodeStatus:
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
        # Rows of lists are encoded without a hook for sentences.
        heartbeat_problem=None if problem is None else str(problem),
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
