"""A broker that is not mosquitto (mochi), and what it does not offer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from contract.errors import StoreError, StoreRefused
from contract.topics import document_topic
from stores.address import open_store
from stores.base import Beat, Changed, Deleted, Document, Selection
from stores.interruption import Interrupted
from stores.mqtt.address import parse_address
from stores.mqtt.connection import BrokerConnection
from stores.mqtt.documents import encode
from stores.settings import Mqtt
from tests.parts.broker import Broker
from tests.parts.deadlines import patience, time_passes, until
from tests.parts.mochi import Mochi
from tests.parts.mqtt_proxy import MqttProxy, Plays
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stores.base import Store
    from tests.parts.watching import Watching

pytestmark = pytest.mark.server

ONE = Document("kube-system", "mindx-dl-deviceinfo-node-1", {"text": "x"}, {"a": "b"})
PROTOCOLS = pytest.mark.parametrize("protocol", ["5", "3.1.1"])


def opened(broker: Mochi | MqttProxy, protocol: str, node: str | None = None) -> Store:
    return open_store(broker.url, mqtt=msgspec.convert({"protocol": protocol}, Mqtt), node=node)


async def problem(store: Store) -> str:
    """Return why no write succeeds, after any temporary failure."""
    async with asyncio.timeout(patience(30)):
        for _ in range(3):
            with pytest.raises(StoreError) as caught:
                await store.put(ONE)
            await time_passes(0.2)
    return str(caught.value)


@PROTOCOLS
@pytest.mark.parametrize(
    ("flag", "setting"),
    [("-retain=false", "retain_available true"), ("-qos=0", "max_qos 1")],
)
@pytest.mark.parametrize("node", [None, "node-1"])
async def test_one_that_cannot_be_used_is_named_and_used_once_it_can(
    tmp_path: Path, protocol: str, flag: str, setting: str, node: str | None
) -> None:
    with Mochi(tmp_path, flag) as broker:
        # That of an agent has a will, which is retained and has QoS 1, too.
        store = opened(broker, protocol, node)
        assert f"set {setting}" in await problem(store)
        broker.restart()
        await taken(store)
        assert await store.get(ONE.namespace, ONE.name) is not None
        await store.close()


async def fails(store: Store, document: Document = ONE) -> bool:
    try:
        await store.put(document)
    except StoreError:
        return True
    return False


async def test_one_without_mqtt_5_is_named_with_what_to_set(tmp_path: Path) -> None:
    with Mochi(tmp_path, "-only-3.1.1") as broker:
        store = opened(broker, "5")
        assert "set mqtt.protocol to the other one" in await problem(store)
        await store.close()


@pytest.mark.parametrize(("protocol", "flags"), [("5", ()), ("3.1.1", ("-only-3.1.1",))])
async def test_one_with_mqtt_5_and_one_without_it_keep_documents_and_beats(
    tmp_path: Path, protocol: str, flags: tuple[str, ...]
) -> None:
    with Mochi(tmp_path, *flags) as broker:
        await assert_serves(opened(broker, protocol, "node-1"), opened(broker, protocol))


async def assert_serves(agent: Store, aggregator: Store) -> None:
    """Check documents, their changes and deletions, heartbeats and a last will."""
    await agent.put(ONE)
    async with watching(aggregator, Selection("kube-system")) as seen:
        (document,) = seen.documents.values()
        assert document.data == ONE.data
        await agent.put(Document(ONE.namespace, ONE.name, {"text": "y"}))
        await seen.until(lambda seen: len(seen.of(Changed)) == 1)
        await agent.delete(ONE.namespace, ONE.name)
        await seen.until(lambda seen: len(seen.of(Deleted)) == 1)
    await agent.beat(Beat("node-1", "host", 5.0, 7))
    (beat,) = await aggregator.beats()
    assert (beat.node, beat.beaten_at_ms, beat.is_broken) == ("node-1", 7, False)
    await agent.close()
    await aggregator.close()


@PROTOCOLS
async def test_a_larger_document_than_it_takes_holds_nothing_else_up(
    tmp_path: Path, protocol: str
) -> None:
    with Mochi(tmp_path, "-largest=20000") as broker:
        store = opened(broker, protocol)
        await store.put(ONE)
        large = Document("mindx-dl", "mindx-dl-nodeinfo-node-1", {"text": "x" * 40_000})

        async def is_named() -> bool:
            try:
                await store.put(large)
            except StoreError as error:
                return "bytes as a packet" in str(error)
            return False

        await until(is_named, "its size is named", 30, 0.1)
        await store.put(ONE)
        await store.beat(Beat("node-1", "host", 5.0, 7))
        await store.close()


async def bridged(broker: Mochi, protocol: str, caplog: pytest.LogCaptureFixture) -> int:
    """Receive documents without the retain flag; return how often a message reports that."""
    node = BrokerConnection(parse_address(broker.url), Mqtt(), None)
    reader = opened(broker, protocol)
    async with watching(reader, Selection("kube-system")) as seen:
        for text in "abc":
            document = Document(ONE.namespace, ONE.name, {"text": text})
            topic = document_topic(ONE.namespace, ONE.name)
            await node.publish(topic, encode(document), retain=True)
            await seen.until(lambda seen: text in str(seen.documents))  # noqa: B023
    await node.close()
    await reader.close()
    return sum("come without the retain flag" in one.getMessage() for one in caplog.records)


async def test_a_bridge_that_drops_the_retain_flag_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Mochi(tmp_path, "-drops-retain") as broker:
        assert await bridged(broker, "5", caplog) == 1
        caplog.clear()
        assert await bridged(broker, "3.1.1", caplog) == 0, "there no message shows it"


async def test_documents_that_are_retained_are_not_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Mochi(tmp_path) as broker:
        assert await bridged(broker, "5", caplog) == 0


def device_info(size: int) -> Document:
    return Document(ONE.namespace, ONE.name, {"text": "x" * size}, ONE.labels)


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as broker:
        yield broker


@PROTOCOLS
@pytest.mark.parametrize("node", [None, "node-1"])
async def test_broker_that_sends_no_retained_messages_for_wildcards_serves_agents_only(
    mosquitto: Broker, protocol: str, node: str | None
) -> None:
    async with MqttProxy(mosquitto.port, Plays(wildcards=False)) as proxy:
        store = opened(proxy, protocol, node)
        if node is None:
            assert "no retained messages for topic filters with wildcards" in await problem(store)
            proxy.plays.wildcards = True
            await taken(store)
        else:
            await store.put(ONE)
            assert await store.get(ONE.namespace, ONE.name) is not None
        await store.close()


@PROTOCOLS
@pytest.mark.parametrize("node", [None, "node-1"])
async def test_document_that_later_readers_do_not_get_is_refused_with_its_size(
    mosquitto: Broker, protocol: str, node: str | None
) -> None:
    async with MqttProxy(mosquitto.port, Plays(retained_bytes=700)) as proxy:
        store = opened(proxy, protocol, node)
        await store.put(device_info(300))
        async with watching(store, Selection(ONE.namespace, ONE.name)) as seen:
            for number in range(2):
                with pytest.raises(StoreRefused, match="does not keep it for later readers"):
                    await store.put(device_info(1000 + number))
            await store.put(device_info(400))
            await seen.until(lambda seen: device_info(400).data in shown(seen))
            assert seen.of(Interrupted) == []
            assert seen.of(Deleted) == []
        assert is_limited(store)
        proxy.plays.retained_bytes = 1 << 28
        await store.put(device_info(1000))
        assert not is_limited(store)
        await store.close()


def is_limited(store: Store) -> bool:
    return store.largest_document is not None


def shown(seen: Watching) -> list[dict[str, str]]:
    return [document.data for document in seen.documents.values()]


async def test_lists_are_whole_where_retained_messages_come_late(mosquitto: Broker) -> None:
    async with MqttProxy(mosquitto.port, Plays(retained_after_seconds=0.1)) as proxy:
        store = opened(proxy, "3.1.1")
        documents = [Document("mindx-dl", f"one-{number}", {"text": "x"}) for number in range(20)]
        await asyncio.gather(*(store.put(document) for document in documents))
        assert len(await store.list(Selection("mindx-dl"))) == 20
        assert await store.get("mindx-dl", "one-7") is not None
        await store.close()


async def test_new_connection_is_tried_with_the_size_of_the_largest_document(
    mosquitto: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async with MqttProxy(mosquitto.port) as proxy:
        store = opened(proxy, "5")
        await store.put(device_info(5000))
        proxy.plays.retained_bytes = 700
        await proxy.drop()
        await taken(store)
        (line,) = (text for text in caplog.messages if "keeps no retained message of" in text)
        assert "retainer.max_payload_size" in line
        assert int(line.split(" bytes")[0].rpartition(" ")[2]) > 5000
        await store.close()


async def taken(store: Store, document: Document = ONE) -> None:
    async def succeeds() -> bool:
        return not await fails(store, document)

    await until(succeeds, step_seconds=0.1)


@PROTOCOLS
async def test_a_restart_of_the_broker_costs_little_traffic(
    mosquitto: Broker, protocol: str
) -> None:
    """The document of 3 kB goes up once, and down twice: to the watch, and to be read back."""
    async with MqttProxy(mosquitto.port) as proxy:
        store = opened(proxy, protocol, "node-1")
        large = device_info(3000)
        async with watching(store, Selection(ONE.namespace, ONE.name)) as seen:
            await store.put(large)
            await seen.until(lambda seen: bool(seen.documents))
            proxy.sent.clear()
            mosquitto.kill()
            await seen.until(lambda seen: bool(seen.of(Interrupted)))
            mosquitto.start()
            await taken(store, large)
            await seen.until(lambda seen: large.data in shown(seen))
        assert proxy.sent["packets"] <= 45
        assert proxy.sent["up"] + proxy.sent["down"] <= 10_500
        await store.close()
