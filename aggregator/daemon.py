"""The cluster daemon: one loop, one task group; the first root task that ends, ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING, NoReturn

from aggregator import intake
from aggregator.http import application
from aggregator.moment import Clock, system_clock
from aggregator.pipeline import Pipeline
from aggregator.publisher import Publisher
from aggregator.status import (
    Health,
    Status,
    document_statuses,
    fault_statuses,
    node_statuses,
    source_statuses,
)
from contract.cluster_info import cluster_device_name
from contract.errors import StoreError, VigilError
from service.log import set_up_logging
from service.notify import keep_told
from service.pages import serving
from service.stalls import Stalls
from service.tasks import leaves, on_stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aggregator.config import AggregatorConfiguration
    from stores.base import Document, Store, WatchEvent

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 30.0
"""How long a store that is away holds up the first publication of what the others say."""

_CLOSE_SECONDS = 2.0


class Aggregator:
    """Reads ``stores``, publishes to ``publish``; both by URL."""

    def __init__(
        self,
        stores: Mapping[str, Store],
        publish: Mapping[str, Store],
        *,
        touch_period_seconds: float,
        clock: Clock = system_clock,
    ) -> None:
        self._clock = clock
        self._stores = stores
        self.stalls = Stalls(lambda: clock().steady_ms / 1000)
        self.pipeline = Pipeline(tuple(stores), touch_period_seconds)
        self.publishers = tuple(
            Publisher(
                store,
                value=self.pipeline.value,
                acknowledged=self._acknowledged,
                appeared=self._appeared,
                clock=clock,
                stalls=self.stalls,
            )
            for store in publish.values()
        )
        self._started_at_ms = clock().wall_ms
        self._wake = asyncio.Event()
        self._began = False
        self._complete: dict[int, int] | None = None
        self._not_ready: str | None = "waiting for the stores to answer"

    async def run(self) -> NoReturn:
        """Aggregate until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number, (url, store) in enumerate(self._stores.items()):
                tasks.create_task(self._read(number, store), name=f"read {url}")
            for publisher in self.publishers:
                tasks.create_task(publisher.run(), name=f"publish to {publisher.store.url}")
            tasks.create_task(self._merge(), name="merge")
            told = keep_told(self.stalls.stalled, lambda: self.health().not_ready, os.environ)
            tasks.create_task(told, name="service manager")
        raise AssertionError("the tasks never end")

    async def _read(self, number: int, store: Store) -> NoReturn:
        async for event in store.watch(intake.SELECTION):
            with self.stalls.busy(f"read {store.url}"):
                self._observe(number, event)
        raise StoreError(f"the watch of {store.url} ended")

    def _observe(self, number: int, event: WatchEvent) -> None:
        source = self.pipeline.sources[number]
        was = source.interrupted
        refused = dict(source.rejected)
        self.pipeline.observe(number, event, self._clock())
        self._wake.set()
        if source.interrupted is not None and was is None:
            _log.warning("%s cannot be read: %s", source.url, source.interrupted)
        elif source.interrupted is None and was is not None:
            _log.info("%s answers again", source.url)
        for node in source.rejected.keys() - refused.keys():
            _log.warning("node %s: its document is refused: %s", node, source.rejected[node].reason)
        for node in refused.keys() - source.rejected.keys():
            _log.info("node %s: its document is good again or gone", node)

    async def _merge(self) -> NoReturn:
        await self._begin()
        while True:
            self._wake.clear()
            with self.stalls.busy("merge"):
                changed = self.pipeline.step(self._clock())
                self._wake_publishers(changed)
            await self._wait(self.pipeline.next_due_ms())

    async def _begin(self) -> None:
        """Wait for what the stores hold, so that nothing incomplete is published."""
        documents = await self.publishers[0].documents()
        self.pipeline.restore(documents)
        for error in self.pipeline.unreadable:
            _log.warning("an earlier run's document is overwritten: %s", error)
        self._not_ready = "waiting for the first list of device-info documents"
        await self._listed()
        for publisher in self.publishers[1:]:
            self.pipeline.adopt(publisher.found)
        self.pipeline.step(self._clock())
        self._began = True
        indices = self.pipeline.shards.indices
        self._complete = {index: self.pipeline.shards.revision(index) for index in indices}
        self._wake_publishers(indices)
        self._check_complete()

    async def _listed(self) -> None:
        """Until every store was listed; after a while one is enough."""
        deadline_ms = self._clock().steady_ms + int(_PATIENCE_SECONDS * 1000)
        while True:
            self._wake.clear()
            listed = [source.listed for source in self.pipeline.sources]
            if all(listed) or (any(listed) and self._clock().steady_ms >= deadline_ms):
                return
            await self._wait(deadline_ms if any(listed) else None)

    async def _wait(self, until_ms: int | None) -> None:
        """Until woken, or until this steady time."""
        seconds = None if until_ms is None else (until_ms - self._clock().steady_ms + 1) / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
                await self._wake.wait()

    def _wake_publishers(self, indices: Iterable[int]) -> None:
        indices = tuple(indices)
        for publisher in self.publishers:
            publisher.wake(indices)

    def _acknowledged(self, _: Publisher, index: int, __: int) -> None:
        outputs = [publisher.outputs.get(index) for publisher in self.publishers]
        revision = min(-1 if output is None else output.acknowledged for output in outputs)
        if revision >= 0:
            self._wake_publishers(self.pipeline.acknowledged(index, revision))
            self._wake.set()
        self._check_complete()

    def _check_complete(self) -> None:
        if self._complete is None:
            return
        for publisher in self.publishers:
            for index, revision in self._complete.items():
                output = publisher.outputs.get(index)
                if output is None or output.acknowledged < revision:
                    name = cluster_device_name(index)
                    self._not_ready = f"waiting for {name} to be in {publisher.store.url}"
                    return
        self._complete = None
        self._not_ready = None
        _log.info("everything known is published: %d nodes", len(self.pipeline.entries))

    def _appeared(self, documents: Iterable[Document]) -> None:
        if self._began:
            self._wake_publishers(self.pipeline.adopt(documents))

    def health(self) -> Health:
        """The cheap part of the picture, for probes."""
        return Health(self.stalls.stalled(), () if self._not_ready is None else (self._not_ready,))

    def status(self) -> Status:
        """The picture now."""
        now_ms = self._clock().wall_ms
        return Status(
            at_ms=now_ms,
            started_at_ms=self._started_at_ms,
            health=self.health(),
            nodes=tuple(node_statuses(self.pipeline, now_ms)),
            faults=tuple(fault_statuses(self.pipeline)),
            sources=tuple(source_statuses(self.pipeline)),
            documents=tuple(document_statuses(self.publishers, now_ms)),
        )


def run(configuration: AggregatorConfiguration) -> None:
    """Run the daemon until SIGTERM or SIGINT. Raises ``VigilError``."""
    set_up_logging()
    asyncio.run(_run(configuration))


async def _run(configuration: AggregatorConfiguration) -> None:
    from stores.address import open_store

    urls = dict.fromkeys((*configuration.read_urls, *configuration.publish_urls))
    stores = {url: open_store(url, configuration.kubeconfig) for url in urls}
    aggregator = Aggregator(
        {url: stores[url] for url in configuration.read_urls},
        {url: stores[url] for url in configuration.publish_urls},
        touch_period_seconds=configuration.touch_period_seconds,
    )
    try:
        pages = application(aggregator.health, aggregator.status)
        async with serving(pages, configuration.listen, configuration.state_dir):
            await _until_told(aggregator)
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                for store in stores.values():
                    await store.close()


async def _until_told(aggregator: Aggregator) -> None:
    """Run until a signal; an error of a root task is raised as itself."""
    task = asyncio.ensure_future(aggregator.run())
    on_stop(task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        _log.info("told to stop")
    except BaseExceptionGroup as group:
        for error in leaves(group):
            if isinstance(error, VigilError):
                raise error from group
        raise
