"""What pages and metrics show of a running aggregator, read anew for each request.

What grows with the number of nodes is made in slices: ten thousand nodes delay no other task, and
two rows of one reply may be some milliseconds apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aggregator.advising.status import without_placement
from aggregator.api.explanation import ExplanationContext, explain
from aggregator.api.fault_status import fault_statuses
from aggregator.api.node_status import Heartbeats, node_status, node_statuses
from aggregator.api.operations import (
    AdviceOutcomes,
    AdvicePage,
    DocumentsPage,
    EndedJobsPage,
    PublicFaultsPage,
    SeparationPage,
    ServicesPage,
)
from aggregator.api.rejections import refused_statuses, rejected_counts
from aggregator.api.separation_status import all_counted, all_separated, separation_status
from aggregator.api.status import (
    ServicesStatus,
    document_statuses,
    leader_status,
    liveness_status,
    missing_counts,
    source_statuses,
)
from contract.pages.aggregator_status import (
    ClusterStatePage,
    ClusterStateStatus,
    LeaderPage,
    LivenessPage,
    MissedWritesStatus,
    ObjectsStatus,
)
from contract.pages.scheduler_signals import SchedulerSignalsPage
from contract.record import Record
from pacing.cooperative import all_of
from service.pages.page_rows import SLICE_ROWS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from aggregator.absence.directory_mark import DirectoryMarks
    from aggregator.absence.ended_documents import Absence
    from aggregator.advising.advice import AdviceService
    from aggregator.advising.status import AdviceAbout, AdviceStatus
    from aggregator.api.readiness import Readiness
    from aggregator.api.separation_status import SeparationStatus
    from aggregator.api.status import ProbeStatus
    from aggregator.dpu_faults.documents import DpuStatus
    from aggregator.dpu_faults.plugin import DpuFaults
    from aggregator.failover.takeover import Takeover
    from aggregator.inputs.cluster_state import ClusterState
    from aggregator.inputs.multi_store_cache import StoreCache
    from aggregator.jobs.job_view import JobView
    from aggregator.jobs.status import JobStatus
    from aggregator.liveness.monitor import HeartbeatMonitor
    from aggregator.merge.pipeline import Pipeline
    from aggregator.missed_writes.reader import MissedWrites
    from aggregator.notify.notifier import Notifier
    from aggregator.public_faults.plugin import PublicFaultsPlugin
    from aggregator.public_faults.status import PublicFaultStatus
    from aggregator.publish.publisher import StorePublisher
    from aggregator.rank_tables.plugin import RankTables
    from aggregator.scheduler_signals.service import SchedulerSignals
    from contract.pages.aggregator_status import (
        HitJob,
        LivenessStatus,
        MissingCount,
        NodeStatus,
    )
    from contract.pages.explanation import ExplainedNode
    from contract.pages.faults import FaultStatus
    from contract.pages.scheduler_signals import SignalStatus
    from service.clock import Clock
    from service.election.leadership import Leadership
    from service.pages.event_stream import Stream
    from service.tls.expiry import CertificateFiles
    from stores.base import Store

_MAX_SHARED = 1000


class AggregatorStatus(Record, frozen=True, kw_only=True):
    """What metrics show, read at one scrape."""

    health: ProbeStatus
    nodes: tuple[NodeStatus, ...]
    liveness: LivenessStatus
    faults: tuple[FaultStatus, ...]
    documents: DocumentsPage
    missed_writes: tuple[MissedWritesStatus, ...]
    missing: tuple[MissingCount, ...]
    leader: LeaderPage
    jobs: tuple[HitJob, ...]
    public_faults: PublicFaultStatus
    dpu_faults: DpuStatus
    separation: SeparationStatus
    cluster_state: ClusterStateStatus
    services: ServicesStatus
    advice: AdviceStatus | None
    signals: tuple[SignalStatus, ...]
    certificate_ends_ms: Mapping[str, int]


class StatusQueries(Record, frozen=True, kw_only=True):
    """What pages and metrics show, read from the parts of an aggregator when it is asked for.

    Mappings are by URL of a store. ``publish_lost``: nodes that fall silent are published as lost.
    """

    absences: Mapping[str, Absence]
    advising: AdviceService | None
    dpu_faults: DpuFaults
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
    signals: SchedulerSignals | None
    stores: dict[str, Store]
    stream: Stream
    takeover: Takeover
    notifier: Notifier
    cluster_state: ClusterState
    clock: Clock
    certificates: CertificateFiles
    publish_lost: bool

    @property
    def at_ms(self) -> int:
        return self.clock().wall_ms

    @property
    def _urls(self) -> tuple[str, ...]:
        return tuple(source.url for source in self.pipeline.sources)

    def node_rows(self, nodes: Collection[str] | None = None) -> Iterator[NodeStatus]:
        """Yield every node, or each of ``nodes`` that is known, sorted by name."""
        now, heartbeats = self.clock(), Heartbeats.of(self.heartbeat_monitor)
        if nodes is None:
            for status in node_statuses(self.pipeline, heartbeats, now):
                yield self._with_dpus(status)
            return
        for node in sorted(nodes):
            row = node_status(self.pipeline, heartbeats, node, now)
            if row is not None:
                yield self._with_dpus(row)

    def _with_dpus(self, status: NodeStatus) -> NodeStatus:
        """Return the status of a node with what its RDMA plugin does not show any more."""
        blind = self.dpu_faults.documents.blind(status.node)
        if blind is None:
            return status
        return msgspec.structs.replace(status, blind=(*(status.blind or ()), blind))

    def fault_rows(self, nodes: Collection[str] | None = None) -> Iterator[FaultStatus]:
        """Yield every fault, with ``nodes`` of these only."""
        began, dpus = self.notifier.began_ms, self.dpu_faults.documents
        return fault_statuses(self.pipeline, began, nodes, dpus)

    def job_rows(self) -> Iterator[HitJob]:
        """Yield the jobs that are hit."""
        return self.job_view.hit()

    def job(self, job: str) -> JobStatus | None:
        """Return one job; ``None`` where there is none."""
        status, advising = self.job_view.job(job), self.advising
        if status is None or advising is None:
            return status
        advice = advising.answers.of_job(status.namespace, status.name)
        return msgspec.structs.replace(status, advice=advice)

    def advice(self, node: str | None = None) -> AdvicePage | None:
        """Return what the scheduler will do; no advice where it is not computed.

        With ``node`` only what is about that node and the jobs there; ``None`` where there is no
        such node.
        """
        if self.advising is None:
            return AdvicePage(self.at_ms, False, None)
        if node is None:
            advice = without_placement(self.advising.status())
        elif (of_node := self.advising.answers.page_of_node(node)) is not None:
            advice = of_node
        else:
            return None
        return AdvicePage(self.at_ms, True, advice)

    def advice_outcomes(self) -> AdviceOutcomes:
        """Return whether the advised deletions were made."""
        if self.advising is None:
            return AdviceOutcomes(self.at_ms, False, {}, ())
        status = self.advising.status()
        return AdviceOutcomes(self.at_ms, True, status.outcomes, status.missed)

    async def ended_jobs(
        self,
        sized: Collection[tuple[str, str]],
        judged: Collection[tuple[str, str]],
        *,
        running: bool,
        hit: bool,
    ) -> EndedJobsPage:
        """Return the vcjobs that have ended, by namespaces and names."""
        ended = None
        if self.advising is not None:
            ended = await self.advising.ended(sized, judged, running=running, hit=hit)
        liveness = self.liveness_page().liveness
        return EndedJobsPage(
            self.at_ms, self.leadership.leads, liveness.alarm, liveness.lost, ended
        )

    def liveness_page(self) -> LivenessPage:
        """Return which nodes fell silent."""
        status = liveness_status(self.heartbeat_monitor, self.publish_lost)
        return LivenessPage(self.at_ms, status, self.stream.last_id)

    def documents_page(self) -> DocumentsPage:
        """Return the stores that are read, the published documents, and refused ones."""
        at_ms, stores = self.at_ms, self.stores
        return DocumentsPage(
            at_ms,
            tuple(source_statuses(self.pipeline, self.cluster_state, stores.values(), self.marks)),
            tuple(document_statuses(self.publishers, at_ms)),
            tuple(refused_statuses(stores, self.public_faults, self.rank_tables)),
            tuple(rejected_counts(stores, self.pipeline, self.public_faults, self.rank_tables)),
        )

    def leader_page(self) -> LeaderPage:
        """Return which replica writes."""
        state_statuses = self.takeover.persistent_state.statuses()
        return LeaderPage(
            self.at_ms, leader_status(self.leadership), state_statuses, self.stream.last_id
        )

    def signals_page(self) -> SchedulerSignalsPage:
        """Return how it stands with conditions and taints."""
        return SchedulerSignalsPage(self.at_ms, self._signals())

    def _signals(self) -> tuple[SignalStatus, ...]:
        return () if self.signals is None else self.signals.statuses()

    def public_faults_page(self) -> PublicFaultsPage:
        """Return the state of public faults."""
        return PublicFaultsPage(self.at_ms, self.public_faults.status(), self.dpu_faults.status())

    async def separation_page(self) -> SeparationPage:
        """Return the state of manual separation."""
        processing, stores = self.pipeline.processing, self._urls
        chips = await all_of(all_separated(processing, stores), SLICE_ROWS)
        counted = await all_of(all_counted(processing, self.at_ms), SLICE_ROWS)
        return SeparationPage(self.at_ms, separation_status(processing, stores, chips, counted))

    def cluster_state_page(self) -> ClusterStatePage:
        """Return the known Nodes, pods and PodGroups."""
        return ClusterStatePage(self.at_ms, cluster_state_status(self.cluster_state, self._urls))

    def services_page(self) -> ServicesPage:
        """Return the state of all services besides documents."""
        server = self.notifier.server
        return ServicesPage(
            self.at_ms,
            ServicesStatus(
                grpc=None if server is None else server.status(),
                rank_tables=self.rank_tables.status(),
                stream=self.stream.status(),
                history=self.notifier.history.status(),
            ),
        )

    async def status(self) -> AggregatorStatus:
        """Return everything, for metrics."""
        return AggregatorStatus(
            health=self.readiness.health(),
            nodes=await all_of(self.node_rows(), SLICE_ROWS),
            liveness=self.liveness_page().liveness,
            faults=await all_of(self.fault_rows(), SLICE_ROWS),
            documents=self.documents_page(),
            missed_writes=tuple(
                MissedWritesStatus(url, dict(missed.counts), len(missed.claims.problems))
                for url, missed in self.missed_writes.items()
            ),
            missing=tuple(missing_counts(self.absences.values(), self.clock())),
            leader=self.leader_page(),
            jobs=await all_of(self.job_rows(), SLICE_ROWS),
            public_faults=self.public_faults.status(),
            dpu_faults=self.dpu_faults.status(),
            separation=(await self.separation_page()).separation,
            cluster_state=self.cluster_state_page().cluster_state,
            services=self.services_page().services,
            advice=None if self.advising is None else self.advising.status(),
            signals=self._signals(),
            certificate_ends_ms={
                **{
                    file: end_ms
                    for store in (*self.stores.values(), *(p.store for p in self.publishers))
                    for file, end_ms in store.certificate_ends_ms.items()
                },
                **self.certificates.ends_ms,
            },
        )

    def explain(self, node: str) -> ExplainedNode[AdviceAbout] | None:
        """Return why a node is published as it is; ``None`` where there is none."""
        pipeline = self.pipeline
        heartbeats = Heartbeats.of(self.heartbeat_monitor)
        status = node_status(pipeline, heartbeats, node, self.clock())
        if status is None:
            return None
        context = ExplanationContext(
            node_context=msgspec.structs.replace(
                self.cluster_state.node_context(node), lost=node in pipeline.lost
            ),
            standing=self.public_faults.standing(node),
            dpu_faults=self.dpu_faults.explained(node),
            dpu_problems=tuple(self.dpu_faults.documents.problems(node)),
            jobs=self.job_view.jobs_on(node),
            relations=self.job_view.relations_on(node),
            heartbeat_problem=heartbeats.problem(node),
            publish_lost=self.publish_lost,
            began=self.notifier.began_ms,
        )
        explanation = explain(
            pipeline, self._with_dpus(status), context, self._acknowledged_everywhere()
        )
        advice = None if self.advising is None else self.advising.answers.of_node(node)
        return msgspec.structs.replace(explanation, stream=self.stream.last_id, advice=advice)

    def _acknowledged_everywhere(self) -> dict[str, bool]:
        """Return for each document whether every publisher's store has its newest value."""
        return {
            name: all(
                (output := publisher.outputs.get(name)) is not None
                and output.acknowledged >= self.pipeline.revision(name)
                for publisher in self.publishers
            )
            for name in self.pipeline.documents
        }


def cluster_state_status(cluster_state: ClusterState, stores: Iterable[str]) -> ClusterStateStatus:
    """Return the status now; ``stores`` are URLs in their order."""
    shared = sorted(cluster_state.shared_serial_numbers.items())[:_MAX_SHARED]
    return ClusterStateStatus(
        objects=tuple(_objects(cluster_state, stores)),
        jobs=len(cluster_state.jobs()),
        shared_serial_numbers={number: tuple(sorted(names)) for number, names in shared},
    )


def _objects(cluster_state: ClusterState, stores: Iterable[str]) -> Iterator[ObjectsStatus]:
    for number, store in enumerate(stores):
        kinds: tuple[tuple[str, StoreCache[Any]], ...] = (
            ("Nodes", cluster_state.nodes_of_store(number)),
            ("pods", cluster_state.pods_of(number)),
            ("PodGroups", cluster_state.groups_of(number)),
        )
        for kind, cache in kinds:
            yield ObjectsStatus(
                store=store,
                kind=kind,
                followed=cache.is_followed,
                known=cache.known,
                objects=len(cache.items),
                interrupted=cache.interrupted,
                absent=cache.absent,
            )
