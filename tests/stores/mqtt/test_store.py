"""What is special about documents on a broker: topics, rights, outages, lists that are too long."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
from typing import TYPE_CHECKING

import msgspec
import pytest

from contract.errors import ConfigurationError, StoreError, StoreForbidden, StoreUnavailable
from stores.address import open_store
from stores.base import Changed, Document, DocumentsListed, Selection
from stores.interruption import Interrupted
from stores.mqtt import client
from stores.mqtt.address import parse_address
from stores.mqtt.connection import BrokerConnection, Subscribed
from stores.mqtt.limits import LearnedLimits
from stores.mqtt.session import Received
from stores.settings import Mqtt
from tests.parts.broker import AGGREGATOR, Broker
from tests.parts.deadlines import patience, stays, time_passes, until, until_succeeds
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stores.base import Store

LABELS = {"mx-consumer-cim": "true"}
PROTOCOLS = ("5", "3.1.1")


@pytest.fixture
async def store(broker: Broker) -> AsyncIterator[Store]:
    opened = open_store(broker.tls_url, mqtt=broker.certified("node-1"), node="node-1")
    yield opened
    await opened.close()


@pytest.fixture
async def anybody(broker: Broker) -> AsyncIterator[BrokerConnection]:
    """Connect as a client that may publish everything."""
    connection = BrokerConnection(parse_address(broker.url), Mqtt(), None)
    yield connection
    await connection.close()


def device_info(node: str = "node-1", text: str = "x") -> Document:
    return Document("kube-system", f"mindx-dl-deviceinfo-{node}", {"text": text}, LABELS)


async def test_a_document_is_retained_below_its_node(
    store: Store, anybody: BrokerConnection
) -> None:
    await store.put(device_info())
    seen = anybody.messages("vigil/v1/nodes/+/device-info")
    assert await anext(seen) == Subscribed()
    payload = msgspec.json.encode({"labels": LABELS, "data": {"text": "x"}})
    assert await anext(seen) == Received("vigil/v1/nodes/node-1/device-info", payload, True)
    await seen.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_agent_may_write_below_its_own_node_only(broker: Broker, protocol: str) -> None:
    mqtt = broker.certified("node-1", protocol)
    store = open_store(broker.tls_url, mqtt=mqtt, node="node-1")
    with pytest.raises(StoreForbidden, match=r"vigil/v1/nodes/node-2/device-info.*access rules"):
        await store.put(device_info("node-2"))
    await store.put(device_info("node-1"))
    await store.close()


async def test_files_that_cannot_be_read_are_all_named(tmp_path: Path) -> None:
    missing = msgspec.convert(
        {
            "ca_file": tmp_path / "ca",
            "certificate_file": tmp_path / "crt",
            "key_file": tmp_path,
            "user": "me",
            "password_file": tmp_path / "word",
        },
        Mqtt,
    )
    with pytest.raises(ConfigurationError) as caught:
        open_store("mqtts://broker:0", mqtt=missing)
    assert [problem.where for problem in caught.value.problems] == [
        "mqtts://broker:0",
        "mqtt.password_file",
        "mqtt.ca_file",
        "mqtt.certificate_file",
        "mqtt.key_file",
    ]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_refused_connections_name_the_remedy(broker: Broker, protocol: str) -> None:
    ca = broker.directory / "ca.crt"
    wrong = broker.with_password("somebody", protocol)
    assert wrong.password_file is not None
    wrong.password_file.write_text("not this\n")
    plain_on_tls = broker.tls_url.replace("mqtts", "mqtt")
    tried = [
        (broker.tls_url, {}, StoreForbidden, r"self-signed certificate.*mqtt\.ca_file"),
        (broker.tls_url, {"ca_file": ca}, StoreForbidden, r"client certificate"),
        (broker.password_url, {}, StoreForbidden, r"mqtt\.user"),
        (
            broker.password_url,
            msgspec.structs.asdict(wrong),
            StoreForbidden,
            r"mqtt\.password_file",
        ),
        (plain_on_tls, {}, StoreUnavailable, r"hung up"),
        ("mqtt://127.0.0.1:1", {}, StoreUnavailable, r"Connection refused"),
        ("mqtt://no-such-host.invalid", {}, StoreUnavailable, r"host name"),
    ]
    for url, settings, kind, message in tried:
        mqtt = msgspec.convert({**settings, "protocol": protocol}, Mqtt)
        opened = open_store(url, mqtt=mqtt)
        with pytest.raises(StoreError, match=message) as caught:
            await opened.get("mindx-dl", "one")
        assert type(caught.value) is kind
        await opened.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_right_password_is_let_in(broker: Broker, protocol: str) -> None:
    mqtt = broker.with_password("node-3", protocol)
    opened = open_store(broker.password_url, mqtt=mqtt, node="node-3")
    await opened.put(device_info("node-3"))
    assert await opened.get("kube-system", "mindx-dl-deviceinfo-node-3") is not None
    await opened.close()


async def test_a_password_that_all_users_can_read_is_refused(broker: Broker) -> None:
    mqtt = broker.with_password("node-4")
    assert mqtt.password_file is not None
    mqtt.password_file.chmod(0o604)
    with pytest.raises(ConfigurationError, match=r"password_file: .*read by everybody; chmod"):
        open_store(broker.password_url, mqtt=mqtt)
    mqtt.password_file.chmod(0o640)
    opened = open_store(broker.password_url, mqtt=mqtt, node="node-4")
    mqtt.password_file.chmod(0o644)
    with pytest.raises(StoreForbidden, match="read by everybody"):
        await opened.get("mindx-dl", "one")
    mqtt.password_file.chmod(0o600)
    got = await until_succeeds(lambda: opened.get("mindx-dl", "one"), StoreForbidden)
    assert got is None
    await opened.close()


async def test_a_broker_that_forgot_everything_is_listed_again(
    broker: Broker, store: Store
) -> None:
    await store.put(device_info())
    async with watching(store, Selection("kube-system", "mindx-dl-deviceinfo-node-1")) as seen:
        assert len(seen.documents) == 1
        broker.kill()
        await seen.until(lambda seen: bool(seen.of(Interrupted)))
        with pytest.raises(StoreUnavailable, match="connection"):
            await store.put(device_info(text="lost"))
        broker.start()
        await seen.until(lambda seen: len(seen.of(DocumentsListed)) == 2)
        assert not seen.documents
        await store.put(device_info(text="again"))
        await seen.until(lambda seen: len(seen.documents) == 1)


async def test_a_broker_that_was_stopped_has_everything(broker: Broker, store: Store) -> None:
    version = await store.put(device_info())
    async with watching(store) as seen:
        broker.stop()
        broker.start()
        await seen.until(lambda seen: len(seen.of(DocumentsListed)) == 2)
    assert [one.version for one in seen.documents.values()] == [version]


async def test_a_broker_that_stands_still_is_left(broker: Broker) -> None:
    store = open_store(broker.url, mqtt=Mqtt(keepalive_seconds=1))
    async with watching(store, Selection("mindx-dl")) as seen:
        broker.freeze()
        try:
            await seen.until(lambda seen: bool(seen.of(Interrupted)))
        finally:
            broker.thaw()
        await seen.until(lambda seen: len(seen.of(DocumentsListed)) == 2)
    await store.close()


@pytest.mark.parametrize(
    ("nonsense", "reason"),
    [
        (b"no JSON", "is not JSON: invalid character at byte"),
        (b'{"labels": {}}', "$.data: is missing"),
        (b'{"labels":{},"data":{"a":1}}', "$.data[...]: must be a text, is an integer"),
        (b"[" * 10_000, "must be an object, is an array"),
    ],
)
async def test_nonsense_is_reported_once_and_changes_nothing(
    store: Store,
    anybody: BrokerConnection,
    caplog: pytest.LogCaptureFixture,
    nonsense: bytes,
    reason: str,
) -> None:
    topic = "vigil/v1/nodes/node-1/device-info"
    version = await store.put(device_info())
    async with watching(store, Selection("kube-system", "mindx-dl-deviceinfo-node-1")) as seen:
        for _ in range(2):
            await anybody.publish(topic, nonsense, retain=True)
        await store.put(device_info(text="new"))
        await seen.until(lambda seen: bool(seen.of(Changed)))
    assert [one.document.data for one in seen.of(Changed)] == [{"text": "new"}]
    assert seen.of(DocumentsListed)[0].documents[0].version == version
    shown = [one for one in caplog.records if one.levelno >= logging.WARNING]
    (message,) = (one.getMessage() for one in shown)
    assert topic in message
    assert f": it is not a valid document: {reason}" in message


async def test_a_topic_that_belongs_to_another_document_is_no_document(
    broker: Broker, anybody: BrokerConnection
) -> None:
    payload = msgspec.json.encode({"labels": LABELS, "data": {}})
    for topic in (
        "vigil/v1/config/kube-system/mindx-dl-deviceinfo-node-1",
        "vigil/v1/nodes/Not_A_Node/device-info",
        "vigil/v1/cluster/something-else",
        "vigil/v1/config/mindx-dl/Not_A_Name",
    ):
        await anybody.publish(topic, payload, retain=True)
    store = open_store(broker.tls_url, mqtt=broker.certified(AGGREGATOR))
    assert await store.list(Selection()) == ()
    await store.close()


@pytest.mark.server
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_part_of_a_list_is_never_taken_for_all(tmp_path: Path, protocol: str) -> None:
    selection = Selection("kube-system", label=("mx-consumer-cim", "true"))
    mqtt = msgspec.convert({"protocol": protocol}, Mqtt)

    async def filled(broker: Broker) -> Store:
        store = open_store(broker.url, mqtt=mqtt)
        await asyncio.gather(*(store.put(device_info(f"node-{n}")) for n in range(150)))
        return store

    for name in ("short", "endless"):
        (tmp_path / name).mkdir()
    with Broker(tmp_path / "short", ["max_queued_messages 100"]) as broker:
        store = await filled(broker)
        with pytest.raises(StoreUnavailable, match="max_queued_messages 1000000"):
            await store.list(selection)
        # What is asked for singly comes, and a watch waits.
        assert await store.get("kube-system", "mindx-dl-deviceinfo-node-149") is not None
        watch = store.watch(selection)
        event = await anext(watch)
        assert isinstance(event, Interrupted)
        assert "max_queued_messages" in event.reason
        await watch.aclose()  # type: ignore[attr-defined]
        await store.close()
    with Broker(tmp_path / "endless", ["max_queued_messages 1000000"]) as broker:
        store = await filled(broker)
        assert len(await store.list(selection)) == 150
        await store.close()


async def test_too_many_messages_interrupt_their_reader(
    broker: Broker, anybody: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stores.mqtt.session.MAX_WAITING", 10)
    topic = "vigil/v1/nodes/node-1/events"
    writer = BrokerConnection(parse_address(broker.url), Mqtt(), None)
    seen = anybody.messages("vigil/v1/nodes/+/events")
    assert isinstance(await anext(seen), Subscribed)
    for number in range(20):
        await writer.publish(topic, str(number).encode(), retain=False)
    # The broker sends them to the reader before it acknowledges a message of the reader.
    await anybody.publish("vigil/v1/cluster/last", b"", retain=False)
    interrupted = await anext(seen)
    assert isinstance(interrupted, Interrupted)
    assert "11 messages dropped" in interrupted.reason
    assert isinstance(await anext(seen), Subscribed)
    await writer.publish(topic, b"heard", retain=False)
    assert await anext(seen) == Received(topic, b"heard", False)
    await seen.aclose()  # type: ignore[attr-defined]
    await writer.close()


async def test_a_connection_that_breaks_while_it_is_left_makes_no_noise(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    address = parse_address(broker.url)

    async def leave_a_broken_one() -> None:
        learned = LearnedLimits(address)
        async with client.MqttClient(
            address, Mqtt(), "one", None, lambda *_: None, learned
        ) as connection:
            broker.kill()
            await until(lambda: connection.has_ended, "the connection has ended")

    await leave_a_broken_one()
    gc.collect()
    assert [one for one in caplog.records if one.name == "asyncio"] == []


async def test_a_cancellation_that_meets_the_end_of_the_connection_is_not_lost(
    broker: Broker,
) -> None:
    address = parse_address(broker.url)
    learned = LearnedLimits(address)
    connection = client.MqttClient(address, Mqtt(), "one", None, lambda *_: None, learned)

    async def leave() -> None:
        async with connection:
            pass

    leaving = asyncio.create_task(leave())
    # Called in the iteration in which whoever waits for the end is woken.
    connection._end.add_done_callback(lambda _: leaving.cancel())
    await asyncio.wait({leaving}, timeout=patience(15))
    assert leaving.cancelled()


@pytest.mark.slow
async def test_a_connection_that_is_abandoned_and_then_refused_makes_no_noise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        # A full backlog: the kernel answers the next one only when the port is closed.
        sockets.enter_context(socket.create_connection(listener.getsockname()))
        address = parse_address(f"mqtt://127.0.0.1:{listener.getsockname()[1]}")

        async def connect() -> None:
            learned = LearnedLimits(address)
            async with client.MqttClient(address, Mqtt(), "one", None, lambda *_: None, learned):
                raise AssertionError("nothing accepts it")

        connecting = asyncio.create_task(connect())
        await time_passes(0.3)
        connecting.cancel()
        await time_passes(0.1)
        listener.close()
        await asyncio.wait({connecting}, timeout=patience(15))
        assert connecting.cancelled()
    del connecting
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_broker_that_accepts_and_sends_nothing_is_left_without_noise(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    monkeypatch.setattr(client, "_ANSWER_SECONDS", 0.2)

    served: list[asyncio.Task[None]] = []

    async def send_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.append(task)
        await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(send_nothing, "127.0.0.1", 0)
    mqtt = msgspec.convert({"protocol": protocol}, Mqtt)
    store = open_store(f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}", mqtt=mqtt)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="timed out"):
            await store.get("kube-system", "x")
        await stays(0.5, because="the next connection is tried after 0.25 s")
    await store.close()
    server.close()
    del store
    async with asyncio.timeout(
        patience(10)
    ):  # every connection was left, and none is left open here
        await asyncio.gather(*served)
    gc.collect()
    assert [one for one in caplog.records if one.name == "asyncio"] == []


async def test_a_closed_store_is_reported_as_closed(store: Store) -> None:
    await store.put(device_info())
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.put(device_info())
