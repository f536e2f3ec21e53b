"""A real aggregator on a broker that is not mosquitto, with less than it needs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from contract.errors import StoreError, StoreUnavailable
from contract.names import DEVICE_INFO_NAMESPACE, device_info_name
from contract.topics import document_topic
from stores.address import open_store
from stores.mqtt.address import parse_address
from stores.mqtt.connection import BrokerConnection
from stores.mqtt.documents import encode
from stores.settings import Mqtt
from tests.aggregator.chip_reader import ChipReader
from tests.aggregator.fleet import Fleet
from tests.aggregator.nodes import faulty, report
from tests.parts import deadlines
from tests.parts.broker import Broker
from tests.parts.deadlines import patience, stays, until_succeeds
from tests.parts.mochi import Mochi
from tests.parts.mqtt_proxy import MqttProxy, Plays

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stores.base import Store
    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon

NODES = ("n1", "n2", "n3")
ONCE_BY_EACH = 8
"""Each watch names it once."""


async def until(
    what: str,
    reached: Callable[[], bool],
    seconds: float = 20.0,
    state: Callable[[], object] = str,
) -> None:
    await deadlines.until(
        lambda: asyncio.to_thread(reached), lambda: f"never: {what}; {state()}", seconds
    )


def reasons(daemon: Daemon) -> str:
    return str(daemon.ask("/readyz")[1])


async def written(store: Store, node: str) -> None:
    """Write as an agent does: until it is there."""
    await until_succeeds(lambda: store.put(report(node, faulty())), StoreError)


@pytest.mark.parametrize(
    ("protocol", "flag", "setting"),
    [("5", "-retain=false", "retain_available true"), ("3.1.1", "-qos=0", "max_qos 1")],
)
async def test_one_that_cannot_be_used_is_named_once_with_what_to_set(
    make: Make, tmp_path: Path, protocol: str, flag: str, setting: str
) -> None:
    with Mochi(tmp_path, flag) as broker:
        daemon = make(broker.url, None)
        daemon.environment["VIGIL_MQTT_PROTOCOL"] = protocol
        await asyncio.to_thread(daemon.spawn)
        await until("it is named", lambda: f"set {setting}" in reasons(daemon))
        # It is asked again and again, and the log does not have it each time.
        await stays(2, because="the first pauses between two tries are 0.25 s, 0.5 s and 1 s")
        assert daemon.log.read_text().count(f"set {setting}") <= ONCE_BY_EACH
        broker.restart()
        await until("it is ready", lambda: daemon.ask("/readyz")[0] == 200, 30)


async def test_one_without_mqtt_5_that_comes_back_empty(make: Make, tmp_path: Path) -> None:
    with Mochi(tmp_path, "-only-3.1.1") as broker:
        store = open_store(broker.url, mqtt=msgspec.convert({"protocol": "3.1.1"}, Mqtt))
        for node in NODES:
            await store.put(report(node, faulty()))
        daemon = make(broker.url, None)
        daemon.environment["VIGIL_MQTT_PROTOCOL"] = "3.1.1"
        reader = ChipReader()
        fleet = Fleet(store, NODES, patience(1.0))
        async with fleet.beating():
            await asyncio.to_thread(daemon.start)
            async with reader.reading(store):
                await until("they are ill", lambda: set(reader.ill) == set(NODES))
                # Of a node whose heartbeat was never read it cannot be known that it fell silent.
                await until(
                    "the heartbeats were read",
                    lambda: {daemon.node(node)["heartbeat"] for node in NODES} == {"alive"},
                )
                fleet.silent = {"n3"}
                broker.restart("-only-3.1.1")
                await until("the broker is back", lambda: daemon.ask("/readyz")[0] == 200)
                for node in NODES[:2]:
                    await written(store, node)
                await until(
                    "n3 is lost",
                    lambda: reader.lost == {"n3"},
                    state=lambda: (reader.lost, daemon.log.read_text()[-4000:]),
                )
                assert daemon.node("n3")["state"] == "missing"
        await store.close()


async def published(writer: BrokerConnection, topic: str, payload: bytes) -> None:
    """Publish a retained message, also after a connection that mochi refused (see errors.py)."""
    await until_succeeds(lambda: writer.publish(topic, payload, retain=True), StoreUnavailable)


async def test_behind_a_bridge_that_drops_the_retain_flag_a_fault_lasts_over_a_restart(
    make: Make, tmp_path: Path
) -> None:
    with Mochi(tmp_path, "-drops-retain") as broker:
        store = open_store(broker.url)
        writer = BrokerConnection(parse_address(broker.url), Mqtt(), None)
        daemon = make(broker.url, None)
        await asyncio.to_thread(daemon.start)
        reader = ChipReader()
        async with reader.reading(store), Fleet(store, NODES, patience(1.0)).beating():
            for node in NODES:
                document = report(node, faulty())
                topic = document_topic(document.namespace, document.name)
                # A store would notice that later readers do not get it.
                await published(writer, topic, encode(document))
            await until("they are ill", lambda: set(reader.ill) == set(NODES))
            await asyncio.to_thread(daemon.waits_for_text, "come without the retain flag")
            assert daemon.log.read_text().count("come without the retain flag") == 1
            names = {(DEVICE_INFO_NAMESPACE, device_info_name(node)) for node in NODES}
            await until("they are in its file", lambda: names <= daemon.known_documents().keys())
            daemon.kill()
            await asyncio.to_thread(daemon.start)
            await until("it is missing", lambda: daemon.node("n1")["state"] == "missing")
            # T0 is long ago by the clock of the heartbeats.
            await until("it is stale", lambda: bool(daemon.node("n1")["stale"]))
            (stale,) = daemon.node("n1")["stale"]
            assert (stale["document"], stale["age_seconds"] > 600) == ("device-info", True)
            stale_documents = 'npu_vigil_stale_documents{document="device-info"}'
            await until("all are stale", lambda: daemon.metric(stale_documents) == 3)
            assert daemon.ask("/readyz")[0] == 200
        await writer.close()
        await store.close()


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_one_without_retained_messages_for_wildcards_is_named_and_not_used(
    make: Make, tmp_path: Path, protocol: str
) -> None:
    with Broker(tmp_path) as broker:
        async with MqttProxy(broker.port, Plays(wildcards=False)) as proxy:
            daemon = make(proxy.url, None)
            daemon.environment["VIGIL_MQTT_PROTOCOL"] = protocol
            await asyncio.to_thread(daemon.spawn)
            lack = "no retained messages for topic filters with wildcards"
            await until("it is named", lambda: lack in reasons(daemon))
            assert (await asyncio.to_thread(daemon.ask, "/readyz"))[0] == 503
            await stays(2, because="the first pauses between two tries are 0.25 s, 0.5 s and 1 s")
            assert daemon.log.read_text().count(lack) <= ONCE_BY_EACH
            proxy.plays.wildcards = True
            await until("it is ready", lambda: daemon.ask("/readyz")[0] == 200, 30)
