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
from stores.mqtt.limits import (
    MIN_PACKET_BYTES,
    BrokerLimits,
    LearnedLimits,
    UnderWay,
    packet_bytes,
    unusable,
)
from stores.settings import Mqtt
from tests.parts.broker import Broker
from tests.parts.deadlines import stays, time_passes, until, until_succeeds
from tests.parts.mqtt_proxy import MqttProxy, Plays
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
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
    mqtt = msgspec.convert({"protocol": protocol}, Mqtt)
    return open_store(broker.url, mqtt=mqtt, node="node-1")


async def refused(store: Store, document: Document) -> str:
    """Write a document until it is refused for good; return the reason.

    A write over a broken connection is repeated.
    """

    async def refusal() -> str:
        with pytest.raises(StoreRefused) as caught:
            await store.put(document)
        return str(caught.value)

    return await until_succeeds(refusal, StoreUnavailable, seconds=30)


async def taken(store: Store, document: Document) -> None:
    """Write a document until the store accepts it, also over broken connections."""
    await until_succeeds(lambda: store.put(document), StoreError, seconds=30)


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


async def all_taken(store: Store, documents: Iterable[Document]) -> None:
    await asyncio.gather(*(taken(store, document) for document in documents))


def many(count: int, size: int) -> list[Document]:
    return [Document("mindx-dl", f"one-{n}", {"text": "x" * size}) for n in range(count)]


def named(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [message for message in caplog.messages if text in message]


@pytest.mark.server
@pytest.mark.parametrize("count", [16, 40])
async def test_no_more_publications_are_under_way_than_connack_allows(
    start: Callable[..., Broker], caplog: pytest.LogCaptureFixture, count: int
) -> None:
    broker = start("max_inflight_messages 10")
    async with MqttProxy(broker.port, Plays(answers_after_seconds=0.01)) as proxy:
        store = open_store(proxy.url)
        await all_taken(store, many(count, 10_000))
        assert proxy.most_under_way == 10
        broker.configure(["max_inflight_messages 3"])
        await taken(store, SMALL)
        proxy.most_under_way = 0
        await all_taken(store, many(count, 20_000))
        assert proxy.most_under_way == 3, "it has shrunk at a reconnect"
        broker.configure(["max_inflight_messages 1"])
        await taken(store, SMALL)
        proxy.most_under_way = 0
        await all_taken(store, many(count, 30_000))
        assert proxy.most_under_way == 1
        await store.close()
    assert named(caplog, "assumed") == []


@pytest.mark.server
@PROTOCOLS
async def test_limit_of_unacknowledged_messages_that_is_not_stated_is_no_size_limit(
    start: Callable[..., Broker], caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    broker = start("max_inflight_messages 0")
    plays = Plays(under_way=3, answers_after_seconds=0.01)
    async with MqttProxy(broker.port, plays) as proxy:
        store = open_store(proxy.url, mqtt=msgspec.convert({"protocol": protocol}, Mqtt))
        for size in (10_000, 20_000, 30_000):
            await all_taken(store, many(40, size))
        assert 1 <= len(proxy.ended) <= 3, "each break halves what is under way, for an hour"
        await store.close()
    assert named(caplog, "assumed") == []


@pytest.mark.server
@PROTOCOLS
async def test_size_limit_is_assumed_after_two_connections_ended_over_a_packet_alone(
    start: Callable[..., Broker], caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    broker = start("max_inflight_messages 0")
    # Documents of other sizes are read back: their subscriptions wait for answers beside it.
    plays = Plays(largest=LIMIT, answers_after_seconds=0.01, grants_after_seconds=0.01)
    async with MqttProxy(broker.port, plays) as proxy:
        store = open_store(proxy.url, mqtt=msgspec.convert({"protocol": protocol}, Mqtt))
        writing = asyncio.create_task(all_taken(store, many(40, 10_000)))
        text = await refused(store, LARGE)
        await writing
        assert "is assumed" in text
        assert "max_packet_size" in text
        assert len(proxy.ended) >= 3, "beside others, then twice alone"
        (line,) = named(caplog, "assumed")
        assert re.search(r"packets of at most \d+ bytes", line)
        async with watching(store, Selection("mindx-dl")) as seen:
            await all_taken(store, many(40, 15_000))
            assert "bytes" in await refused(store, LARGE)
            assert seen.of(Interrupted) == [], "nothing else is held up"
        await store.close()


@pytest.mark.server
@PROTOCOLS
async def test_lost_acknowledgement_of_a_document_that_the_broker_shows_is_no_size_limit(
    start: Callable[..., Broker], caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    broker = start()
    plays = Plays(cut="node-info", cuts=3)
    async with MqttProxy(broker.port, plays) as proxy:
        store = open_store(proxy.url, mqtt=msgspec.convert({"protocol": protocol}, Mqtt))
        async with watching(store, Selection("mindx-dl", LARGE.name)):
            await taken(store, LARGE)
        assert len(proxy.ended) == 3
        await store.close()
    assert named(caplog, "assumed") == []


class Hand:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


BROKER = parse_address("mqtt://broker")
PACKET = 90_000


@pytest.fixture
def learned() -> LearnedLimits:
    return LearnedLimits(BROKER, Hand())


def under_way(*sizes: int) -> tuple[UnderWay, ...]:
    return tuple(UnderWay(f"topic-{size}", str(size).encode(), size) for size in sizes)


def ended(learned: LearnedLimits, *sizes: int, alone: bool = True, is_named: bool = False) -> None:
    """Begin a connection that takes a small packet and breaks while these are under way."""
    learned.record_connection(BrokerLimits())
    learned.record_accepted(100)
    learned.record_break(under_way(*sizes), alone=alone, was_too_large=False, is_named=is_named)


def allows(learned: LearnedLimits, size: int) -> bool:
    try:
        learned.check("topic", size)
    except StoreRefused:
        return False
    return True


def test_limit_is_assumed_after_a_suspect_failed_alone_twice(learned: LearnedLimits) -> None:
    ended(learned, PACKET, 300, alone=False)
    assert learned.is_suspect(PACKET)
    assert not learned.is_suspect(MIN_PACKET_BYTES)
    ended(learned, PACKET)
    assert allows(learned, PACKET)
    ended(learned, PACKET)
    assert not allows(learned, PACKET)
    assert allows(learned, PACKET - 1)
    assert learned.limit == PACKET - 1


@pytest.mark.parametrize(
    "sizes", [(PACKET,) * 4, (PACKET, 300) * 2, (), (MIN_PACKET_BYTES,), (300,)]
)
def test_breaks_that_prove_nothing_assume_no_limit(
    learned: LearnedLimits, sizes: tuple[int, ...]
) -> None:
    for _ in range(10):
        ended(learned, *sizes, alone=False)
    assert learned.limit is None


def test_break_before_a_small_packet_was_taken_proves_nothing(learned: LearnedLimits) -> None:
    for _ in range(10):
        learned.record_connection(BrokerLimits())
        learned.record_break(under_way(PACKET), alone=True, was_too_large=False, is_named=False)
    assert learned.limit is None


def test_reason_that_the_broker_names_proves_nothing(learned: LearnedLimits) -> None:
    for _ in range(10):
        ended(learned, PACKET, is_named=True)
    assert learned.limit is None


def test_packet_as_large_as_one_taken_on_the_connection_proves_nothing(
    learned: LearnedLimits,
) -> None:
    for _ in range(10):
        learned.record_connection(BrokerLimits())
        for size in (100, PACKET):
            learned.record_accepted(size)
        learned.record_break(under_way(PACKET), alone=True, was_too_large=False, is_named=False)
    assert learned.limit is None


def test_success_of_a_larger_packet_ends_suspicion_and_assumption(
    learned: LearnedLimits, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        ended(learned, PACKET)
    assert learned.limit == PACKET - 1
    learned.record_accepted(PACKET)
    assert allows(learned, PACKET)
    assert not learned.is_suspect(PACKET + 1)
    assert len(named(caplog, "no smaller limit is assumed any more")) == 1


def test_what_was_under_way_and_is_shown_was_taken(learned: LearnedLimits) -> None:
    for _ in range(3):
        ended(learned, PACKET)
    learned.record_shown(f"topic-{PACKET}", b"another content")
    assert learned.limit == PACKET - 1
    (sent,) = under_way(PACKET)
    learned.record_shown(sent.topic, sent.payload)
    assert allows(learned, PACKET)


def test_limit_is_the_second_smallest_that_failed(learned: LearnedLimits) -> None:
    ended(learned, PACKET)
    for size in (PACKET, PACKET + 500, PACKET - 500):
        ended(learned, size)
    assert learned.limit == PACKET - 1


def test_assumed_limit_is_tried_again_once_after_another_break(learned: LearnedLimits) -> None:
    for _ in range(3):
        ended(learned, PACKET)
    ended(learned, 100)
    assert allows(learned, PACKET)
    assert learned.is_suspect(PACKET)
    ended(learned, PACKET)
    assert not allows(learned, PACKET)


def test_limit_is_tried_again_after_pauses_that_double() -> None:
    hand = Hand()
    learned = LearnedLimits(BROKER, hand)
    learned.record_connection(BrokerLimits())
    learned.record_break(under_way(PACKET), alone=True, was_too_large=True, is_named=False)
    for pause in (60, 120, 240):
        hand.seconds += pause - 1
        assert not allows(learned, PACKET)
        hand.seconds += 1
        assert allows(learned, PACKET)
        ended(learned, PACKET)
    assert not allows(learned, PACKET)


async def test_places_shrink_after_breaks_and_come_back_after_an_hour() -> None:
    hand = Hand()
    learned = LearnedLimits(BROKER, hand)

    async def places() -> int:
        window = learned.record_connection(BrokerLimits())
        tasks = [asyncio.create_task(window.take(alone=False)) for _ in range(20)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        free = sum(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return free

    assert await places() == 16
    for expected in (8, 4, 2, 1, 1):
        ended(learned, *range(100, 117), alone=False)
        assert await places() == expected
    hand.seconds += 3600
    assert await places() == 16


async def test_suspect_waits_until_everything_else_is_acknowledged() -> None:
    window = LearnedLimits(BROKER).record_connection(BrokerLimits(under_way=2))
    order: list[str] = []

    async def send(name: str, *, alone: bool = False) -> None:
        await window.take(alone=alone)
        order.append(name)

    tasks = [asyncio.create_task(send("a"))]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(send("suspect", alone=True))]
    tasks += [asyncio.create_task(send(name)) for name in "bcd"]
    for _ in range(4):
        await time_passes(0.01)
        window.free()
    await until(lambda: len(order) == 5)
    assert order == ["a", "b", "c", "d", "suspect"]
    tasks.append(asyncio.create_task(send("late")))
    await stays(0.01, because="a place is passed on at once")
    assert "late" not in order, "nothing goes beside a suspect"
    window.end_exclusive()
    await asyncio.gather(*tasks)
    assert order[-1] == "late"


async def test_suspect_waits_for_the_answer_to_a_subscription() -> None:
    window = LearnedLimits(BROKER).record_connection(BrokerLimits())
    window.begin_subscription()
    suspect = asyncio.create_task(window.take(alone=True))
    await asyncio.sleep(0)
    assert not suspect.done(), "a break now would not be proof against it"
    window.end_subscription()
    await suspect


async def test_window_without_acknowledgements_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stores.mqtt.limits.PROGRESS_SECONDS", 0.05)
    window = LearnedLimits(BROKER).record_connection(BrokerLimits(under_way=1))
    await window.take(alone=False)
    with pytest.raises(TimeoutError):
        await window.take(alone=False)
    window.free()
    await window.take(alone=False)


@pytest.mark.parametrize(
    ("announced", "limit"), [(None, None), (1, 1), (70_000, 70_000), (2**32 - 1, 2**32 - 1)]
)
def test_limit_in_connack_counts_for_one_connection(
    learned: LearnedLimits, announced: int | None, limit: int | None
) -> None:
    learned.record_connection(BrokerLimits(announced))
    assert learned.limit == limit
    learned.record_break((), alone=False, was_too_large=False, is_named=False)
    assert learned.limit is None


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
