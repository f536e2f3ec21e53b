"""The cluster daemon: one loop, one task group; the first root task that ends, ends it."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from aggregator.absence.directory_mark import DirectoryMarks
from aggregator.absence.forget_requests import ForgetRequests
from aggregator.absence.last_known import LastKnown, LastKnownStore
from aggregator.absence.last_known_documents import LastingDocumentWatch
from aggregator.absence.rules import Absence
from aggregator.api.collect_status import StatusQueries
from aggregator.api.readiness import Readiness
from aggregator.cluster_documents.kinds import kind_of
from aggregator.cluster_documents.shards import text_limit
from aggregator.dpu_faults.plugin import DpuFaults
from aggregator.durable_ack import durable_answer
from aggregator.failover.read_repair import ReadRepair
from aggregator.failover.takeover import Takeover
from aggregator.grpc.endpoint import endpoint_of
from aggregator.inputs.cluster_state import ClusterState
from aggregator.inputs.cluster_watch import follow
from aggregator.inputs.known_nodes import KnownNodes
from aggregator.inputs.node_document_reader import read_documents
from aggregator.inputs.node_documents import DocumentSource
from aggregator.jobs.job_view import JobView
from aggregator.liveness.legacy_watch import LegacyHeartbeatWatch
from aggregator.liveness.monitor import HeartbeatMonitor
from aggregator.liveness.persisted import PersistedHeartbeats
from aggregator.merge.pipeline import Pipeline, lost_of
from aggregator.merge.stale_documents import StaleDocuments
from aggregator.missed_writes.reader import MissedWrites, documents_of
from aggregator.notify.leader_events import LeaderEvents
from aggregator.notify.notifier import Notifier
from aggregator.notify.pod_labels import PodLabelWriter
from aggregator.plugin_host import PluginHost
from aggregator.processors.state_types import earliest
from aggregator.public_faults.fault_table import follow_table
from aggregator.public_faults.plugin import MESSAGES, PublicFaultsPlugin
from aggregator.publish.document_writer import WriterContext
from aggregator.publish.publisher import StorePublisher
from aggregator.publish.rate_limited_queue import WriteQueue
from aggregator.rank_tables.plugin import CONTROLLER, RankTables
from contract.documents.cluster_info import VALUE_LIMIT
from contract.names import CLUSTER_NAMESPACE, CLUSTER_NODE_NAME
from pacing.waiting import is_set_within
from service.clock import Clock, system_clock
from service.pages.event_stream import PLACES, Stream
from service.stalls import Stalls
from service.systemd import notify_manager
from stores.base import Changed, Document, DocumentsListed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aggregator.advising.advice import Advising
    from aggregator.advising.status import AdviceChange
    from aggregator.config import AggregatorConfiguration
    from aggregator.grpc.server import GrpcServer
    from aggregator.inputs.node_documents import DocumentWatch
    from aggregator.notify.history import ClusterHistory
    from aggregator.plugin import Plugin
    from aggregator.public_faults.validation import ValidationReply
    from contract.documents.node_info import NodeRecord
    from contract.documents.public_fault import PublicFault
    from service.clock import Instant
    from service.election.leadership import Leadership
    from stores.base import Beat, Store, WatchEvent
    from stores.cluster import Cluster

_log = logging.getLogger(__name__)

_DELETED_AFTER_MS = 2000
"""A node's document that is gone for so long was deleted. Its owner deletes and creates a document
that an operator made immutable, and no reader may see the node healthy meanwhile.
"""

_FIRST_LIST_SECONDS = 30.0
"""Longest wait of the first publication for stores that are away, once one store was listed."""
_FIT_SECONDS = 1.0
"""Period of checks of what stores accept."""


class Aggregator:
    """Reads and publishes as ``configuration`` has it; ``stores`` are by URL.

    ``plugins`` are aggregator plugins beside its own. One that changes by a call from outside calls
    ``wake``.
    """

    def __init__(
        self,
        configuration: AggregatorConfiguration,
        stores: Mapping[str, Store],
        history: ClusterHistory,
        lead: Leadership,
        clock: Clock = system_clock,
        plugins: Iterable[Plugin] = (),
    ) -> None:
        """Make all parts."""
        self._clock = clock
        self._configuration = configuration
        touch_period_seconds = configuration.touch_period_seconds
        publish = [stores[url] for url in configuration.publish_urls]
        stores = {url: stores[url] for url in configuration.read_urls}
        lasting = [url for url, store in stores.items() if not store.absence_is_deletion]
        self.last_known = LastKnown(configuration.state_dir, clock)
        self.stores = stores
        self.leadership = lead
        self.stalls = Stalls(lambda: clock().steady_ms / 1000)
        self.cluster_state = ClusterState([store.cluster is not None for store in stores.values()])
        sources = tuple(self._source(url, lasts=url in lasting) for url in stores)
        self._known_nodes = KnownNodes(sources, self.cluster_state)
        self.public_faults = PublicFaultsPlugin(
            self._known_nodes, len(stores), configuration.public_faults.namespaces
        )
        self.pipeline = Pipeline(
            sources,
            touch_period_seconds,
            node_context=self.cluster_state.node_context,
            public=self.public_faults,
            deleted_after_ms=_DELETED_AFTER_MS,
        )
        self.absences = {source.url: Absence(source) for source in sources if source.url in lasting}
        """What each store lacks that may come back without what it had."""
        self.job_view = JobView(self.cluster_state, self.pipeline.published, is_read=self._is_read)
        self.rank_tables = RankTables(len(stores), configuration.rank_tables.namespaces)
        by_url = {url: one.cluster for url, one in stores.items() if one.cluster is not None}
        clusters = list(by_url.values())
        self.dpu_faults = DpuFaults(
            by_url,
            self.public_faults,
            self._known_nodes,
            publishes=configuration.dpu_faults.publish,
            chips=configuration.dpu_faults.chips,
        )
        self._labelling = PodLabelWriter(clusters, self.job_view.labels, self.leadership)
        # Streams never take the places that other pages need.
        places = min(PLACES, configuration.pages.max_connections // 2)
        self.stream = Stream(f"{clock().wall_ms:x}", places)
        self.advising = self._advisor(clusters, history)
        self.notifier = Notifier(
            self.pipeline,
            self.cluster_state,
            self.job_view,
            self.rank_tables,
            self.stream,
            history,
            self._labelling,
            self.dpu_faults,
            self._grpc_server(),
        )
        self._moved: set[str] = set()
        """Nodes whose Node, pods or jobs changed since the last step."""
        self._limit = VALUE_LIMIT
        """How long the text of a cluster document may be now."""
        self.publishers = tuple(
            StorePublisher(
                WriterContext(
                    store,
                    lead,
                    clock,
                    self.stalls,
                    WriteQueue(configuration.pace.writes_per_second, clock),
                    touch_period_seconds,
                ),
                value=self.pipeline.value,
                acknowledged=self._acknowledged,
                appeared=self._appeared,
                followed=self._followed,
                # The first store that is published to may have lost documents of state, too.
                forgot=lambda: self.takeover.persistent_state.look_for_lost(),
            )
            for store in publish
        )
        old = {
            source.url: LegacyHeartbeatWatch(
                source.url,
                objects,
                partial(_node_record, source),
                partial(_why_unread, source.nodes),
                clock,
            )
            for source in sources
            if (objects := stores[source.url].objects) is not None
        }
        memory = PersistedHeartbeats(old.values(), clock, self.wake)
        self.missed_writes = {
            source.url: MissedWrites(
                stores[source.url],
                documents_of(source, number, self.public_faults),
                partial(self._apply_read, number),
                clock,
                self.wake,
            )
            for number, source in enumerate(sources)
        }
        self.marks = DirectoryMarks(
            stores, configuration.state_dir, lambda url: self.absences[url].nodes, self.wake
        )
        self.heartbeat_monitor = HeartbeatMonitor(
            stores,
            self._publish_lost,
            clock,
            self.stalls,
            old,
            memory,
            on_listing=self._observe_beats,
            lasting=lasting,
            noted=self.last_known.record_beat,
        )
        self._forgetting = {
            url: ForgetRequests(
                stores[url],
                absence,
                clock,
                touch_period_seconds,
                is_there=self.pipeline.knows,
                may_write=lambda: self.takeover.leads,
                changed=self.wake,
            )
            for url, absence in self.absences.items()
        }
        self.plugins = PluginHost(
            (
                memory,
                self.dpu_faults,
                self.public_faults,
                self.pipeline.processing,
                self.job_view,
                self.rank_tables,
                self._labelling,
                *(() if self.advising is None else (self.advising.kept,)),
                *plugins,
                *(() if self.notifier.server is None else (self.notifier.server,)),
            ),
            stores,
            clock,
            self.stalls,
            judge=self._judge,
            seen=lambda *what: self.takeover.seen(*what),
        )
        self.takeover = Takeover(
            self.pipeline,
            self.publishers,
            self.plugins,
            leader_changed=LeaderEvents(self.leadership, self.stream, clock).send_if_changed,
            inherit=self._inherit,
            began=self._began_to_lead,
            copies=self.last_known,
        )
        self.readiness = Readiness(
            self.pipeline,
            self.publishers,
            self.takeover,
            self.leadership,
            self.stalls,
            self._not_served,
            lambda: self.heartbeat_monitor.unread_stores,
            lambda: self.marks.problems,
            self.absences.values(),
            clock,
        )
        self._read_repair = ReadRepair(self.pipeline, tuple(stores.values()), clock, self.wake)
        self._copies: tuple[Document, ...] = ()
        """What an earlier run published, for a store that lost it."""
        self._has_copies = True
        self.queries = StatusQueries(
            absences=self.absences,
            advising=self.advising,
            job_view=self.job_view,
            leadership=self.leadership,
            heartbeat_monitor=self.heartbeat_monitor,
            marks=self.marks,
            missed_writes=self.missed_writes,
            dpu_faults=self.dpu_faults,
            pipeline=self.pipeline,
            public_faults=self.public_faults,
            publishers=self.publishers,
            rank_tables=self.rank_tables,
            readiness=self.readiness,
            stores=self.stores,
            stream=self.stream,
            takeover=self.takeover,
            notifier=self.notifier,
            cluster_state=self.cluster_state,
            clock=clock,
            publish_lost=configuration.liveness.publish,
        )
        """What pages and metrics show of all this."""
        self._wake = asyncio.Event()

    def _advisor(self, clusters: Sequence[Cluster], history: ClusterHistory) -> Advising | None:
        """Return the advisor; ``None``, and not loaded, without its option or a store with pods."""
        if not self._configuration.advice.enabled or not clusters:
            return None
        from aggregator.advising.advice import Advising
        from aggregator.advising.job_pods import PublishedPast

        def send(changes: Iterable[AdviceChange]) -> None:
            for one in changes:
                self.stream.send("advice", one, {one.node})

        past = PublishedPast(history, lambda node: self.notifier.levels_of(node))
        return Advising(clusters[0], self._clock, send, self.wake, past)

    def _grpc_server(self) -> GrpcServer | None:
        """Return the server for clients of ClusterD. Without it gRPC is not imported."""
        endpoint = endpoint_of(self._configuration.grpc)
        if endpoint is None:
            return None
        from aggregator.grpc.server import GrpcServer

        return GrpcServer(
            endpoint, self.job_view, self.rank_tables, self._receive, self._clock, self._on_client
        )

    async def run(self) -> NoReturn:
        """Aggregate until cancelled, then let another replica lead at once."""
        async with asyncio.TaskGroup() as lasting:
            # Its last commit may take seconds; another replica leads meanwhile.
            lasting.create_task(self.notifier.history.run(), name="history")
            self._restore_last_known(await asyncio.to_thread(self.last_known.load))
            lasting.create_task(self.last_known.run(), name="last known state")
            try:
                await self._run()
            finally:
                await self.takeover.give_up()
        raise AssertionError("the tasks never end")

    def _restore_last_known(self, found: Mapping[str, LastKnownStore]) -> None:
        """Restore what an earlier run has read of stores that may come back without it."""
        now_ms = self._clock().wall_ms
        for url, absence in self.absences.items():
            known = found.get(url, LastKnownStore())
            for document in known.documents.values():
                for watch in absence.watches:
                    watch.restore(document, now_ms)
            for node, beat in known.beats.items():
                self.heartbeat_monitor.restore(url, node, beat.holder, beat.interval_ms)
        self.pipeline.note_complete(
            all(url in found and found[url].is_complete for url in self.absences)
        )
        first = self.publishers[0].store
        if not first.absence_is_deletion and first.url in found:
            documents = tuple(found[first.url].documents.values())
            self.takeover.persistent_state.restore_copies(documents)
            self._copies = tuple(one for one in documents if kind_of(one.name) is not None)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number, (url, store) in enumerate(self.stores.items()):
                for watch in self.pipeline.sources[number].watches:
                    log = self.notifier.log
                    read = read_documents(watch, store, self._observe, self.stalls, log)
                    tasks.create_task(read, name=f"read {watch.selection.namespace} of {url}")
                task = follow(self.cluster_state, number, store, self._listed_nodes, self.stalls)
                tasks.create_task(task, name=f"read pods and nodes of {url}")
            for number in range(self.dpu_faults.stores):
                task = self.dpu_faults.follow(number, self._clock, self.stalls, self.wake)
                tasks.create_task(task, name=f"read documents of RDMA plugins {number}")
            for publisher in self.publishers:
                tasks.create_task(publisher.run(), name=f"publish to {publisher.store.url}")
            table = follow_table(
                self._configuration.public_faults.table_file,
                lambda text: self._judge(self.public_faults.configure(text)),
            )
            tasks.create_task(table, name="read the table of public faults")
            for url, forgetting in self._forgetting.items():
                tasks.create_task(forgetting.run(), name=f"follow what is forgotten in {url}")
            tasks.create_task(self._labelling.run(), name="label pods")
            if self.advising is not None:
                tasks.create_task(self.advising.run(), name="advice")
            tasks.create_task(self._read_repair.run(), name="read repair")
            tasks.create_task(self._merge(tasks), name="merge")
            tasks.create_task(self._keep_fitting(), name="limits of stores")
            manager = notify_manager(
                self.stalls.stalled, lambda: self.readiness.health().not_ready, os.environ
            )
            tasks.create_task(manager, name="service manager")
            tasks.create_task(self.stalls.watch(lambda: None), name="stalls")

    def _observe_beats(self, url: str, beats: tuple[Beat, ...]) -> None:
        self.missed_writes[url].observe(beats)
        self.marks.observe_beats(url, beats)
        absence = self.absences.get(url)
        if absence is not None:
            absence.observe(beats)
            if any(watch.absent for watch in absence.watches) or absence.over:
                self._wake.set()

    def wake(self) -> None:
        """Start a step: a plugin was changed by a call, not by a store."""
        self._wake.set()

    def _judge(self, nodes: frozenset[str]) -> None:
        self.pipeline.judge_again(nodes)
        self._wake.set()

    def _observe(self, watch: DocumentWatch, event: WatchEvent) -> None:
        self.pipeline.observe(watch, event, self._clock())
        if isinstance(event, DocumentsListed):
            for source in self.pipeline.sources:
                if source.url in self.absences and source.listed:
                    self.last_known.record_listed(source.url)
        self._wake.set()

    def _source(self, url: str, *, lasts: bool) -> DocumentSource:
        """Return the source of the nodes' documents in this store; ``lasts``: absence
        ends nothing.
        """
        if not lasts:
            return DocumentSource(url)
        watch = partial(
            LastingDocumentWatch,
            keep=partial(self.last_known.record, url),
            has_agent=lambda node: self.heartbeat_monitor.knows(url, node),
        )
        return DocumentSource(url, watch)

    def _end_absent(self, now: Instant) -> None:
        """End the documents that stores lack and that have a reason to end."""
        for url, absence in self.absences.items():
            absence.hold(self.marks.problem(url) is not None)
            if not absence.is_due(now):
                continue
            ended = absence.step(partial(self.heartbeat_monitor.beats, url), now)
            self.pipeline.judge_again(ended)
            gone = frozenset(node for node in absence.over if not absence.has_beat(node))
            self.heartbeat_monitor.forget(url, gone)
            absence.over -= gone
            absence.log_changes(now)
            self._forgetting[url].request_heartbeats()

    def _apply_read(self, number: int, kind: str, documents: Mapping[str, Document | None]) -> None:
        """Apply documents of nodes that were read by name in the store with this number."""
        now = self._clock()
        for watch in self.pipeline.sources[number].watches:
            if watch.document == kind:
                self.pipeline.read(watch, documents, now)
                return
        for document in documents.values():
            if document is not None:
                event = Changed(document)
                self._judge(self.public_faults.observe(number, MESSAGES, event, now))

    def _listed_nodes(self, nodes: frozenset[str] | None) -> None:
        moved = self.pipeline.nodes | self.cluster_state.places if nodes is None else nodes
        self._moved |= moved
        self.pipeline.judge_again(moved)
        self._wake.set()

    def _is_read(self) -> bool:
        """Return whether the nodes' documents were listed in all stores."""
        return all(source.listed for source in self.pipeline.sources)

    async def _receive(self, message: PublicFault) -> ValidationReply:
        """Apply public faults that came over gRPC. Raises ``StoreError`` where they could
        be lost.
        """
        persistent_state = self.takeover.persistent_state
        return await durable_answer(
            self.public_faults, message, persistent_state, self._judge, self._clock
        )

    def _not_served(self) -> str | None:
        return None if self.notifier.server is None else self.notifier.server.not_served

    def _on_client(self, _: object) -> None:
        """Observe that a client subscribed or left."""
        assert self.notifier.server is not None, "clients subscribe there"
        self.pipeline.set_controllers(self.notifier.server.jobs_of(CONTROLLER))
        self._wake.set()

    def _step(self) -> frozenset[str]:
        """Bring everything up to date; return the documents that changed."""
        now = self._clock()
        moved, self._moved = self._moved, set()
        self.pipeline.forget_deleted(now)
        self._end_absent(now)
        self._known_nodes.update(self.pipeline.dirty | moved, now)
        self.pipeline.judge_again(self.plugins.step(now))
        changed = self.pipeline.step(now)
        self.notifier.inform(moved, now, leads=self.takeover.leads)
        return changed

    def _publish_lost(self, lost: frozenset[str]) -> None:
        if self._configuration.liveness.publish:
            self.pipeline.set_lost(lost)
            self._wake.set()

    async def _merge(self, tasks: asyncio.TaskGroup) -> NoReturn:
        await self._begin(tasks)
        tasks.create_task(self.marks.run(), name="marks of directories")
        stale = StaleDocuments(self.pipeline, lambda: self.heartbeat_monitor.alive)
        tasks.create_task(stale.run(), name="stale documents")
        tasks.create_task(self.heartbeat_monitor.run(self.pipeline.lost), name="list heartbeats")
        for url, missed in self.missed_writes.items():
            tasks.create_task(missed.run(), name=f"read missed writes in {url}")
        tasks.create_task(self.takeover.run(tasks), name="lead or follow")
        while True:
            self._wake.clear()
            with self.stalls.busy("merge"):
                self._wake_publishers(self._step())
                views_due_ms = self.takeover.collect(self._clock())
            due_ms = earliest(
                self.pipeline.next_due_ms(),
                self.plugins.next_due_ms(),
                views_due_ms,
                *(absence.due_ms for absence in self.absences.values()),
            )
            await self._wait(due_ms)

    async def _begin(self, tasks: asyncio.TaskGroup) -> None:
        """Restore and list everything first, so that nothing incomplete is published."""
        documents = await self.publishers[0].documents()
        there = {document.name for document in documents}
        lost = (document for document in self._copies if document.name not in there)
        self.pipeline.restore((*documents, *lost))
        for error in self.pipeline.unreadable:
            _log.warning("an earlier run's document is overwritten: %s", error)
        if not self._configuration.liveness.publish:
            self.pipeline.set_lost(frozenset())
        self.readiness.await_start("waiting for the persistent state")
        await self.takeover.restore()
        self.plugins.begin(tasks)
        self.readiness.await_start("waiting for the first list of the nodes' documents")
        await self._listed()
        await self.marks.check()
        await self.notifier.seed(self._clock())
        self._step()
        self.readiness.await_start(None if self.leadership.follows else "waiting for a leader")

    def _fit(self) -> None:
        """Keep documents within the largest size that every store accepts now."""
        largest = [one.store.largest_document for one in self.publishers]
        limits = [one for one in largest if one is not None]
        limit = VALUE_LIMIT if not limits else text_limit(min(limits))
        if limit == self._limit:
            return
        if limit < VALUE_LIMIT:
            _log.warning(
                "a store takes at most %d bytes per document. Cluster documents have at most %d: "
                "there are more of them, and %s may lack healthy nodes",
                *(min(limits), limit, CLUSTER_NODE_NAME),
            )
        self._limit = limit
        self._wake_publishers(self.pipeline.fit(limit))

    async def _keep_fitting(self) -> NoReturn:
        while True:
            self._fit()
            await asyncio.sleep(_FIT_SECONDS)

    def _began_to_lead(self) -> None:
        for publisher in self.publishers[1:]:
            self.pipeline.adopt(publisher.found)
        self._read_repair.wake()
        self._fit()
        # What another leader wrote may be larger than our limit.
        self._wake_publishers(self.pipeline.fit(self._limit))
        self._step()
        self.notifier.begin_leading(self._clock())
        names = self.pipeline.documents
        self.readiness.await_publication()
        for publisher in self.publishers:
            publisher.lead(names)
        self.readiness.look()

    async def _listed(self) -> None:
        """Wait until every store was listed; after 30 s one is enough."""
        deadline_ms = self._clock().steady_ms + int(_FIRST_LIST_SECONDS * 1000)
        while True:
            self._wake.clear()
            listed = [
                source.listed
                and self.cluster_state.answered(number)
                and self.plugins.is_answered(number)
                for number, source in enumerate(self.pipeline.sources)
            ]
            if all(listed) or (any(listed) and self._clock().steady_ms >= deadline_ms):
                return
            await self._wait(deadline_ms if any(listed) else None)

    async def _wait(self, until_ms: int | None) -> None:
        """Wait until woken, or until this steady time."""
        seconds = None if until_ms is None else (until_ms - self._clock().steady_ms + 1) / 1000
        await is_set_within(self._wake, None if seconds is None else max(0.0, seconds))

    def _wake_publishers(self, names: Iterable[str]) -> None:
        names = tuple(names)
        for publisher in self.publishers:
            publisher.wake(names)

    def _acknowledged(self, publisher: StorePublisher, name: str, _: int) -> None:
        if publisher is self.publishers[0] and not publisher.store.absence_is_deletion:
            document = publisher.outputs[name].document(self.pipeline.value(name))
            self.last_known.record(publisher.store.url, CLUSTER_NAMESPACE, name, document)
            self._has_copies = True
        outputs = [publisher.outputs.get(name) for publisher in self.publishers]
        revision = min(-1 if output is None else output.acknowledged for output in outputs)
        if revision >= 0:
            self._wake_publishers(self.pipeline.acknowledged(name, revision))
            self._wake.set()
        self.readiness.look()

    def _drop_copies(self) -> None:
        """Remove the copies in the state directory: another leader writes newer documents."""
        if self._has_copies:
            self._has_copies = False
            self.takeover.persistent_state.drop_copies()
            url = self.publishers[0].store.url
            for name in self.pipeline.documents:
                self.last_known.record(url, CLUSTER_NAMESPACE, name, None)

    def _appeared(self, documents: Iterable[Document]) -> None:
        self._wake_publishers(self.pipeline.adopt(documents))

    def _followed(self, publisher: StorePublisher, document: Document) -> None:
        """Observe a document that another leader wrote."""
        if publisher is not self.publishers[0]:
            return
        now = self._clock()
        leads = self.takeover.leads
        if not leads:
            self._drop_copies()
        self.notifier.observe_published(*self.pipeline.follow(document, now, unconfirm=leads), now)
        self._read_repair.wake()
        lost = lost_of(document)
        if lost is not None:
            self._inherit(lost)
        if leads:
            # What we are about to write must be later than this.
            self._wake_publishers(self._step())
        self._wake.set()

    def _inherit(self, lost: frozenset[str]) -> None:
        """Take over which nodes another leader has published as lost."""
        self.heartbeat_monitor.inherit(lost)
        if self._configuration.liveness.publish:
            self.pipeline.set_lost(frozenset(self.heartbeat_monitor.lost_nodes.lost))


def _node_record(source: DocumentSource, node: str) -> NodeRecord | None:
    """Return the last good node-info of a node in a store."""
    report = source.node.reports.get(node)
    return None if report is None else report.record


def _why_unread(watch: DocumentWatch) -> str | None:
    """Return why the documents of a watch are not known as they are now; ``None`` if they are."""
    return watch.interrupted if watch.listed else watch.interrupted or "it was not listed yet"
