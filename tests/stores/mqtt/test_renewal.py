"""A client certificate that ends soon is replaced while the store works: a new connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from stores.address import open_store
from stores.base import Beat, Changed, Document, DocumentsListed, Selection
from stores.mqtt import connection as mqtt_connection
from tests.parts.broker import Broker
from tests.parts.certificates import make_client
from tests.parts.deadlines import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from stores.base import Store

pytestmark = pytest.mark.server

BEAT = Beat("node-1", "holder", 5.0, 1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Start a broker."""
    with Broker(tmp_path) as running:
        yield running


@pytest.fixture
async def store(
    broker: Broker, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Store]:
    """Open the store of ``node-1``, whose certificate of 30 days ends soon."""
    # All certificates of the tests end sooner.
    monkeypatch.setattr(mqtt_connection, "_RENEWAL", timedelta(days=40))
    monkeypatch.setattr(mqtt_connection, "_RENEWAL_POLL_SECONDS", 0.05)
    mqtt = broker.certified("node-1", protocol)
    opened = open_store(broker.tls_url, mqtt=mqtt, node="node-1", to_be=BEAT)
    yield opened
    await opened.close()


class Writer:
    """Writes device-info of ``node-1`` without a pause."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.written = 0

    async def run(self) -> None:
        """Write until cancelled; each write must be acknowledged."""
        while True:
            text = str(self.written + 1)
            document = Document("kube-system", "mindx-dl-deviceinfo-node-1", {"text": text})
            await self._store.put(document)
            self.written += 1

    async def writes(self, count: int = 20) -> None:
        """Wait until so many more writes were acknowledged."""
        until_then = self.written + count
        await until(lambda: self.written >= until_then, "it writes")


@contextlib.asynccontextmanager
async def writing(store: Store) -> AsyncIterator[Writer]:
    writer = Writer(store)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(writer.run())
        yield writer
        task.cancel()


def connections(broker: Broker) -> int:
    """Return how many connections of ``node-1`` were made to the broker, without trials."""
    lines = broker.log.read_text().splitlines()
    made = [line for line in lines if "New client connected" in line and "npu-vigil-node-1" in line]
    return sum("-trial" not in line for line in made)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_a_newer_certificate_is_taken_without_a_lost_message_or_a_will(
    broker: Broker, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    reader = open_store(broker.url)
    await store.beat(BEAT)
    assert [beat.is_broken for beat in await reader.beats()] == [False]
    shown = [0]

    async def watch() -> None:
        async for event in store.watch(Selection("kube-system", "mindx-dl-deviceinfo-node-1")):
            if isinstance(event, Changed):
                shown.append(int(event.document.data["text"]))
            elif isinstance(event, DocumentsListed):
                shown.extend(int(document.data["text"]) for document in event.documents)

    watching = asyncio.create_task(watch())
    async with writing(store) as writer:
        await writer.writes()
        assert connections(broker) == 1
        make_client(broker.directory, "node-1", "npu-vigil", days=35)
        await until(lambda: connections(broker) == 2, "there is a new connection")
        await writer.writes()
    await until(lambda: shown[-1] >= writer.written, "the watch shows the last document")
    watching.cancel()
    assert [beat.is_broken for beat in await reader.beats()] == [False]
    assert connections(broker) == 2
    assert [r.levelname for r in caplog.records if "newer certificate" in r.message] == ["INFO"]
    await reader.close()


@pytest.mark.parametrize("protocol", ["5"])
async def test_a_half_replaced_certificate_does_not_end_the_connection(
    broker: Broker, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    key = broker.directory / "node-1.key"
    before = key.read_bytes()

    def is_warned() -> bool:
        return any("newer certificate cannot be used" in r.message for r in caplog.records)

    async with writing(store) as writer:
        await writer.writes()
        make_client(broker.directory, "node-1", "npu-vigil", days=35)
        after = key.read_bytes()
        key.write_bytes(before)
        await until(is_warned, "the key does not fit")
        await writer.writes()
        assert connections(broker) == 1
        key.write_bytes(after)
        await until(lambda: connections(broker) == 2, "there is a new connection")
        await writer.writes()
