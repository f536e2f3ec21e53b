"""The status of the aggregator, its stores and documents, for pages and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.absence.ended_documents import DOCUMENTS
from aggregator.grpc.interfaces import GrpcStatus
from aggregator.liveness import clock_skew
from aggregator.notify.history import HistoryStatus
from aggregator.notify.leader_events import role_of
from aggregator.rank_tables.plugin import RankTablesStatus
from contract.pages.aggregator_status import (
    DocumentStatus,
    LeaderStatus,
    LivenessStatus,
    MissingCount,
    SourceStatus,
)
from service.pages.event_stream import StreamStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aggregator.absence.directory_mark import DirectoryMarks
    from aggregator.absence.ended_documents import Absence
    from aggregator.inputs.cluster_state import ClusterState
    from aggregator.liveness.monitor import HeartbeatMonitor
    from aggregator.merge.pipeline import Pipeline
    from aggregator.publish.publisher import StorePublisher
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
    braked = frozenset(verdict.brake.nodes if verdict.brake is not None else ())
    return LivenessStatus(
        alarm=verdict.brake is not None,
        published=published,
        alive=len(listings - verdict.lost.keys() - braked),
        lost=tuple(sorted(verdict.lost)),
        held=tuple(sorted(braked)),
        problems=heartbeat_monitor.problems,
        wrong_clocks=tuple(sorted(clock_skew.wrong(heartbeat_monitor.skews.values()))),
        listed_seconds_ago={place: age / 1000 for place, age in heartbeat_monitor.ages_ms.items()},
    )


def missing_counts(absences: Iterable[Absence], now: Instant) -> Iterator[MissingCount]:
    """Yield what the stores lack, by kind of document."""
    for absence in absences:
        missing = absence.missing(now)
        for document in DOCUMENTS:
            mine = [row for row in missing if row.document == document]
            yield MissingCount(absence.url, document, len(mine), sum(row.is_held for row in mine))


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
