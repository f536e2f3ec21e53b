"""Heartbeats on a broker: the last will, and what it does not mean."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from contract.errors import StoreUnavailable
from stores.address import open_store
from stores.base import Beat
from stores.mqtt.address import parse_address
from stores.mqtt.beats import BrokerHeartbeats
from stores.mqtt.connection import BrokerConnection
from stores.settings import Mqtt
from tests.parts.broker import AGGREGATOR
from tests.parts.deadlines import patience, stays, until, until_succeeds
from tests.parts.relay import Relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from stores.base import Store
    from tests.parts.broker import Broker

TOPIC = "vigil/v1/nodes/node-1/beat"
BEAT = Beat("node-1", "host-a", 5.0, 1_800_000_000_000)


@pytest.fixture(params=["5", "3.1.1"])
def protocol(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
async def observer(broker: Broker, protocol: str) -> AsyncIterator[Store]:
    store = open_store(broker.tls_url, mqtt=broker.certified(AGGREGATOR, protocol))
    assert await store.beats() == ()
    yield store
    await store.close()


async def shown(store: Store, wanted: Callable[[Beat], bool]) -> Beat:
    """Return the only beat, as soon as it is as wanted."""
    found: tuple[Beat, ...] = ()

    async def is_shown() -> bool:
        nonlocal found
        found = await store.beats()
        return len(found) == 1 and wanted(found[0])

    await until(is_shown, lambda: f"the beat is as wanted: {found}")
    return found[0]


async def test_a_broken_connection_is_reported_by_the_will(
    broker: Broker, observer: Store, protocol: str
) -> None:
    async with Relay(broker.port) as relay:
        mqtt = msgspec.convert({"protocol": protocol}, Mqtt)
        agent = open_store(f"mqtt://127.0.0.1:{relay.port}", mqtt=mqtt, node="node-1")
        await agent.beat(BEAT)
        await shown(observer, lambda beat: beat.holder == "host-a" and not beat.is_broken)
        await relay.drop()
        broken = await shown(observer, lambda beat: beat.is_broken)
        assert (broken.holder, broken.beaten_at_ms) == ("host-a", BEAT.beaten_at_ms)
        again = msgspec.structs.replace(BEAT, beaten_at_ms=BEAT.beaten_at_ms + 1)
        await until_succeeds(lambda: agent.beat(again), StoreUnavailable)
        await shown(observer, lambda beat: not beat.is_broken)
        # Who comes now sees the beat, too.
        assert not (await observer.beats("node-1"))[0].is_broken
        await agent.close()


async def test_a_will_proves_nothing_of_writes_and_nothing_wrong_with_them_spoils_a_beat(
    broker: Broker, observer: Store, protocol: str
) -> None:
    async with Relay(broker.port) as relay:
        mqtt = msgspec.convert({"protocol": protocol}, Mqtt)
        agent = open_store(f"mqtt://127.0.0.1:{relay.port}", mqtt=mqtt, node="node-1")
        await agent.beat(msgspec.structs.replace(BEAT, writes='{"version":1,"node-info":5}'))
        beat = await shown(observer, lambda beat: bool(beat.writes))
        assert beat.writes == '{"version":1,"node-info":5}'
        await relay.cut()
        will = await shown(observer, lambda beat: beat.is_broken)
        assert will.writes == ""
        late = open_store(broker.tls_url, mqtt=broker.certified(AGGREGATOR, protocol))
        assert (await shown(late, lambda beat: beat.is_broken)).writes == ""
        await late.close()
        await agent.close()
    heartbeat = {"node": "node-1", "holder": "h", "interval_seconds": 5, "writes": [{}]}
    connection = BrokerConnection(parse_address(broker.url), Mqtt(), None)
    await connection.publish(TOPIC, msgspec.json.encode(heartbeat), retain=True)
    assert (await shown(observer, lambda beat: beat.holder == "h")).writes == "[{}]"
    await connection.close()


async def test_a_clean_stop_leaves_the_beat(broker: Broker, observer: Store, protocol: str) -> None:
    agent = open_store(broker.tls_url, mqtt=broker.certified("node-1", protocol), node="node-1")
    await agent.beat(BEAT)
    await agent.close()
    await stays(0.3, because="a will is published when the connection ends")
    beat = await shown(observer, lambda beat: beat.holder == "host-a")
    assert not beat.is_broken


async def test_a_will_of_an_earlier_connection_is_no_news(
    broker: Broker, observer: Store, protocol: str
) -> None:
    agent = open_store(broker.tls_url, mqtt=broker.certified("node-1", protocol), node="node-1")
    await agent.beat(BEAT)
    await shown(observer, lambda beat: beat.holder == "host-a")
    stranger = BrokerConnection(parse_address(broker.url), Mqtt(), None)
    late = {"node": "node-1", "connection": "earlier", "is_broken": True, "holder": "host-a"}
    await stranger.publish(TOPIC, msgspec.json.encode(late), retain=True)
    await stays(0.2, because="a message is received within milliseconds")
    assert not (await shown(observer, lambda beat: True)).is_broken
    await stranger.close()
    await agent.close()


async def test_a_will_names_whose_beats_were_to_come(broker: Broker, protocol: str) -> None:
    async with Relay(broker.port) as relay:
        mqtt = msgspec.convert({"protocol": protocol}, Mqtt)
        url = f"mqtt://127.0.0.1:{relay.port}"
        agent = open_store(url, mqtt=mqtt, node="node-1", to_be=BEAT)
        await agent.beat(BEAT)
        relay.freeze()
        await relay.cut()
        late = open_store(broker.tls_url, mqtt=broker.certified(AGGREGATOR, protocol))
        will = await shown(late, lambda beat: beat.is_broken)
        assert (will.holder, will.interval_seconds, will.beaten_at_ms) == ("host-a", 5.0, 0)
        # Of an agent of which nothing but that is known no caller has to wait for the end.
        newcomer = open_store(broker.url, mqtt=mqtt, node="node-1")
        assert await newcomer.beats("node-1") == ()
        for store in (late, newcomer, agent):
            await store.close()


async def test_beats_have_an_age_and_none_while_nothing_can_be_received(
    broker: Broker, observer: Store, protocol: str
) -> None:
    agent = open_store(broker.tls_url, mqtt=broker.certified("node-1", protocol), node="node-1")
    await agent.beat(BEAT)
    first = await shown(observer, lambda beat: True)
    assert first.age_ms is not None
    await stays(0.2, because="the age must grow by 0.2 s")
    later = await shown(observer, lambda beat: True)
    assert later.age_ms is not None
    assert 150 <= later.age_ms - first.age_ms < patience(5000)
    broker.stop()
    await agent.close()

    async def fails() -> bool:
        try:
            await observer.beats()
        except StoreUnavailable:
            return True
        return False

    await until(fails, "the end of the broker is noticed")
    broker.start()
    (back,) = await until_succeeds(observer.beats, StoreUnavailable)
    assert back.holder == "host-a"


async def test_beats_are_not_reported_while_the_broker_stands_still(
    broker: Broker, observer: Store
) -> None:
    """Otherwise all nodes would be silent, until the keepalive shows that it is the broker."""
    broker.freeze()
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await observer.beats()
    finally:
        broker.thaw()
    async with asyncio.timeout(patience(5)):
        assert await observer.beats() == ()


async def test_beats_of_a_broker_that_ended_are_marked_as_retained(
    broker: Broker, observer: Store, protocol: str
) -> None:
    mqtt = broker.certified("node-1", protocol)
    agent = open_store(broker.tls_url, mqtt=mqtt, node="node-1", to_be=BEAT)
    await agent.beat(BEAT)
    assert not (await shown(observer, lambda beat: True)).is_retained
    broker.stop()
    broker.start()
    (found,) = await until_succeeds(observer.beats, StoreUnavailable)
    assert found.is_retained
    again = msgspec.structs.replace(BEAT, beaten_at_ms=BEAT.beaten_at_ms + 1)
    await until_succeeds(lambda: agent.beat(again), StoreUnavailable)
    await shown(observer, lambda beat: not beat.is_retained and not beat.is_broken)
    await agent.close()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"no JSON",
        b'{"node":"node-2","holder":"a"}',
        b'{"node":"node-1"}',
        b'{"node":"node-1","holder":"a","interval_seconds":0}',
        b'{"node":"node-1","holder":"a","interval_seconds":1e999}',
        b'{"node":"node-1","holder":"' + b"a" * 5000 + b'"}',
    ],
)
async def test_nonsense_is_reported_once_and_replaces_no_beat(
    broker: Broker, observer: Store, nonsense: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = open_store(broker.url, mqtt=Mqtt())
    await stranger.beat(BEAT)
    await shown(observer, lambda beat: True)
    connection = BrokerConnection(parse_address(broker.url), Mqtt(), None)
    for _ in range(2):
        await connection.publish(TOPIC, nonsense, retain=True)
    await stays(0.1, because="a message is received within milliseconds")
    assert (await shown(observer, lambda beat: True)).holder == "host-a"
    assert len([one for one in caplog.records if TOPIC in one.getMessage()]) == 1
    await connection.close()
    await stranger.close()


async def test_a_mistake_of_the_program_ends_all_users_of_the_connection(broker: Broker) -> None:
    def mistaken() -> None:
        raise ZeroDivisionError

    connection = BrokerConnection(parse_address(broker.url), Mqtt(), "node-1", mistaken)
    heartbeats = BrokerHeartbeats(connection, None)
    for _ in range(2):
        async with asyncio.timeout(patience(5)):
            with pytest.raises(ZeroDivisionError):
                await connection.session()
            with pytest.raises(ZeroDivisionError):
                await heartbeats.beats(None)
    await heartbeats.close()
    await connection.close()
