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
from aggregator.merge.stale_documents import StaleDocument, stale_documents
from aggregator.notify.history import HistoryStatus
from aggregator.notify.leader_events import role_of
from aggregator.rank_tables.plugin import RankTablesStatus
from contract.documents.cluster_info import cluster_device_name
from contract.pages.blind import BlindStatus
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


STATES = ("reported", "kept", "missing", "rejected", "earlier", "deleted", "unreported")
HEARTBEATS = ("alive", "silent", "lost", "unknown")


class RejectedStatus(msgspec.Struct, frozen=True):
    """A node's newest document of this kind was refused, in this store, for this reason."""

    store: str
    kind: str
    since_ms: int
    reason: str


class MissingStatus(msgspec.Struct, frozen=True):
    """A document of a node that this store had and lacks; its last state stays.

    ``deleted``: its deletion was shown; otherwise a list lacks it.
    """

    store: str
    document: str
    since_ms: int
    deleted: bool


class MissingCount(msgspec.Struct, frozen=True):
    """Of how many nodes a store lacks this document; ``held``: so many deletions are held back."""

    store: str
    document: str
    nodes: int
    held: int


class NodeStatus(msgspec.Struct, frozen=True):
    """One node.

    ``state``: ``reported`` (its newest document counts), ``kept`` (an older good one counts, the
    newest was refused), ``missing`` (the last one counts, and its store lacks it), ``rejected``
    (never a good one), ``earlier`` (published by an earlier run, not read yet), ``deleted``
    (published healthy, dropped soon), ``unreported`` (there is none). ``update_time`` is the
    published stamp in epoch seconds, ``reported_update_time`` the node's own. All that is about its
    device-info.

    ``heartbeat``: ``alive``, ``lost`` (silent for more than 3 intervals), ``silent`` (the same,
    held back by the silence alarm) or ``unknown``: it has none, or ``heartbeat_problem`` is since
    when and why it is not read. Its age is how long ago it changed. ``clock_skew_seconds`` is by
    how much its clock is ahead of the aggregator's, at least (or behind), as far as heartbeats in
    the store show.

    ``stale``: documents that are older than two of their periods while the node beats. They count
    as they were last known.

    ``switch_status`` and ``node_status`` are published words, ``null`` where there is no
    entry.

    ``blind``: the sources that give the node's agent no answer, about a chip or about the node;
    what is published of these is the last that was known. ``null``: not known, since the agent
    is of an earlier release, or there is none. ``blind_left_out`` counts those that the agent had
    no room for.
    """

    node: str
    state: str
    document: str | None
    update_time: int | None
    reported_update_time: int | None
    report_age_seconds: float | None
    faults: int
    faults_problem: str | None
    heartbeat: str
    heartbeat_age_seconds: float | None
    heartbeat_interval_seconds: float | None
    clock_skew_seconds: float | None
    switch_status: str | None
    node_status: str | None
    rejected: tuple[RejectedStatus, ...]
    blind: tuple[BlindStatus, ...] | None = None
    blind_left_out: int = 0
    heartbeat_problem: str | None = None
    stale: tuple[StaleDocument, ...] = ()
    missing: tuple[MissingStatus, ...] = ()


class SourceStatus(msgspec.Struct, frozen=True):
    """A store that is read.

    ``nodes`` that have a good device-info, ``switches`` that have a good switch part in it,
    ``servers`` that have a good node-info; ``pods`` that use chips, ``null`` where not known.
    ``missed_changes`` were found by a listing and shown by no event, ``null`` where nothing lists.
    ``replaced``: why the directory that is there is not the known one.
    """

    store: str
    listed: bool
    interrupted: str | None
    interruptions: int
    nodes: int
    switches: int
    servers: int
    rejected_nodes: int
    rejected_documents: int
    pods: int | None
    pods_interrupted: str | None
    missed_changes: int | None
    replaced: str | None = None


class DocumentStatus(msgspec.Struct, frozen=True):
    """A document in a store that is published to."""

    store: str
    document: str
    nodes: int
    bytes: int
    published: bool
    writes: int
    touches: int
    left_out_nodes: int
    foreign_writes: int
    refused_writes: int
    conflict: bool
    conflict_writer: str | None
    error: str | None
    lag_seconds: float


class LivenessStatus(msgspec.Struct, frozen=True):
    """The nodes that fell silent.

    ``alarm``: too many fell silent at once; ``held`` are those, and they are not published lost.
    ``problems``: where heartbeats, or the nodes with those of old releases, cannot be listed, and
    why; ``listed_seconds_ago``: when they were listed, by place. ``alive`` does not count nodes
    whose heartbeats were not read for long. ``wrong_clocks``: nodes whose clock is more than 2 s
    off.
    """

    alarm: bool
    published: bool
    alive: int
    lost: tuple[str, ...]
    held: tuple[str, ...]
    problems: dict[str, str]
    wrong_clocks: tuple[str, ...] = ()
    listed_seconds_ago: dict[str, float] = {}


class LeaderStatus(msgspec.Struct, frozen=True):
    """Which replica writes. ``role`` is ``leader``, ``follower of HOLDER``, or ``follower`` while
    none leads. ``elected_by``: the store with the election, ``null`` where there is none.
    ``taken``: how often this process began to lead.
    """

    role: str
    leads: bool
    holder: str
    elected_by: str | None
    taken: int


class MissedWritesStatus(msgspec.Struct, frozen=True):
    """Documents of nodes of a store that were read by name, because of a heartbeat, by result.

    ``unreadable`` is how many nodes have a key about writes that cannot be read.
    """

    store: str
    read: dict[str, int]
    unreadable: int


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
