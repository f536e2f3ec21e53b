"""What a broker accepts: packet sizes, retained messages and QoS, announced by it or found out."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import TYPE_CHECKING

import msgspec
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from contract.errors import StoreError, StoreRefused, StoreUnavailable
from stores.address import open_store
from stores.base import Beat, Document, Selection
from stores.interruption import Interrupted
from stores.mqtt.address import parse_address
from stores.mqtt.limits import BrokerLimits, PacketLimit, packet_bytes, unusable
from stores.mqtt.settings import Mqtt
from tests.parts.broker import Broker
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stores.base import Store

PROTOCOLS = pytest.mark.parametrize("protocol", ["5", "3.1.1"])
LIMIT = 20_000
SMALL = Document("kube-system", "mindx-dl-deviceinfo-node-1", {"text": "x"})
LARGE = Document("mindx-dl", "mindx-dl-nodeinfo-node-1", {"text": "x" * (2 * LIMIT)})


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Start a broker with these settings, or start it again with others."""
    brokers: list[Broker] = []

    def again(*settings: str) -> Broker:
        if not brokers:
            brokers.append(Broker(tmp_path, settings).__enter__())
        else:
            brokers[0].configure(settings)
        return brokers[0]

    yield again
    for broker in brokers:
        broker.stop()


def opened(broker: Broker, protocol: str) -> Store:
    mqtt = Mqtt.model_validate({"protocol": protocol})
    return open_store(broker.url, mqtt=mqtt, node="node-1")


async def refused(store: Store, document: Document) -> str:
    """Until a document is refused for good; why. A broken connection is tried again."""
    async with asyncio.timeout(30):
        while True:
            try:
                await store.put(document)
            except StoreRefused as error:
                return str(error)
            except StoreUnavailable:
                await asyncio.sleep(0.05)
                continue
            raise AssertionError("it was taken")


async def taken(store: Store, document: Document) -> None:
    """Until a document is taken, over broken connections."""
    async with asyncio.timeout(30):
        while True:
            try:
                await store.put(document)
                return
            except StoreError:
                await asyncio.sleep(0.05)


@pytest.mark.server
@PROTOCOLS
@pytest.mark.parametrize("setting", ["max_packet_size", "message_size_limit"])
async def test_a_document_that_is_too_large_silences_nothing_else(
    start: Callable[..., Broker], protocol: str, setting: str
) -> None:
    broker = start(f"{setting} {LIMIT}")
    store = opened(broker, protocol)
    for document in (SMALL, msgspec.structs.replace(LARGE, data={})):
        await taken(store, document)
    # With 3.1.1 a broker can only hang up, or acknowledge what it throws away.
    text = await refused(store, LARGE)
    (size,) = re.findall(r"has (\d+) bytes", text)
    assert 2 * LIMIT < int(size) < 2 * LIMIT + 200
    assert "max_packet_size" in text
    async with watching(store, Selection("kube-system", SMALL.name)) as seen:
        for number in range(5):
            assert "bytes" in await refused(store, LARGE)
            await store.put(Document(SMALL.namespace, SMALL.name, {"text": str(number)}))
            await store.beat(Beat("node-1", "host", 5.0, number))
        assert seen.of(Interrupted) == [], "the connection is left alone"
    # A broker that takes more by now is offered it again.
    start()
    await taken(store, LARGE)
    assert await store.get(LARGE.namespace, LARGE.name) is not None
    # And one that takes less again is respected, too.
    start(f"{setting} {LIMIT}")
    larger = Document(LARGE.namespace, LARGE.name, {"text": "y" * (3 * LIMIT)})
    await taken(store, SMALL)
    await refused(store, larger)
    await store.put(SMALL)
    await store.close()


@pytest.mark.server
@PROTOCOLS
async def test_restarts_of_the_broker_make_nothing_too_large(
    start: Callable[..., Broker], protocol: str
) -> None:
    broker = start()
    store = opened(broker, protocol)
    await taken(store, SMALL)
    for _ in range(4):
        writing = asyncio.create_task(store.put(LARGE))
        broker.kill()
        await asyncio.gather(writing, return_exceptions=True)
        broker.start()
        await taken(store, LARGE)
    await store.close()


@pytest.mark.server
@PROTOCOLS
@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("retain_available false", "retain_available true"),
        ("max_qos 0", "max_qos 1"),
        ("max_packet_size 30", "max_packet_size"),
    ],
)
async def test_a_broker_that_cannot_be_used_is_named_with_what_to_set(
    start: Callable[..., Broker], protocol: str, setting: str, text: str
) -> None:
    broker = start(setting)
    store = opened(broker, protocol)
    with pytest.raises(StoreError, match=text):
        await store.put(SMALL)
    start()
    await taken(store, SMALL)
    await store.close()


class Hand:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def packet_limit() -> PacketLimit:
    return PacketLimit(parse_address("mqtt://broker"), Hand())


def allows(packet_limit: PacketLimit, size: int) -> bool:
    try:
        packet_limit.check("topic", size)
    except StoreRefused:
        return False
    return True


def test_two_breaks_in_a_row_show_a_limit_and_one_shows_nothing(packet_limit: PacketLimit) -> None:
    packet_limit.record_accepted(50_000)
    packet_limit.record_break(90_000, was_too_large=False)
    assert allows(packet_limit, 90_000)
    packet_limit.record_break(0, was_too_large=False)
    packet_limit.record_break(90_000, was_too_large=False)
    assert allows(packet_limit, 90_000)
    packet_limit.record_break(80_000, was_too_large=False)
    assert not allows(packet_limit, 80_000)
    assert allows(packet_limit, 79_999)


def test_small_packets_and_such_as_were_taken_show_nothing(packet_limit: PacketLimit) -> None:
    packet_limit.record_accepted(50_000)
    for size in (300, 4_096, 50_000) * 5:
        packet_limit.record_break(size, was_too_large=False)
    assert packet_limit.limit is None


def test_learned_packet_limit_is_tried_again_once_after_another_break(
    packet_limit: PacketLimit,
) -> None:
    packet_limit.refuse(90_000)
    assert not allows(packet_limit, 90_000)
    packet_limit.record_break(100, was_too_large=False)
    assert allows(packet_limit, 90_000)
    packet_limit.record_break(90_000, was_too_large=False)
    assert not allows(packet_limit, 90_000)
    packet_limit.record_break(0, was_too_large=False)
    packet_limit.record_accepted(90_000)
    packet_limit.record_break(90_000, was_too_large=False)
    assert allows(packet_limit, 90_000)


def test_learned_packet_limit_is_tried_again_after_pauses_that_double() -> None:
    hand = Hand()
    packet_limit = PacketLimit(parse_address("mqtt://broker"), hand)
    packet_limit.record_break(90_000, was_too_large=True)
    for pause in (60, 120, 240):
        hand.seconds += pause - 1
        assert not allows(packet_limit, 90_000)
        hand.seconds += 1
        assert allows(packet_limit, 90_000)
        packet_limit.record_break(90_000, was_too_large=False)
    assert not allows(packet_limit, 90_000)


@pytest.mark.parametrize(
    ("announced", "limit"), [(None, None), (1, 1), (70_000, 70_000), (2**32 - 1, 2**32 - 1)]
)
def test_limit_in_connack_counts_for_one_connection(
    packet_limit: PacketLimit, announced: int | None, limit: int | None
) -> None:
    packet_limit.begin(BrokerLimits(announced))
    assert packet_limit.limit == limit
    packet_limit.record_break(0, was_too_large=False)
    assert packet_limit.limit is None


@pytest.mark.parametrize("announced", [0, 1, 19, 4095])
def test_odd_limits_are_named(announced: int) -> None:
    problem = unusable(parse_address("mqtt://broker"), BrokerLimits(announced))
    assert problem is not None
    assert f"packets of {announced} bytes only" in str(problem)
    assert unusable(parse_address("mqtt://broker"), BrokerLimits(4096)) is None


@pytest.mark.parametrize("length", [0, 100, 127, 128, 16_000, 16_383, 16_400, 2_100_000])
@pytest.mark.parametrize("is_v5", [False, True])
def test_the_size_of_a_packet_is_what_is_sent(
    length: int, is_v5: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = MQTTProtocolVersion.MQTTv5 if is_v5 else MQTTProtocolVersion.MQTTv311
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=version)
    sent: list[bytearray] = []

    def queue(_: int, packet: bytearray, *__: object) -> int:
        sent.append(packet)
        return 0

    monkeypatch.setattr(client, "_sock", socket)
    monkeypatch.setattr(client, "_packet_queue", queue)
    client.publish("vigil/ü", b"x" * length, 1)
    assert packet_bytes("vigil/ü", b"x" * length, is_v5=is_v5) == len(sent[0])
