"""What is shown of a running aggregator, taken anew for each question.

What grows with the number of nodes is made in slices: ten thousand nodes hold up no other task, and
two rows of one answer may be some milliseconds apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from aggregator.advising.status import without_placement
from aggregator.api.cluster_state_status import cluster_state_status
from aggregator.api.explanation import ExplanationContext, explain
from aggregator.api.fault_status import (
    fault_statuses,
)
from aggregator.api.operations import (
    AdviceOutcomes,
    AdvicePage,
    ClusterStatePage,
    DocumentsPage,
    EndedJobsPage,
    LeaderPage,
    LivenessPage,
    PublicFaultsPage,
    SeparationPage,
    ServicesPage,
)
from aggregator.api.rejections import refused_statuses, rejected_counts
from aggregator.api.status import (
    AggregatorStatus,
    MissedWritesStatus,
    NodeStatus,
    ServicesStatus,
    document_statuses,
    leader_status,
    liveness_status,
    missing_counts,
    node_status,
    node_statuses,
    source_statuses,
)
from aggregator.processors.status import all_counted, all_separated, separation_status
from pacing.cooperative import all_of
from service.page_rows import SLICE_ROWS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from aggregator.absence.directory_mark import DirectoryMarks
    from aggregator.absence.rules import Absence
    from aggregator.advising.advice import Advising
    from aggregator.api.explanation import Explanation
    from aggregator.api.readiness import Readiness
    from aggregator.failover.takeover import Takeover
    from aggregator.inputs.cluster_state import ClusterState as ClusterWorld
    from aggregator.jobs.job_view import JobView
    from aggregator.jobs.status import HitJob, JobStatus
    from aggregator.liveness.monitor import HeartbeatMonitor
    from aggregator.merge.pipeline import Pipeline
    from aggregator.missed_writes.reader import MissedWrites
    from aggregator.notify.notifier import Notifier
    from aggregator.processors.status import SeparationStatus
    from aggregator.public_faults.plugin import PublicFaultsPlugin
    from aggregator.publish.publisher import StorePublisher
    from aggregator.rank_tables.plugin import RankTables
    from contract.pages.faults import FaultStatus
    from service.clock import Clock
    from service.election.leadership import Leadership
    from service.event_stream import Stream
    from stores.base import Store


class StatusParts(Protocol):
    """The parts of an aggregator whose state is shown; mappings are by URL of a store."""

    absences: dict[str, Absence]
    advising: Advising | None
    job_view: JobView
    leadership: Leadership
    heartbeat_monitor: HeartbeatMonitor
    marks: DirectoryMarks
    missed_writes: dict[str, MissedWrites]
    pipeline: Pipeline
    public_faults: PublicFaultsPlugin
    publishers: tuple[StorePublisher, ...]
    rank_tables: RankTables
    readiness: Readiness
    stores: dict[str, Store]
    stream: Stream
    takeover: Takeover
    notifier: Notifier
    cluster_state: ClusterWorld


class Picture:
    """The answers of the API about ``parts``, by page."""

    def __init__(self, parts: StatusParts, clock: Clock, *, publish_lost: bool) -> None:
        self._of = parts
        self._clock = clock
        self._publish_lost = publish_lost
        self._started_at_ms = clock().wall_ms

    @property
    def at_ms(self) -> int:
        return self._clock().wall_ms

    @property
    def _stores(self) -> tuple[str, ...]:
        return tuple(source.url for source in self._of.pipeline.sources)

    def node_rows(self, nodes: Collection[str] | None = None) -> Iterator[NodeStatus]:
        """Yield every node, or each of ``nodes`` that is known, sorted by name."""
        of, now = self._of, self._clock()
        if nodes is None:
            yield from node_statuses(of.pipeline, of.heartbeat_monitor, now)
            return
        for node in sorted(nodes):
            status = node_status(of.pipeline, of.heartbeat_monitor, node, now)
            if status is not None:
                yield status

    def fault_rows(self, nodes: Collection[str] | None = None) -> Iterator[FaultStatus]:
        """Yield every fault, with ``nodes`` of these only."""
        return fault_statuses(self._of.pipeline, self._of.notifier.began_ms, nodes)

    def job_rows(self) -> Iterator[HitJob]:
        """Yield the jobs that are hit."""
        return self._of.job_view.hit()

    def job(self, job: str) -> JobStatus | None:
        """Return one job; ``None`` where there is none."""
        status, advising = self._of.job_view.job(job), self._of.advising
        if status is None or advising is None:
            return status
        advice = advising.answers.of_job(status.namespace, status.name)
        return msgspec.structs.replace(status, advice=advice)

    @property
    def advising(self) -> Advising | None:
        """What advises; ``None`` where that is not wanted or nothing schedules pods."""
        return self._of.advising

    def advice(self, node: str | None = None) -> AdvicePage | None:
        """Return what the scheduler will do; nothing where that is not computed.

        With ``node`` of that node and the jobs there; ``None`` where nothing is about it.
        """
        advising = self._of.advising
        if advising is None:
            return AdvicePage(self.at_ms, False, None)
        if node is None:
            return AdvicePage(self.at_ms, True, without_placement(advising.status()))
        found = advising.answers.page_of_node(node)
        return None if found is None else AdvicePage(self.at_ms, True, found)

    def advice_outcomes(self) -> AdviceOutcomes:
        """Return what became of the deletions that were foretold."""
        advising = self._of.advising
        if advising is None:
            return AdviceOutcomes(self.at_ms, False, {}, ())
        status = advising.status()
        return AdviceOutcomes(self.at_ms, True, status.outcomes, status.missed)

    async def ended_jobs(
        self,
        sized: Collection[tuple[str, str]],
        judged: Collection[tuple[str, str]],
        *,
        running: bool,
    ) -> EndedJobsPage:
        """Return what is known of vcjobs that have ended, by namespaces and names."""
        advising, ended = self._of.advising, None
        if advising is not None:
            ended = await advising.ended(sized, judged, running=running)
        of = self.liveness().liveness
        return EndedJobsPage(self.at_ms, self._of.leadership.leads, of.alarm, of.lost, ended)

    def liveness(self) -> LivenessPage:
        """Return who fell silent."""
        status = liveness_status(self._of.heartbeat_monitor, self._publish_lost)
        return LivenessPage(self.at_ms, status, self._of.stream.last_id)

    def documents(self) -> DocumentsPage:
        """Return what is read, what is published, and what is refused."""
        at_ms, of = self.at_ms, self._of
        stores, faults, tables = of.stores, of.public_faults, of.rank_tables
        return DocumentsPage(
            at_ms,
            tuple(source_statuses(of.pipeline, of.cluster_state, stores.values(), of.marks)),
            tuple(document_statuses(self._of.publishers, at_ms)),
            tuple(refused_statuses(stores, faults, tables)),
            tuple(rejected_counts(stores, self._of.pipeline, faults, tables)),
        )

    def leader(self) -> LeaderPage:
        """Return who writes."""
        kept = self._of.takeover.persistent_state.statuses()
        return LeaderPage(
            self.at_ms, leader_status(self._of.leadership), kept, self._of.stream.last_id
        )

    def public_faults(self) -> PublicFaultsPage:
        """Return the state of public faults."""
        return PublicFaultsPage(self.at_ms, self._of.public_faults.status())

    async def separation(self) -> SeparationPage:
        """Return the state of manual separation."""
        return SeparationPage(self.at_ms, await self._separation())

    async def _separation(self) -> SeparationStatus:
        processing, stores = self._of.pipeline.processing, self._stores
        chips = await all_of(all_separated(processing, stores), SLICE_ROWS)
        counted = await all_of(all_counted(processing, self.at_ms), SLICE_ROWS)
        return separation_status(processing, stores, chips, counted)

    def cluster_state(self) -> ClusterStatePage:
        """Return what is known of Nodes, pods and PodGroups."""
        return ClusterStatePage(
            self.at_ms, cluster_state_status(self._of.cluster_state, self._stores)
        )

    def services(self) -> ServicesPage:
        """Return who is served besides readers of documents."""
        return ServicesPage(self.at_ms, self._services())

    def _services(self) -> ServicesStatus:
        server = self._of.notifier.server
        return ServicesStatus(
            grpc=None if server is None else server.status(),
            rank_tables=self._of.rank_tables.status(),
            stream=self._of.stream.status(),
            history=self._of.notifier.history.status(),
        )

    async def status(self) -> AggregatorStatus:
        """Return everything, for metrics."""
        now = self._clock()
        documents, leader = self.documents(), self.leader()
        return AggregatorStatus(
            at_ms=now.wall_ms,
            started_at_ms=self._started_at_ms,
            health=self._of.readiness.health(),
            nodes=await all_of(self.node_rows(), SLICE_ROWS),
            liveness=self.liveness().liveness,
            faults=await all_of(self.fault_rows(), SLICE_ROWS),
            sources=documents.stores,
            documents=documents.documents,
            rejected=documents.rejected,
            missed_writes=tuple(
                MissedWritesStatus(url, dict(one.counts), len(one.claims.problems))
                for url, one in self._of.missed_writes.items()
            ),
            missing=tuple(missing_counts(self._of.absences.values(), now)),
            leader=leader.leader,
            kept=leader.kept,
            jobs=await all_of(self.job_rows(), SLICE_ROWS),
            public_faults=self._of.public_faults.status(),
            separation=await self._separation(),
            cluster_state=self.cluster_state().cluster_state,
            services=self._services(),
            advice=None if self._of.advising is None else self._of.advising.status(),
        )

    def explain(self, node: str) -> Explanation | None:
        """Return why a node is published as it is; ``None`` where there is none."""
        of = self._of
        now = self._clock()
        status = node_status(of.pipeline, of.heartbeat_monitor, node, now)
        if status is None:
            return None
        facts = msgspec.structs.replace(
            of.cluster_state.node_context(node), lost=node in of.pipeline.lost
        )
        around = ExplanationContext(
            facts=facts,
            standing=of.public_faults.standing(node),
            jobs=of.job_view.jobs_on(node),
            relations=of.job_view.relations_on(node),
            publish_lost=self._publish_lost,
            began=of.notifier.began_ms,
        )
        found = explain(of.pipeline, status, around, self._acknowledged_everywhere())
        found = msgspec.structs.replace(found, stream=of.stream.last_id)
        if of.advising is None:
            return found
        return msgspec.structs.replace(found, advice=of.advising.answers.of_node(node))

    def _acknowledged_everywhere(self) -> dict[str, bool]:
        """Document to whether every store that is published to has it as it is to be."""
        pipeline = self._of.pipeline
        return {
            name: all(
                (output := publisher.outputs.get(name)) is not None
                and output.acknowledged >= pipeline.revision(name)
                for publisher in self._of.publishers
            )
            for name in pipeline.documents
        }
