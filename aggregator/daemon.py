"""The cluster daemon: one loop, one task group; the first root task that ends, ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from aggregator.beats import Listener
from aggregator.last_seen import Memory
from aggregator.leading import Always, Leadership
from aggregator.moment import Clock, system_clock
from aggregator.old_listener import OldListener
from aggregator.parts import Parts
from aggregator.pipeline import Pipeline, lost_of
from aggregator.publisher import Publisher
from aggregator.status import (
    Health,
    Status,
    document_statuses,
    fault_statuses,
    leader_status,
    liveness_status,
    node_statuses,
    server_fault_statuses,
    source_statuses,
    switch_fault_statuses,
)
from aggregator.succession import Succession
from contract.errors import StoreError
from service.notify import keep_told
from service.stalls import Stalls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from aggregator.history import History
    from aggregator.intake import Feed
    from aggregator.part import Part
    from contract.node_info import NodeRecord
    from stores.base import Document, Store, UsageEvent, WatchEvent

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 30.0
"""How long a store that is away holds up the first publication of what the others say."""


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
        history: History | None = None,
        touch_period_seconds: float,
        publish_lost: bool = True,
        clock: Clock = system_clock,
        parts: Iterable[Part] = (),
        lead: Leadership | None = None,
    ) -> None:
        self._clock = clock
        self._stores = stores
        self.leadership = Always("") if lead is None else lead
        self.stalls = Stalls(lambda: clock().steady_ms / 1000)
        self.pipeline = Pipeline(tuple(stores), touch_period_seconds)
        self.publishers = tuple(
            Publisher(
                store,
                value=self.pipeline.value,
                acknowledged=self._acknowledged,
                appeared=self._appeared,
                followed=self._followed,
                leadership=self.leadership,
                touch_period_seconds=touch_period_seconds,
                clock=clock,
                stalls=self.stalls,
            )
            for store in publish.values()
        )
        self.history = history
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
            (memory, *parts),
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
        self._counted: set[int] = set()
        """Numbers of the stores that know of pods."""
        self._complete: dict[str, int] | None = None
        self._not_ready: str | None = "waiting for the stores to answer"

    async def run(self) -> NoReturn:
        """Aggregate until cancelled; then somebody else may lead at once."""
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
                usage = store.usage()
                if usage is not None:
                    self._counted.add(number)
                    task = self._count(number, usage, store)
                    tasks.create_task(task, name=f"read pods of {url}")
            for publisher in self.publishers:
                tasks.create_task(publisher.run(), name=f"publish to {publisher.store.url}")
            if self.history is not None:
                tasks.create_task(self.history.run(), name="history")
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

    async def _count(self, number: int, events: AsyncIterator[UsageEvent], store: Store) -> None:
        usage = self.pipeline.usage[number]
        async for event in events:
            was = usage.interrupted
            with self.stalls.busy(f"read pods of {store.url}"):
                self.pipeline.observe_usage(number, event)
            self._wake.set()
            if usage.interrupted is not None and was is None:
                _log.warning("pods of %s cannot be read: %s", store.url, usage.interrupted)
            elif usage.interrupted is None and was is not None:
                _log.info("pods of %s can be read again", store.url)
        raise StoreError(f"the watch of pods of {store.url} ended")

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
                now = self._clock()
                self.pipeline.judge_again(self.parts.step(now))
                changed = self.pipeline.step(now)
                self._wake_publishers(changed)
                views_due_ms = self.succession.look(now)
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
        self.pipeline.step(self._clock())
        self._not_ready = None if self.leadership.holder else "waiting for a leader"

    def _began_to_lead(self) -> None:
        for publisher in self.publishers[1:]:
            self.pipeline.adopt(publisher.found)
        self.pipeline.step(self._clock())
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
                source.listed
                and (number not in self._counted or usage.answered)
                and self.parts.is_answered(number)
                for number, (source, usage) in enumerate(
                    zip(self.pipeline.sources, self.pipeline.usage, strict=True)
                )
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
        self.pipeline.follow(document, self._clock())
        lost = lost_of(document)
        if lost is not None:
            self._inherit(lost)
        if self.succession.leads:
            # What we are about to write must be later than this.
            self._wake_publishers(self.pipeline.step(self._clock()))
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
            sources=tuple(source_statuses(self.pipeline)),
            documents=tuple(document_statuses(self.publishers, now.wall_ms)),
            leader=leader_status(self.leadership),
            kept=self.succession.keeping.statuses(),
            history=None if self.history is None else self.history.status(),
        )
