"""The cluster daemon: one loop, one task group; the first root task that ends, ends it.

Nothing runs on a tick. Watches, heartbeats and plugins mark nodes and wake the task *merge*; a step
of it (``_step``) processes the marked nodes and those whose deadline has passed, and wakes the
writers of the documents that changed by that. Before the first step everything is restored and
listed, so that nothing incomplete is published.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NoReturn

from aggregator.api.collect_status import StatusQueries
from aggregator.cluster_publication import ClusterPublication
from aggregator.inputs.cluster_watch import follow
from aggregator.inputs.node_document_watch import read_documents
from aggregator.merge.pipeline import Pipeline
from aggregator.merge.stale_documents import StaleDocuments
from aggregator.plugin_host import PluginHost
from aggregator.processors.state_types import earliest
from aggregator.public_faults.fault_table import follow_table
from aggregator.public_faults.plugin import MESSAGES, PublicFaultsPlugin
from aggregator.rank_tables.plugin import CONTROLLER
from aggregator.wiring import (
    advising,
    certificate_files,
    durable_answer,
    heartbeats,
    inputs,
    job_parts,
    missed_writes,
    notifier_of,
    signal_parts,
)
from contract.sentences import sentence
from pacing.waiting import wait_for_event
from service.clock import Clock, system_clock
from service.systemd import notify_manager
from service.watchdog import Watchdog
from stores.base import Changed, Document, DocumentsListed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aggregator.config import AggregatorConfiguration
    from aggregator.inputs.node_documents import DocumentWatch
    from aggregator.notify.history import ClusterHistory
    from aggregator.plugin import Plugin
    from aggregator.public_faults.validation import ValidationReply
    from contract.documents.public_fault import PublicFault
    from service.clock import Instant
    from service.election.leadership import Leadership
    from stores.base import Beat, PagedWatchEvent, Store

_DELETED_AFTER_MS = 2000
"""A node's document that is gone for so long was deleted. Its owner deletes and creates a document
that an operator made immutable, and no reader may see the node healthy meanwhile.
"""

# Three times the 10 s after which a read is given up (decision 15).
_FIRST_LIST_SECONDS = 30.0
"""Longest wait of the first publication for stores that are away, once one store was listed."""
_WRITERS_SECONDS = 0.003
"""The requests of writers have left by then; readers wait for their documents."""


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
        on_begun: Callable[[], None] = lambda: None,
    ) -> None:
        """Make all parts, those first that others are made of.

        ``on_begun`` is called once, when everything was read and the first step was made.
        """
        self._clock = clock
        self._on_begun = on_begun
        self._configuration = configuration
        self._wake = asyncio.Event()
        self._moved: set[str] = set()
        """Nodes whose Node, pods or jobs changed since the last step."""
        self._uninformed: tuple[set[str], Instant] | None = None
        """Those of the last step, and its time; ``None`` once all were informed of it."""
        self.stores = {url: stores[url] for url in configuration.read_urls}
        self.stalls = Watchdog(lambda: clock().steady_ms / 1000)
        read = inputs(
            self.stores,
            configuration,
            clock,
            has_beaten=self._has_beaten,
            wake=self.wake,
        )
        self.cluster_state, self.lasting = read.cluster_state, read.lasting
        self._known_nodes = read.known_nodes
        self.public_faults = PublicFaultsPlugin(
            self._known_nodes, len(read.sources), configuration.public_faults.namespaces
        )
        self.pipeline = Pipeline(
            read.sources,
            configuration.touch_period_seconds,
            node_context=self.cluster_state.node_context,
            public=self.public_faults,
            deleted_after_ms=_DELETED_AFTER_MS,
        )
        self.missed_writes = missed_writes(
            self.stores, read.sources, self.public_faults, self._apply_read, clock, self.wake
        )
        self.heartbeat_monitor, memory = heartbeats(
            self.stores,
            read.sources,
            self.lasting,
            clock,
            self.stalls,
            on_lost=self._publish_lost,
            on_listing=self._observe_beats,
            wake=self.wake,
        )
        self.jobs = job_parts(
            configuration,
            self.stores,
            self.cluster_state,
            self.pipeline,
            self.public_faults,
            self._known_nodes,
            lead,
        )
        self.notifier = notifier_of(
            configuration,
            self.pipeline,
            self.cluster_state,
            self.jobs,
            history,
            clock,
            send=self._receive,
            on_client=self._on_client,
        )
        self._advising = advising(
            configuration, self.stores, history, self.notifier, clock, self.wake
        )
        signals = signal_parts(
            configuration,
            self.stores,
            self.pipeline,
            self.heartbeat_monitor,
            lead,
            clock,
            self.wake,
        )
        self._signals = signals.service
        server = self.notifier.server
        self.plugins = PluginHost(
            (
                memory,
                self.jobs.dpu_faults,
                self.public_faults,
                self.pipeline.processing,
                self.jobs.view,
                self.jobs.rank_tables,
                self.jobs.labels,
                *(() if self._advising is None else (self._advising.kept,)),
                *signals.plugins(),
                *plugins,
                *(() if server is None else (server,)),
            ),
            self.stores,
            clock,
            self.stalls,
            judge=self._judge,
            # A lambda, since the publication gets this host as an argument and is made after it.
            on_event=lambda *event: self.publication.takeover.seen(*event),
        )
        self.publication = ClusterPublication(
            configuration,
            stores,
            lead,
            clock,
            self.stalls,
            self.pipeline,
            self.plugins,
            self.notifier,
            self.heartbeat_monitor,
            self.lasting,
            signals.problems,
            step=self._step,
            wake=self.wake,
        )
        takeover = self.publication.takeover
        self.lasting.follow_requests(
            configuration.touch_period_seconds,
            is_there=self.pipeline.knows,
            may_write=lambda: takeover.leads,
        )
        self.certificates = certificate_files(configuration)
        self.queries = StatusQueries(
            absences=self.lasting.absences,
            advising=self._advising,
            job_view=self.jobs.view,
            leadership=lead,
            heartbeat_monitor=self.heartbeat_monitor,
            marks=self.lasting.marks,
            missed_writes=self.missed_writes,
            dpu_faults=self.jobs.dpu_faults,
            pipeline=self.pipeline,
            public_faults=self.public_faults,
            publishers=self.publication.publishers,
            rank_tables=self.jobs.rank_tables,
            readiness=self.publication.readiness,
            signals=self._signals,
            stores=self.stores,
            stream=self.notifier.stream,
            takeover=takeover,
            notifier=self.notifier,
            cluster_state=self.cluster_state,
            clock=clock,
            certificates=self.certificates,
            publish_lost=configuration.liveness.publish,
        )
        """What pages and metrics show of all this."""

    async def run(self) -> NoReturn:
        """Aggregate until cancelled, then let another replica lead at once."""
        async with asyncio.TaskGroup() as lasting:
            # Its last commit may take seconds; another replica leads meanwhile.
            lasting.create_task(self.notifier.history.run(), name="history")
            last_known = self.lasting.last_known
            # In a thread: SQLite reads from a disk that may hang, and ``/healthz`` must answer
            # meanwhile.
            restored = await asyncio.to_thread(last_known.load)
            self.pipeline.note_complete(
                self.lasting.restore_stores(restored, self.heartbeat_monitor)
            )
            self.publication.restore_copies(restored)
            lasting.create_task(last_known.run(), name="last known state")
            try:
                await self._run()
            finally:
                try:
                    # The end may have come between a step and what it informs of.
                    self._inform()
                    self.notifier.log.flush()
                finally:
                    # In ``finally``: after an error or a signal a Lease that is kept would stop
                    # other replicas for its whole duration.
                    await self.publication.takeover.give_up()
        raise AssertionError("the tasks never end")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._read_stores(tasks)
            self.publication.start(tasks)
            self.lasting.start(tasks)
            tasks.create_task(self.jobs.labels.run(), name="label pods")
            tasks.create_task(self.certificates.run(), name="certificates")
            if self._advising is not None:
                tasks.create_task(self._advising.run(), name="advice")
            readiness = self.publication.readiness
            if self._signals is not None:
                run_signals = self._signals.run(readiness.is_past_start)
                tasks.create_task(run_signals, name="conditions and taints")
            tasks.create_task(self._merge(tasks), name="merge")
            manager = notify_manager(
                self.stalls.stalled, lambda: readiness.health().not_ready, os.environ
            )
            tasks.create_task(manager, name="service manager")
            tasks.create_task(self.stalls.watch(lambda: None), name="stalls")

    def _read_stores(self, tasks: asyncio.TaskGroup) -> None:
        """Read everything that plugins do not read, in tasks of the group."""
        # One task for each watch, so that a store that hangs delays no other one.
        for number, (url, store) in enumerate(self.stores.items()):
            for watch in self.pipeline.sources[number].watches:
                log = self.notifier.log
                read = read_documents(watch, store, self._observe, self.stalls, log)
                tasks.create_task(read, name=f"read {watch.selection.namespace} of {url}")
            # Advice is about one store, and shares the watches of that.
            is_advised = self._advising is not None and self._advising.cluster is store.cluster
            signals = self._signals
            has_signals = signals is not None and signals.cluster is store.cluster
            task = follow(
                self.cluster_state,
                number,
                store,
                self._listed_nodes,
                self.stalls,
                self._advising if is_advised else None,
                signals.readers if signals is not None and has_signals else (),
            )
            tasks.create_task(task, name=f"read pods and nodes of {url}")
        dpu_faults = self.jobs.dpu_faults
        for number in range(dpu_faults.stores):
            task = dpu_faults.follow(number, self._clock, self.stalls, self.wake)
            tasks.create_task(task, name=f"read documents of RDMA plugins {number}")
        table = follow_table(
            self._configuration.public_faults.table_file,
            lambda text: self._judge(self.public_faults.configure(text)),
        )
        tasks.create_task(table, name="read the table of public faults")

    def wake(self) -> None:
        """Start a step: a plugin was changed by a call, not by a store."""
        self._wake.set()

    # What is read.

    def _has_beaten(self, url: str, node: str) -> bool:
        return self.heartbeat_monitor.knows(url, node)

    def _has_agent(self, url: str, node: str) -> bool:
        """Return whether an agent runs on the node, as far as is known."""
        # One that is silent may run: a store that refuses heartbeats refuses documents, too.
        return self._has_beaten(url, node) and node not in self.heartbeat_monitor.lost_nodes.lost

    def _observe_beats(self, url: str, beats: tuple[Beat, ...]) -> None:
        self.missed_writes[url].observe_beats(beats)
        if self._signals is not None:
            self._signals.observe_beats(url, beats)
        if self.lasting.observe_beats(url, beats):
            self._wake.set()

    def _judge(self, nodes: frozenset[str]) -> None:
        self.pipeline.judge_again(nodes)
        self._wake.set()

    def _observe(self, watch: DocumentWatch, event: PagedWatchEvent) -> None:
        self.pipeline.observe_event(watch, event, self._clock())
        if isinstance(event, DocumentsListed):
            self.lasting.record_listed(self.pipeline.sources)
        self._wake.set()

    def _apply_read(self, number: int, kind: str, documents: Mapping[str, Document | None]) -> None:
        """Apply documents of nodes that were read by name in the store with this number."""
        now = self._clock()
        # The kind is of a node's document, or else of messages with public faults.
        for watch in self.pipeline.sources[number].watches:
            if watch.document == kind:
                self.pipeline.read(watch, documents, now)
                return
        for document in documents.values():
            if document is not None:
                # A message that is missing ends no fault (clusterd#4.1), so only documents that
                # exist are applied.
                event = Changed(document)
                self._judge(self.public_faults.observe(number, MESSAGES, event, now))

    def _listed_nodes(self, nodes: frozenset[str] | None) -> None:
        # ``None`` stands for the first list: with it the use of chips of every node is known.
        moved = self.pipeline.nodes | self.cluster_state.places if nodes is None else nodes
        self._moved |= moved
        self.pipeline.judge_again(moved)
        self._wake.set()

    async def _receive(self, message: PublicFault) -> ValidationReply:
        """Apply public faults that came over gRPC. Raises ``StoreError`` where they could
        be lost.
        """
        persistent_state = self.publication.takeover.persistent_state
        return await durable_answer(
            self.public_faults, message, persistent_state, self._judge, self._clock
        )

    def _on_client(self, _: object) -> None:
        """Observe that a client subscribed or left."""
        assert self.notifier.server is not None, "clients subscribe there"
        self.pipeline.set_controllers(self.notifier.server.jobs_of(CONTROLLER))
        self._wake.set()

    def _publish_lost(self, lost: frozenset[str]) -> None:
        # Shown on pages in any case.
        if self._configuration.liveness.publish:
            self.pipeline.set_lost(lost)
        self._wake.set()

    # Steps.

    def _step(self) -> None:
        """Bring everything up to date, wake the writers, and inform of what changed."""
        self._update()
        self._inform()

    def _update(self) -> bool:
        """Bring everything up to date, and wake the writers of the documents that changed.

        Return whether there are any; ``_inform`` informs of what else changed.

        Deletions come first: a node that ends is not examined once more. Plugins come before the
        pipeline, because a chain reads what they have decided.
        """
        # Another task may make a step before the last one has informed.
        self._inform()
        now = self._clock()
        # Swapped before anything runs, so that what arrives later belongs to the next step.
        moved, self._moved = self._moved, set()
        # First, so that a node whose document went is judged in this step.
        self.pipeline.forget_deleted(now, self._has_agent)
        self.pipeline.judge_again(self.lasting.end_absent(self.heartbeat_monitor, now))
        # Before the plugins: public faults ask which nodes and chips there are.
        self._known_nodes.update(self.pipeline.dirty | moved, now)
        self.pipeline.judge_again(self.plugins.step(now))
        changed = self.pipeline.step(now)
        # Writers are only woken here. They write in tasks of their own, so a slow store delays no
        # step.
        self.publication.wake(changed)
        self._uninformed = moved, now
        return bool(changed)

    def _inform(self) -> None:
        """Inform of what the last step has changed, unless that was done."""
        if self._uninformed is None:
            return
        (moved, now), self._uninformed = self._uninformed, None
        if self._signals is not None:
            self._signals.judge(self.pipeline.changed)
        self.notifier.inform(moved, now, leads=self.publication.takeover.leads)

    async def _merge(self, tasks: asyncio.TaskGroup) -> NoReturn:
        await self._begin(tasks)
        self._on_begun()
        tasks.create_task(self.lasting.marks.run(), name="marks of directories")
        stale = StaleDocuments(self.pipeline, lambda: self.heartbeat_monitor.alive)
        tasks.create_task(stale.run(), name="stale documents")
        # Only now: what the run before has published as lost is restored.
        tasks.create_task(self.heartbeat_monitor.run(self.pipeline.lost), name="list heartbeats")
        for url, missed in self.missed_writes.items():
            tasks.create_task(missed.run(), name=f"read missed writes in {url}")
        takeover = self.publication.takeover
        tasks.create_task(takeover.run(tasks), name="lead or follow")
        while True:
            # Before the step: what comes during it must start another one.
            self._wake.clear()
            # A step does not wait, so the watchdog times the computation alone.
            with self.stalls.busy("merge"):
                is_written = self._update() and takeover.leads
            if is_written:
                # The requests of the writers leave first, unless there is more to merge.
                await wait_for_event(self._wake, _WRITERS_SECONDS)
            with self.stalls.busy("merge"):
                self._inform()
                views_due_ms = takeover.collect(self._clock())
            due_ms = earliest(
                self.pipeline.next_due_ms(),
                self.plugins.next_due_ms(),
                views_due_ms,
                *(absence.due_ms for absence in self.lasting.absences.values()),
            )
            await self._wait(due_ms)

    async def _begin(self, tasks: asyncio.TaskGroup) -> None:
        """Restore and list everything first, so that nothing incomplete is published."""
        readiness = self.publication.readiness
        await self.publication.restore_cluster()
        self.plugins.start(tasks)
        readiness.await_start(sentence("waiting for the first list of the nodes' documents"))
        await self._listed()
        # A wrong mount must be known before its missing documents are judged.
        await self.lasting.marks.check()
        await self.notifier.seed(self._clock())
        self._step()
        follows = self.queries.leadership.follows
        readiness.await_start(None if follows else sentence("waiting for a leader"))

    async def _listed(self) -> None:
        """Wait until every store was listed; after 30 s one is enough."""
        # By the steady clock: a clock that is set during the start must not end the wait.
        deadline_ms = self._clock().steady_ms + int(_FIRST_LIST_SECONDS * 1000)
        while True:
            self._wake.clear()
            listed = [
                source.listed
                # An error is an answer, too: without the right to list pods the aggregator still
                # publishes.
                and self.cluster_state.answered(number)
                and self.plugins.is_answered(number)
                for number, source in enumerate(self.pipeline.sources)
            ]
            if all(listed) or (any(listed) and self._clock().steady_ms >= deadline_ms):
                return
            await self._wait(deadline_ms if any(listed) else None)

    async def _wait(self, until_ms: int | None) -> None:
        """Wait until woken, or until this steady time."""
        # One millisecond more: a wait may end that much early, and the step would find nothing due.
        seconds = None if until_ms is None else (until_ms - self._clock().steady_ms + 1) / 1000
        # ``max``: a due time that has passed already must not become a negative timeout.
        await wait_for_event(self._wake, None if seconds is None else max(0.0, seconds))
