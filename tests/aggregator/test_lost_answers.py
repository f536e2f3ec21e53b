"""Writes whose answer is lost: what the store shows was written, and nothing fails any more."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from aggregator.cluster_documents.shards import Value
from aggregator.publish.document_writer import WriterContext
from aggregator.publish.publisher import StorePublisher
from aggregator.publish.rate_limited_queue import WriteQueue
from contract.documents.cluster_info import cluster_device_name, value_of
from contract.errors import StoreUnavailable
from contract.names import CLUSTER_NAMESPACE
from service.clock import Instant
from service.election.leadership import AlwaysLeader
from service.watchdog import Watchdog
from stores.address import open_store
from tests.aggregator.daemon import until
from tests.aggregator.nodes import T0, faulty, healthy, report
from tests.aggregator.publish.desired import Desired
from tests.parts.broker import Broker
from tests.parts.mqtt_proxy import MqttProxy, Plays
from tests.parts.tasks import beside
from tests.parts.watching import watching

if TYPE_CHECKING:
    from pathlib import Path

    from aggregator.publish.document_state import ClusterDocument
    from stores.base import Document, Store
    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon

NAME = cluster_device_name(0)
WELL = {"ready": True, "reasons": []}


async def acknowledged(output: ClusterDocument, revision: int) -> None:
    await until(lambda: output.acknowledged == revision)


async def reported(daemon: Daemon, stamp: int) -> None:
    await until(lambda: daemon.node("n1")["update_time"] == stamp)


def clock() -> Instant:
    return Instant(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 3])
async def test_document_that_the_store_shows_is_published(
    store: Store, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    put, puts = store.put, 0

    async def losing(document: Document, *, expected: str | None = None) -> str:
        nonlocal puts, lost
        puts += 1
        version = await put(document, expected=expected)
        if lost:
            lost -= 1
            raise StoreUnavailable("connection reset")
        return version

    monkeypatch.setattr(store, "put", losing)
    context = WriterContext(
        store, AlwaysLeader(""), clock, Watchdog(time.monotonic), WriteQueue(100, clock), 0.2
    )
    revision = 0
    publisher = StorePublisher(context, Desired(lambda _: Value(value_of([]), 0, revision)))
    async with beside(publisher.run()):
        await publisher.documents()
        publisher.lead([NAME])
        output = publisher.outputs[NAME]
        for revision in range(3):
            publisher.wake([NAME])
            await acknowledged(output, revision)
            assert output.trouble.reason is None
            assert context.failing.seconds(clock().steady_ms) == 0
        assert await store.get(CLUSTER_NAMESPACE, NAME) is not None
        assert output.foreign.total == 0
        await until(lambda: output.touches_total > 0)


@pytest.mark.server
@pytest.mark.parametrize("cuts", [1, 3])
async def test_an_aggregator_on_a_broker_is_well_again(
    make: Make, tmp_path: Path, cuts: int
) -> None:
    (tmp_path / "broker").mkdir()
    with Broker(tmp_path / "broker") as broker:
        async with MqttProxy(broker.port, Plays(cut="cluster-info-device", cuts=cuts)) as proxy:
            store = open_store(broker.url)
            await store.put(report("n1", healthy()))
            daemon = make(proxy.url, None, "--touch-period-seconds", "2")
            await asyncio.to_thread(daemon.start)
            for number in range(2):
                await until(lambda: daemon.metric("npu_vigil_publication_failing") == 0, 20)
                await until(lambda: daemon.ask("/readyz") == (200, WELL))
                await store.put(report("n1", faulty(3 + number, T0 + 1 + number)))
                await reported(daemon, T0 + 1 + number)
            async with watching(store) as seen:
                assert seen.documents
            assert "assumed" not in daemon.log.read_text()
            assert "other program" not in daemon.log.read_text()
            await store.close()
