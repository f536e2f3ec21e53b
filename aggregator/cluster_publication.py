"""Publishes the cluster documents in all stores, as the leader or as one that follows it.

The pipeline has the desired documents; a publisher for each store writes them while this replica
leads. A follower computes the same values and publishes nothing: it takes over each document of the
leader as the predecessor of its own next one, so that it can lead at once. When it takes over, it
first restores the state of the leader before (``Takeover``), then computes all of it again, then
writes. No document is longer than the smallest limit of all stores that are published to.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from aggregator.api.readiness import Readiness
from aggregator.cluster_documents.kinds import kind_of
from aggregator.cluster_documents.shards import text_limit
from aggregator.failover.read_repair import ReadRepair
from aggregator.failover.takeover import Takeover
from aggregator.merge.pipeline import lost_of
from aggregator.notify.leader_events import LeaderEvents
from aggregator.publish.document_writer import WriterContext
from aggregator.publish.publisher import StorePublisher
from aggregator.publish.rate_limited_queue import WriteQueue
from contract.documents.cluster_info import VALUE_LIMIT
from contract.names import CLUSTER_NAMESPACE, CLUSTER_NODE_NAME
from contract.sentences import sentence
from pacing.waiting import shared_pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aggregator.absence.last_known import LastKnownStore
    from aggregator.absence.lasting_stores import LastingStores
    from aggregator.cluster_documents.shards import Value
    from aggregator.config import AggregatorConfiguration
    from aggregator.liveness.monitor import HeartbeatMonitor
    from aggregator.merge.pipeline import Pipeline
    from aggregator.notify.notifier import Notifier
    from aggregator.plugin_host import PluginHost
    from pacing.cooperative import Work
    from service.clock import Clock
    from service.election.leadership import Leadership
    from service.watchdog import Watchdog
    from stores.base import Document, Store

_log = logging.getLogger(__name__)

# A broker names its limit with each CONNACK, or it is found out by breaks (decision 19): no event
# reports either.
_CHECK_LIMIT_SECONDS = 2.5
"""Period of checks of what stores accept."""


class ClusterPublication:
    """The cluster documents of a cluster in the stores that are published to, the first one first.

    ``step`` brings everything up to date and wakes the writers of what changed; ``wake`` starts a
    step soon. ``warnings`` are those of ``/readyz`` about what is written beside documents.
    """

    def __init__(
        self,
        configuration: AggregatorConfiguration,
        stores: Mapping[str, Store],
        lead: Leadership,
        clock: Clock,
        stalls: Watchdog,
        pipeline: Pipeline,
        plugins: PluginHost,
        notifier: Notifier,
        monitor: HeartbeatMonitor,
        lasting: LastingStores,
        warnings: Callable[[], tuple[str, ...]],
        *,
        step: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        self.publishers = tuple(
            StorePublisher(
                WriterContext(
                    stores[url],
                    lead,
                    clock,
                    stalls,
                    WriteQueue(configuration.pace.writes_per_second, clock),
                    configuration.touch_period_seconds,
                ),
                self,
            )
            for url in configuration.publish_urls
        )
        self.takeover = Takeover(
            pipeline,
            self.publishers,
            plugins,
            on_leader_change=LeaderEvents(lead, notifier.stream, clock).send_if_changed,
            on_inherit=self._inherit,
            on_lead=self._on_lead,
            copies=lasting.last_known,
        )
        self.readiness = Readiness(
            pipeline,
            self.publishers,
            self.takeover,
            lead,
            stalls,
            lambda: None if notifier.server is None else notifier.server.not_served,
            lambda: monitor.unread_stores,
            lambda: lasting.marks.problems,
            lasting.absences.values(),
            warnings,
            clock,
        )
        read = tuple(stores[url] for url in configuration.read_urls)
        self._read_repair = ReadRepair(pipeline, read, clock, wake)
        self._publishes_lost = configuration.liveness.publish
        self._clock = clock
        self._pipeline = pipeline
        self._notifier = notifier
        self._monitor = monitor
        self._last_known = lasting.last_known
        self._step = step
        self._wake = wake
        self._limit = VALUE_LIMIT
        """How long the text of a cluster document may be now."""
        self._copies: tuple[Document, ...] = ()
        """What an earlier run published, for a store that lost it."""
        self._has_copies = True

    def restore_copies(self, last_known: Mapping[str, LastKnownStore]) -> None:
        """Restore what an earlier run published in the first store, if that may have lost it."""
        first = self.publishers[0].store
        # etcd loses nothing that was acknowledged, so copies of an API server's documents are not
        # used.
        if not first.absence_is_deletion and first.url in last_known:
            documents = tuple(last_known[first.url].documents.values())
            self.takeover.persistent_state.restore_copies(documents)
            self._copies = tuple(
                document for document in documents if kind_of(document.name) is not None
            )

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Follow the stores, and write while this replica leads, in tasks of the group."""
        for publisher in self.publishers:
            tasks.create_task(publisher.run(), name=f"publish to {publisher.store.url}")
        tasks.create_task(self._read_repair.run(), name="read repair")
        tasks.create_task(self._keep_fitting(), name="limits of stores")

    async def restore_cluster(self) -> None:
        """Restore what an earlier run published, and the plugins; wait for the store."""
        documents = await self.publishers[0].documents()
        # The first store is the one whose versions and stamps are continued; the others get the
        # same texts.
        there = {document.name for document in documents}
        # What the store still has is newer than the copy.
        lost = (document for document in self._copies if document.name not in there)
        self._pipeline.restore_documents((*documents, *lost))
        for error in self._pipeline.unreadable:
            _log.warning("an earlier run's document is overwritten: %s", error)
        # An earlier run may have published nodes as lost before the option was switched off.
        if not self._publishes_lost:
            self._pipeline.set_lost(frozenset())
        self.readiness.await_start(sentence("waiting for the persistent state"))
        await self.takeover.restore_state()

    def wake(self, names: Iterable[str]) -> None:
        """Wake the writers of these documents in all stores."""
        names = tuple(names)
        for publisher in self.publishers:
            publisher.wake(names)

    # What publishers ask for and observe (``ClusterDocuments``).

    def value(self, name: str) -> Value:
        """See ``ClusterDocuments``."""
        return self._pipeline.value(name)

    def on_acknowledged(self, publisher: StorePublisher, name: str) -> None:
        """See ``ClusterDocuments``. What every store has need not be compared any more."""
        # The copy is for a store that may come back empty; an API server needs none (decision 21).
        if publisher is self.publishers[0] and not publisher.store.absence_is_deletion:
            document = publisher.outputs[name].document(self._pipeline.value(name))
            self._last_known.record(publisher.store.url, CLUSTER_NAMESPACE, name, document)
            self._has_copies = True
        outputs = [publisher.outputs.get(name) for publisher in self.publishers]
        # A node leaves its old shard when every store has the new one.
        revision = min(-1 if output is None else output.acknowledged for output in outputs)
        if revision >= 0:
            self.wake(self._pipeline.acknowledged(name, revision))
            self._wake()
        self.readiness.look()

    def on_appeared(self, documents: Iterable[Document]) -> None:
        """See ``ClusterDocuments``."""
        self.wake(self._pipeline.adopt(documents))

    def on_followed(self, publisher: StorePublisher, document: Document) -> None:
        """See ``ClusterDocuments``."""
        # Entries are computed from one predecessor. Of two stores the versions could not be joined.
        if publisher is not self.publishers[0]:
            return
        now = self._clock()
        leads = self.takeover.leads
        # Restoring them after a takeover would put our older documents over those of the other
        # leader.
        if not leads:
            self._drop_copies()
        # A leader that meets a foreign entry cannot know whether its writer knew more (decision
        # 10), so it reads first.
        changes = self._pipeline.follow(document, now, unconfirm=leads)
        self._notifier.observe_published(*changes, now)
        self._read_repair.wake()
        lost = lost_of(document)
        if lost is not None:
            self._inherit(lost)
        if leads:
            # What we are about to write must be later than this.
            self._step()
        self._wake()

    def on_maybe_lost(self) -> None:
        """See ``ClusterDocuments``. The first store may have lost documents of state, too."""
        self.takeover.persistent_state.look_for_lost()

    def _drop_copies(self) -> None:
        """Remove the copies in the state directory: another leader writes newer documents."""
        if self._has_copies:
            self._has_copies = False
            # Once for each change of leader, not with each of its writes.
            self.takeover.persistent_state.drop_copies()
            url = self.publishers[0].store.url
            for name in self._pipeline.documents:
                self._last_known.record(url, CLUSTER_NAMESPACE, name, None)

    def _inherit(self, lost: frozenset[str]) -> None:
        """Take over which nodes another leader has published as lost."""
        self._monitor.inherit(lost)
        # The monitor keeps the nodes even where publishing is off: pages show them.
        if self._publishes_lost:
            self._pipeline.set_lost(frozenset(self._monitor.lost_nodes.lost))

    def _on_lead(self) -> Work[None]:
        """Write from now on: everything of the leader before is restored.

        Return the work that informs of what this replica has computed.
        """
        # Only the first store was restored; the others may have documents of a larger layout.
        for publisher in self.publishers[1:]:
            self._pipeline.adopt(publisher.found)
        self._read_repair.wake()
        self._fit()
        # What another leader wrote may be larger than our limit.
        self.wake(self._pipeline.fit(self._limit))
        self._step()
        changes = self._notifier.begin_leading(self._clock)
        names = self._pipeline.documents
        # Before the writers start: what they acknowledge is compared with what is known now.
        self.readiness.await_publication()
        for publisher in self.publishers:
            publisher.lead(names)
        self.readiness.look()
        return changes

    def _fit(self) -> None:
        """Keep documents within the largest size that every store accepts now."""
        largest = [publisher.store.largest_document for publisher in self.publishers]
        limits = [size for size in largest if size is not None]
        limit = VALUE_LIMIT if not limits else text_limit(min(limits))
        if limit == self._limit:
            return
        if limit < VALUE_LIMIT:
            # Node entries are all in one document, which cannot be split (clusterd#0, item 8;
            # decision 9).
            _log.warning(
                "a store takes at most %d bytes per document. Cluster documents have at most %d: "
                "there are more of them, and %s may lack healthy nodes",
                *(min(limits), limit, CLUSTER_NODE_NAME),
            )
        self._limit = limit
        self.wake(self._pipeline.fit(limit))

    async def _keep_fitting(self) -> NoReturn:
        while True:
            self._fit()
            await asyncio.sleep(shared_pause(_CHECK_LIMIT_SECONDS))
