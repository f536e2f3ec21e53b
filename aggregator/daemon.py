"""The cluster daemon: one loop, one task group; the first root task that ends, ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Protocol

import msgspec

from aggregator.beats import Listener
from aggregator.explanation import explain
from aggregator.following import follow
from aggregator.jobs.board import Board
from aggregator.known_places import ClusterPlaces
from aggregator.labelling import Labelling
from aggregator.last_seen import Memory
from aggregator.leading import Always, Leadership
from aggregator.moment import Clock, system_clock
from aggregator.old_listener import OldListener
from aggregator.parts import Parts
from aggregator.pipeline import Pipeline, lost_of
from aggregator.public_faults.judging import INVALID
from aggregator.public_faults.part import PublicFaults
from aggregator.public_faults.service import answered
from aggregator.public_faults.table_file import follow_table
from aggregator.publisher import Publisher
from aggregator.rank_tables.part import CONTROLLER, RankTables
from aggregator.status import (
    Health,
    Status,
    document_statuses,
    fault_statuses,
    leader_status,
    liveness_status,
    node_status,
    node_statuses,
    server_fault_statuses,
    source_statuses,
    switch_fault_statuses,
)
from aggregator.stream import Stream
from aggregator.succession import Succession
from aggregator.telling import Telling
from aggregator.world import World
from contract.errors import StoreError, StoreUnavailable
from service.notify import keep_told
from service.stalls import Stalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from aggregator.explanation import Explanation
    from aggregator.grpc.interfaces import Faults, Send, Tables
    from aggregator.grpc.server import GrpcServer
    from aggregator.grpc.subscriptions import Client
    from aggregator.history import History
    from aggregator.intake import Feed
    from aggregator.part import Part
    from aggregator.public_faults.judging import Answer
    from contract.node_info import NodeRecord
    from contract.public_fault import PublicFault
    from stores.base import Document, Store, WatchEvent

_log = logging.getLogger(__name__)

_ANSWER_MS = 4500
_KEPT_MS = 500
"""Who sends public faults waits 5 s."""

_PATIENCE_SECONDS = 30.0
"""How long a store that is away holds up the first publication of what the others say."""


class Serve(Protocol):
    """Makes what serves clients of ClusterD."""

    def __call__(
        self,
        faults: Faults,
        tables: Tables,
        send: Send,
        clock: Clock,
        turned: Callable[[Client], None],
    ) -> GrpcServer: ...


class Aggregator:
    """Reads ``stores``, publishes to ``publish`` while it leads; both by URL.

    ``parts`` read, remember and show what they want through this; one that changes by itself, as
    by a call from outside, says so by ``wake``.
    """

    def __init__(
        self,
        stores: Mapping[str, Store],
        publish: Mapping[str, Store],
        *,
        history: History,
        touch_period_seconds: float,
        writes_per_second: int,
        publish_lost: bool = True,
        clock: Clock = system_clock,
        parts: Iterable[Part] = (),
        lead: Leadership | None = None,
        serve: Serve | None = None,
        table_file: Path | None = None,
    ) -> None:
        self._clock = clock
        self._stores = stores
        self.leadership = Always("") if lead is None else lead
        self.stalls = Stalls(lambda: clock().steady_ms / 1000)
        self.world = World([store.cluster is not None for store in stores.values()])
        self.public_faults = PublicFaults(len(stores))
        self.pipeline = Pipeline(
            tuple(stores),
            touch_period_seconds,
            facts=self.world.facts,
            public=self.public_faults,
        )
        self._places = ClusterPlaces(self.pipeline, self.world)
        self.public_faults.know(self._places)
        self.board = Board(self.world, self.pipeline.published, is_read=self._is_read)
        self.rank_tables = RankTables(len(stores))
        clusters = [store.cluster for store in stores.values() if store.cluster is not None]
        self._labelling = Labelling(clusters, self.board.labels, self.leadership)
        self.stream = Stream(f"{clock().wall_ms:x}")
        self.telling = Telling(
            self.pipeline,
            self.world,
            self.board,
            self.rank_tables,
            self.stream,
            history,
            self._labelling,
        )
        if serve is not None:
            self.telling.server = serve(
                self.board, self.rank_tables, self._send, clock, self._turned
            )
        self._table_file = table_file
        self._moved: set[str] = set()
        """Nodes whose Node, pods or jobs changed since the last step."""
        self.publishers = tuple(
            Publisher(
                store,
                value=self.pipeline.value,
                acknowledged=self._acknowledged,
                appeared=self._appeared,
                followed=self._followed,
                leadership=self.leadership,
                touch_period_seconds=touch_period_seconds,
                writes_per_second=writes_per_second,
                clock=clock,
                stalls=self.stalls,
            )
            for store in publish.values()
        )
        old = {
            url: OldListener(
                url,
                store.objects,
                partial(self._server, number),
                partial(self._unread, number),
                clock,
            )
            for number, (url, store) in enumerate(stores.items())
            if store.objects is not None
        }
        memory = Memory(old.values(), clock)
        memory.changed = self.wake
        self.listener = Listener(stores, self._fell_silent, clock, self.stalls, old, memory)
        self.parts = Parts(
            (
                memory,
                self.public_faults,
                self.pipeline.processing,
                self.board,
                self.rank_tables,
                self._labelling,
                *parts,
                *(() if self.telling.server is None else (self.telling.server,)),
            ),
            stores,
            clock,
            self.stalls,
            judge=self._judge,
            seen=lambda *what: self.succession.seen(*what),
        )
        self.succession = Succession(
            self.pipeline,
            self.publishers,
            self.parts,
            self.leadership,
            clock,
            self.stalls,
            inherit=self._inherit,
            began=self._began_to_lead,
        )
        self._publish_lost = publish_lost
        self._started_at_ms = clock().wall_ms
        self._wake = asyncio.Event()
        self._complete: dict[str, int] | None = None
        self._not_ready: str | None = "waiting for the stores to answer"

    async def run(self) -> NoReturn:
        """Aggregate until cancelled; then somebody else may lead at once."""
        async with asyncio.TaskGroup() as lasting:
            # Its last commit may take seconds, for which nobody would lead.
            lasting.create_task(self.telling.history.run(), name="history")
            try:
                await self._run()
            finally:
                await self.succession.give_up()
        raise AssertionError("the tasks never end")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number, (url, store) in enumerate(self._stores.items()):
                for feed in self.pipeline.sources[number].feeds:
                    name = f"read {feed.selection.namespace} of {url}"
                    tasks.create_task(self._read(feed, store), name=name)
                task = follow(self.world, number, store, self._told, self.stalls)
                tasks.create_task(task, name=f"read pods and nodes of {url}")
            for publisher in self.publishers:
                tasks.create_task(publisher.run(), name=f"publish to {publisher.store.url}")
            if self._table_file is not None:
                table = follow_table(self._table_file, self._configure)
                tasks.create_task(table, name="read the table of public faults")
            tasks.create_task(self._labelling.run(), name="label pods")
            tasks.create_task(self._merge(tasks), name="merge")
            told = keep_told(self.stalls.stalled, lambda: self.health().not_ready, os.environ)
            tasks.create_task(told, name="service manager")

    def wake(self) -> None:
        """Something changed that no store told: a part was called."""
        self._wake.set()

    def _judge(self, nodes: frozenset[str]) -> None:
        self.pipeline.judge_again(nodes)
        self._wake.set()

    async def _read(self, feed: Feed, store: Store) -> NoReturn:
        async for event in store.watch(feed.selection):
            with self.stalls.busy(f"read {store.url}"):
                self._observe(feed, event, store.url)
        raise StoreError(f"the watch of {store.url} ended")

    def _observe(self, feed: Feed, event: WatchEvent, url: str) -> None:
        was = feed.interrupted
        refused = [dict(inbox.rejected) for inbox in feed.inboxes]
        self.pipeline.observe(feed, event, self._clock())
        self._wake.set()
        if feed.interrupted is not None and was is None:
            _log.warning("%s cannot be read: %s", url, feed.interrupted)
        elif feed.interrupted is None and was is not None:
            _log.info("%s answers again", url)
        for inbox, before in zip(feed.inboxes, refused, strict=True):
            name = inbox.kind.name
            for node in inbox.rejected.keys() - before.keys():
                reason = inbox.rejected[node].reason
                _log.warning("node %s: its %s document is refused: %s", node, name, reason)
            for node in before.keys() - inbox.rejected.keys():
                _log.info("node %s: its %s document is good again or gone", node, name)

    def _told(self, nodes: frozenset[str] | None) -> None:
        moved = self.pipeline.nodes | self.world.places if nodes is None else nodes
        self._moved |= moved
        self.pipeline.judge_again(moved)
        self._wake.set()

    def _is_read(self) -> bool:
        """Whether what nodes say was read in all stores."""
        return all(source.listed for source in self.pipeline.sources)

    def _configure(self, table: str | None) -> None:
        self._judge(self.public_faults.configure(table))

    async def _send(self, message: PublicFault) -> Answer:
        """Take in public faults that came over gRPC; answered once no end of ours can lose them.

        Raises ``StoreError`` where that is not so.
        """
        end_ms = self._clock().steady_ms + _ANSWER_MS
        answer = await answered(self.public_faults, message, self._clock)
        self._judge(self.public_faults.take_changed_nodes())
        if answer.code != INVALID:
            await self._kept(self.public_faults.name, end_ms)
        return answer

    async def _kept(self, name: str, end_ms: int) -> None:
        """Until this part's state outlives this process. Raises ``StoreError``."""
        left_ms = max(_KEPT_MS, end_ms - self._clock().steady_ms)
        try:
            async with asyncio.timeout(left_ms / 1000):
                await self.succession.keeping.kept(name)
        except TimeoutError:
            raise StoreUnavailable("it could not be kept in time: say it again") from None

    def _turned(self, _: object) -> None:
        """A client began or ceased to listen."""
        assert self.telling.server is not None, "it listens there"
        self.pipeline.set_controllers(self.telling.server.jobs_of(CONTROLLER))
        self._wake.set()

    def _step(self) -> frozenset[str]:
        """Bring everything up to date; returns the documents that changed."""
        now = self._clock()
        moved, self._moved = self._moved, set()
        self._places.look(self.pipeline.dirty | moved)
        self.pipeline.judge_again(self.parts.step(now))
        changed = self.pipeline.step(now)
        self.telling.after(moved, now, leads=self.succession.leads)
        return changed

    def _server(self, number: int, node: str) -> NodeRecord | None:
        report = self.pipeline.sources[number].node.reports.get(node)
        return None if report is None else report.record

    def _unread(self, number: int) -> str | None:
        feed = self.pipeline.sources[number].nodes
        return feed.interrupted if feed.listed else feed.interrupted or "it was not listed yet"

    def _fell_silent(self, lost: frozenset[str]) -> None:
        if self._publish_lost:
            self.pipeline.set_lost(lost)
            self._wake.set()

    async def _merge(self, tasks: asyncio.TaskGroup) -> NoReturn:
        await self._begin(tasks)
        tasks.create_task(self.listener.run(self.pipeline.lost), name="listen to beats")
        tasks.create_task(self.succession.run(tasks), name="lead or follow")
        while True:
            self._wake.clear()
            with self.stalls.busy("merge"):
                self._wake_publishers(self._step())
                views_due_ms = self.succession.look(self._clock())
            due = (self.pipeline.next_due_ms(), self.parts.next_due_ms(), views_due_ms)
            await self._wait(min((at for at in due if at is not None), default=None))

    async def _begin(self, tasks: asyncio.TaskGroup) -> None:
        """Wait for what the stores hold, so that nothing incomplete is published."""
        documents = await self.publishers[0].documents()
        self.pipeline.restore(documents)
        for error in self.pipeline.unreadable:
            _log.warning("an earlier run's document is overwritten: %s", error)
        if not self._publish_lost:
            self.pipeline.set_lost(frozenset())
        self._not_ready = "waiting for the state that was kept"
        await self.succession.restore()
        self.parts.begin(tasks)
        self._not_ready = "waiting for the first list of the nodes' documents"
        await self._listed()
        self.telling.seed()
        self._step()
        self._not_ready = None if self.leadership.holder else "waiting for a leader"

    def _began_to_lead(self) -> None:
        for publisher in self.publishers[1:]:
            self.pipeline.adopt(publisher.found)
        self._step()
        self.telling.began(self._clock())
        names = self.pipeline.documents
        self._complete = {name: self.pipeline.revision(name) for name in names}
        self._not_ready = "waiting for the first publication"
        for publisher in self.publishers:
            publisher.lead(names)
        self._check_complete()

    async def _listed(self) -> None:
        """Until every store was listed; after a while one is enough."""
        deadline_ms = self._clock().steady_ms + int(_PATIENCE_SECONDS * 1000)
        while True:
            self._wake.clear()
            listed = [
                source.listed and self.world.answered(number) and self.parts.is_answered(number)
                for number, source in enumerate(self.pipeline.sources)
            ]
            if all(listed) or (any(listed) and self._clock().steady_ms >= deadline_ms):
                return
            await self._wait(deadline_ms if any(listed) else None)

    async def _wait(self, until_ms: int | None) -> None:
        """Until woken, or until this steady time."""
        seconds = None if until_ms is None else (until_ms - self._clock().steady_ms + 1) / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
                await self._wake.wait()

    def _wake_publishers(self, names: Iterable[str]) -> None:
        names = tuple(names)
        for publisher in self.publishers:
            publisher.wake(names)

    def _acknowledged(self, _: Publisher, name: str, __: int) -> None:
        outputs = [publisher.outputs.get(name) for publisher in self.publishers]
        revision = min(-1 if output is None else output.acknowledged for output in outputs)
        if revision >= 0:
            self._wake_publishers(self.pipeline.acknowledged(name, revision))
            self._wake.set()
        self._check_complete()

    def _check_complete(self) -> None:
        if self._complete is None:
            return
        for publisher in self.publishers:
            for name, revision in self._complete.items():
                output = publisher.outputs.get(name)
                if output is None or output.acknowledged < revision:
                    self._not_ready = f"waiting for {name} to be in {publisher.store.url}"
                    return
        self._complete = None
        self._not_ready = None
        _log.info("everything known is published: %d nodes", len(self.pipeline.device.entries))

    def _appeared(self, documents: Iterable[Document]) -> None:
        self._wake_publishers(self.pipeline.adopt(documents))

    def _followed(self, publisher: Publisher, document: Document) -> None:
        """Another leader wrote a document."""
        if publisher is not self.publishers[0]:
            return
        now = self._clock()
        self.telling.followed(*self.pipeline.follow(document, now), now)
        lost = lost_of(document)
        if lost is not None:
            self._inherit(lost)
        if self.succession.leads:
            # What we are about to write must be later than this.
            self._wake_publishers(self._step())
        self._wake.set()

    def _inherit(self, lost: frozenset[str]) -> None:
        """Another leader has published these nodes as lost."""
        self.listener.inherit(lost)
        if self._publish_lost:
            self.pipeline.set_lost(frozenset(self.listener.verdict.lost))

    def health(self) -> Health:
        """The cheap part of the picture, for probes."""
        if self._not_ready is None or self._follows():
            return Health(self.stalls.stalled(), ())
        why = (
            f"{source.url} cannot be read: {source.interrupted}"
            for source in self.pipeline.sources
            if source.interrupted is not None
        )
        return Health(self.stalls.stalled(), (self._not_ready, *why))

    def _follows(self) -> bool:
        """Whether everything is known and another aggregator publishes it."""
        return (
            self.succession.is_warm and not self.leadership.leads and bool(self.leadership.holder)
        )

    def status(self) -> Status:
        """The picture now."""
        now = self._clock()
        return Status(
            at_ms=now.wall_ms,
            started_at_ms=self._started_at_ms,
            health=self.health(),
            nodes=tuple(node_statuses(self.pipeline, self.listener, now)),
            liveness=liveness_status(self.listener, self._publish_lost),
            faults=tuple(fault_statuses(self.pipeline)),
            switch_faults=tuple(switch_fault_statuses(self.pipeline)),
            server_faults=tuple(server_fault_statuses(self.pipeline)),
            sources=tuple(source_statuses(self.pipeline, self.world)),
            documents=tuple(document_statuses(self.publishers, now.wall_ms)),
            leader=leader_status(self.leadership),
            kept=self.succession.keeping.statuses(),
            history=self.telling.history.status(),
        )

    def explain(self, node: str) -> Explanation | None:
        """Why a node is published as it is; ``None`` where nobody knows of it."""
        status = node_status(self.pipeline, self.listener, node, self._clock())
        if status is None:
            return None
        facts = msgspec.structs.replace(self.world.facts(node), lost=node in self.pipeline.lost)
        return explain(self.pipeline, status, facts, self._acknowledged_everywhere())

    def _acknowledged_everywhere(self) -> dict[str, bool]:
        """Document to whether every store that is published to has it as it is to be."""
        return {
            name: all(
                (output := publisher.outputs.get(name)) is not None
                and output.acknowledged >= self.pipeline.revision(name)
                for publisher in self.publishers
            )
            for name in self.pipeline.documents
        }
