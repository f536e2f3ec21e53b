"""A storm reaches the store at the allowed pace, newest first time, and no touch is in its way."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from aggregator.cluster_documents.shards import Value
from aggregator.publish.document_writer import WriterContext
from aggregator.publish.publisher import StorePublisher
from aggregator.publish.rate_limited_queue import WriteQueue
from contract.documents.cluster_device import render_device_entry
from contract.documents.cluster_info import cluster_device_name, member, value_of
from contract.errors import StoreError, StoreUnavailable
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE, device_info_name
from service.clock import Instant
from service.election.leadership import AlwaysLeader
from service.watchdog import Watchdog
from stores.base import Document, DocumentsListed
from tests.aggregator.nodes import T0, healthy, record
from tests.aggregator.publish.desired import Desired

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.base import Selection, WatchEvent

pytestmark = pytest.mark.looptime

WRITES_PER_SECOND = 20
TOUCH_SECONDS = 45.0
RECORD = record(healthy())


def now() -> float:
    return asyncio.get_running_loop().time()


def clock() -> Instant:
    return Instant(int((T0 + now()) * 1000), int(now() * 1000))


def text(node: str, stamp: int) -> str:
    entry = render_device_entry(node, RECORD, stamp)
    return value_of([member(device_info_name(node), entry)])


class SlowStore:
    """Takes 5 ms for each write; its watch shows what was there at first and then nothing."""

    url = "memory:"
    leader_lease = leader_lock = None

    def __init__(self, *documents: Document) -> None:
        self.documents = documents
        self.puts: list[tuple[float, str, str]] = []
        self.in_flight = self.most_in_flight = 0
        self.touches: list[tuple[float, str]] = []
        self.touch_seconds = 0.005
        self.touch_error: StoreError | None = None

    async def watch(self, _: Selection) -> AsyncIterator[WatchEvent]:
        yield DocumentsListed(self.documents)
        await asyncio.Event().wait()

    async def put(self, document: Document, *, expected: str | None) -> str:
        assert expected is None
        self.puts.append((now(), document.name, document.data[document.name]))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0.005)
        self.in_flight -= 1
        return str(len(self.puts))

    async def touch(self, _: str, name: str, *, expected: str | None = None) -> None:
        self.touches.append((now(), name))
        await asyncio.sleep(self.touch_seconds)
        if self.touch_error is not None:
            raise self.touch_error


class Cluster:
    """A publisher of documents with one node each."""

    def __init__(self, count: int, *, there: bool) -> None:
        self.names = [cluster_device_name(number) for number in range(count)]
        self.stamps = dict.fromkeys(self.names, 0)
        self.leadership = AlwaysLeader("")
        self.store = SlowStore(*(self._document(name) for name in self.names if there))
        store: Any = self.store
        self.publisher = StorePublisher(
            WriterContext(
                store,
                self.leadership,
                clock,
                Watchdog(now),
                WriteQueue(WRITES_PER_SECOND, clock),
                TOUCH_SECONDS,
            ),
            Desired(lambda name: Value(text(name, self.stamps[name]), 1, self.stamps[name])),
        )

    def _document(self, name: str) -> Document:
        data = {name: text(name, 0)}
        return Document(CLUSTER_NAMESPACE, name, data, dict([CLUSTER_LABEL]), version="1")

    def change(self, name: str) -> None:
        self.stamps[name] += 1
        self.publisher.wake([name])

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async def run() -> NoReturn:
            await self.publisher.run()

        task = asyncio.create_task(run())
        await self.publisher.documents()
        self.publisher.lead(self.names)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def most_in_a_second(self) -> int:
        times = [put[0] for put in self.store.puts] + [touch[0] for touch in self.store.touches]
        return max(sum(at <= other < at + 1 for other in times) for at in times)


async def test_a_storm_is_coalesced_and_paced() -> None:
    cluster = Cluster(40, there=True)
    async with cluster.running():
        await asyncio.sleep(1)
        began = now()
        for _ in range(10):
            for name in cluster.names:
                cluster.change(name)
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)
        last = {name: value for _, name, value in cluster.store.puts}
        assert last == {name: text(name, 10) for name in cluster.names}
        assert max(at for at, *_ in cluster.store.puts) - began < 5
        assert len(cluster.store.puts) < 70
    assert cluster.most_in_a_second() <= WRITES_PER_SECOND


async def test_first_write_of_a_document_does_not_wait_for_its_turn() -> None:
    cluster = Cluster(60, there=False)
    async with cluster.running():
        await asyncio.sleep(0.5)
        assert {name for _, name, _ in cluster.store.puts} == set(cluster.names)
    # Each write in flight needs a connection of its own.
    assert cluster.store.most_in_flight == 4


@pytest.mark.slow
async def test_a_fault_does_not_wait_behind_touches() -> None:
    cluster = Cluster(200, there=True)
    async with cluster.running():
        # Touches of 200 documents within 15 s take most of what may be written.
        slowest = 0.0
        for number in range(20):
            await asyncio.sleep(0.7)
            began, name = now(), cluster.names[number * 7]
            cluster.change(name)
            await asyncio.sleep(0.3)
            at = next(at for at, written, _ in reversed(cluster.store.puts) if written == name)
            slowest = max(slowest, at - began)
        assert slowest < 0.15
        assert len(cluster.store.touches) > 150
    assert cluster.most_in_a_second() <= WRITES_PER_SECOND


async def test_a_fault_does_not_wait_for_a_touch_that_takes_long() -> None:
    cluster = Cluster(1, there=True)
    cluster.store.touch_seconds = 30.0
    async with cluster.running():
        for _ in range(1000):
            await asyncio.sleep(0.1)
            if cluster.store.touches:
                break
        began = now()
        cluster.change(cluster.names[0])
        await asyncio.sleep(5)
        assert [0 <= at - began < 2 for at, *_ in cluster.store.puts][-1:] == [True]


async def test_a_touch_that_fails_is_reported_until_one_succeeds() -> None:
    cluster = Cluster(1, there=True)
    cluster.store.touch_error = StoreUnavailable("no route")
    async with cluster.running():
        (output,) = cluster.publisher.outputs.values()
        await asyncio.sleep(2 * TOUCH_SECONDS)
        assert len(cluster.store.touches) > 1
        assert (output.touch_trouble.reason, output.touches_total) == ("no route", 0)
        cluster.store.touch_error = None
        await asyncio.sleep(2 * TOUCH_SECONDS)
        assert output.touch_trouble.reason is None
        assert output.touches_total >= 1


@pytest.mark.slow
async def test_touches_go_on_while_something_changes_all_the_time() -> None:
    cluster = Cluster(60, there=True)
    busy, quiet = cluster.names[:55], cluster.names[55:]
    async with cluster.running():
        while now() < 2 * TOUCH_SECONDS:
            for name in busy:
                cluster.change(name)
            await asyncio.sleep(0.05)
        touched = {name: [at for at, one in cluster.store.touches if one == name] for name in quiet}
    for times in touched.values():
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps
        assert max(gaps) < 55
    assert cluster.most_in_a_second() <= WRITES_PER_SECOND


async def test_lead_lost_while_waiting_for_a_turn_ends_writes() -> None:
    """A process that was paused meanwhile knows old values, and maybe new versions."""
    cluster = Cluster(40, there=True)
    async with cluster.running():
        await asyncio.sleep(1)
        for name in cluster.names:
            cluster.change(name)
        await asyncio.sleep(0.3)
        cluster.leadership.leads = False
        await asyncio.sleep(0.01)
        written = len(cluster.store.puts)
        assert 0 < written < len(cluster.names)
        await asyncio.sleep(10)
        assert len(cluster.store.puts) == written
