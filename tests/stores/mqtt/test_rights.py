"""Rights that a broker refuses, and connections that it ends for them: the cause is named once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreError, StoreForbidden, StoreUnavailable
from stores.address import open_store
from stores.base import Beat, Document, Selection
from stores.interruption import Interrupted
from stores.mqtt import connection as mqtt_connection
from stores.mqtt.address import parse_address
from stores.mqtt.connection import BrokerConnection
from stores.settings import Mqtt
from tests.parts.broker import Broker
from tests.parts.deadlines import time_passes, until, until_succeeds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from stores.base import Store

pytestmark = pytest.mark.server

PROTOCOLS = ("5", "3.1.1")
HANGS_UP = ["max_queued_messages 0"]
"""With this mosquitto 2.0.11 ends the connection of whoever publishes without the right to."""

DEVICE_INFO = Document("kube-system", "mindx-dl-deviceinfo-node-1", {"text": "x"})
BEAT = Beat("node-1", "holder", 5.0, 1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Start a broker that ends the connection over a refused right."""
    with Broker(tmp_path, HANGS_UP) as running:
        yield running


@pytest.fixture
async def mistaken(broker: Broker, protocol: str) -> AsyncIterator[Store]:
    """Open the store of ``node-1`` with the certificate of ``node-2``."""
    mqtt = broker.certified("node-2", protocol)
    store = open_store(broker.tls_url, mqtt=mqtt, node="node-1", to_be=BEAT)
    yield store
    await store.close()


def connections(broker: Broker) -> int:
    """Return how many connections were made to the broker."""
    return broker.log.read_text().count("New client connected")


async def reasons(work: Callable[[], Awaitable[object]], found: list[StoreError]) -> None:
    """Try again and again; why it failed is added to ``found``."""
    while True:
        try:
            await work()
        except StoreError as error:
            found.append(error)
        await time_passes(0.05)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_certificate_of_another_node_is_named_as_the_cause(
    broker: Broker, mistaken: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    found: list[StoreError] = []
    interruptions: list[str] = []

    async def watch() -> None:
        async for event in mistaken.watch(Selection("kube-system", DEVICE_INFO.name)):
            assert isinstance(event, Interrupted)
            interruptions.append(event.reason)

    async with asyncio.TaskGroup() as tasks:
        works = (
            reasons(lambda: mistaken.put(DEVICE_INFO), found),
            reasons(lambda: mistaken.beat(BEAT), found),
            watch(),
        )
        started = [tasks.create_task(work) for work in works]
        await until(lambda: connections(broker) >= 4 and len(found) >= 6)
        for task in started:
            task.cancel()
    for text in (*{str(error) for error in found}, *interruptions):
        assert "access rules" in text
        assert "vigil/v1/nodes/node-1/" in text
        assert "mqtt.certificate_file" in text
    assert len(interruptions) == 1
    assert len({str(error) for error in found}) == 1
    assert [one.getMessage() for one in caplog.records if one.name.startswith("asyncio")] == []
    assert "connected again" not in caplog.text


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_one_right_that_is_missing_stops_nothing_else(
    broker: Broker, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    rights = (broker.directory / "rights").read_text()
    broker.grant(rights.replace("readwrite vigil/v1/nodes/%u/device-info", "read nothing"))
    broker.stop()
    broker.start()
    caplog.set_level(logging.INFO)
    mqtt = broker.certified("node-1", protocol)
    store = open_store(broker.tls_url, mqtt=mqtt, node="node-1")
    node_info = Document("mindx-dl", "mindx-dl-nodeinfo-node-1", {"text": "x"})

    try:
        for _ in range(3):
            with pytest.raises(StoreError) as caught:
                await store.put(DEVICE_INFO)
            if protocol == "5":
                assert isinstance(caught.value, StoreForbidden)
            assert "vigil/v1/nodes/node-1/device-info" in str(caught.value)
            await until_succeeds(lambda: store.put(node_info), StoreError)
    finally:
        await store.close()
    assert [one.getMessage() for one in caplog.records if one.name.startswith("asyncio")] == []
    assert "connected again" not in caplog.text


async def test_a_broker_that_is_killed_while_a_write_is_registered_leaves_no_traceback(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    connection = BrokerConnection(
        parse_address(broker.tls_url), broker.certified("node-1"), "node-1"
    )
    topic = "vigil/v1/nodes/node-1/node-info"
    await connection.publish(topic, b"1", retain=True)
    broker.kill()
    # The end is there to be read, and what is written before it is read is still registered then.
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match=r"node-info.*the connection broke"):
        await connection.publish(topic, b"2", retain=True)
    await connection.close()
    assert [one.getMessage() for one in caplog.records if one.name.startswith("asyncio")] == []


async def test_a_connection_that_is_back_is_logged_when_it_lasts(
    broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_connection, "_STEADY_SECONDS", 0.3)
    caplog.set_level(logging.INFO)
    connection = BrokerConnection(parse_address(broker.url), Mqtt(), None)
    topic = "vigil/v1/cluster/one"
    await connection.publish(topic, b"1", retain=True)
    broker.kill()
    broker.start()
    await until(lambda: "connected again" in caplog.text)
    await connection.publish(topic, b"2", retain=True)
    await connection.close()
    assert caplog.text.count("connected again") == 1
