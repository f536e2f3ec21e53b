"""What real brokers serve: documents, lists, heartbeats, many documents at once.

``make test-brokers`` runs it.

The expected answers are in ``EXPECTED``. A run in which all tests pass replaces the record that
``docs/stores.md`` is compared with.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import pytest

from contract.errors import StoreError
from stores.address import open_store
from stores.base import Beat, Document, Selection
from stores.settings import Mqtt
from tests.brokers import record
from tests.brokers.programs import HiveMq, RabbitMq
from tests.parts.broker import Broker
from tests.parts.deadlines import patience, stays
from tests.parts.mochi import Mochi
from tests.parts.mqtt_proxy import MqttProxy, Plays
from tests.parts.processes import program
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stores.base import Store

pytestmark = pytest.mark.server

NO_VERSION = "no: it has not this version of MQTT"
NO_WILDCARDS = "no: it sends no retained messages for filters with wildcards"
NOT_KEPT = "no document above `retainer.max_payload_size`"
EXPECTED = {
    ("mosquitto", "5"): ("yes", "yes"),
    ("mosquitto", "3.1.1"): ("yes", "yes"),
    ("mochi-mqtt", "5"): ("yes", "yes"),
    ("mochi-mqtt", "3.1.1"): ("yes", "yes"),
    ("RabbitMQ", "5"): (NO_VERSION, NO_VERSION),
    ("RabbitMQ", "3.1.1"): ("yes", NO_WILDCARDS),
    ("HiveMQ CE", "5"): ("yes", "yes"),
    ("HiveMQ CE", "3.1.1"): ("yes", "yes"),
    ("EMQX", "5"): (NOT_KEPT, NOT_KEPT),
    ("EMQX", "3.1.1"): (NOT_KEPT, NOT_KEPT),
}
TEXTS = {
    "this version of MQTT": NO_VERSION,
    "no retained messages for topic filters with wildcards": NO_WILDCARDS,
    "does not keep it for later readers": NOT_KEPT,
    "acknowledged and not there": NOT_KEPT,
}
DEVICE_INFO = Document(
    "kube-system", "mindx-dl-deviceinfo-node-1", {"text": "x" * 5000}, {"mx-consumer-cim": "true"}
)
MANY = 40


@pytest.fixture(scope="module")
def results() -> Iterator[list[record.Result]]:
    found: list[record.Result] = []
    yield found
    if len(found) == len(EXPECTED):
        record.write(found)


def mosquitto_version() -> str:
    shown = subprocess.run(
        [program("mosquitto"), "-h"], capture_output=True, text=True, check=False
    )
    return shown.stdout.split()[2]


def mochi_version() -> str:
    lines = (ROOT / "tests/mochi/go.mod").read_text(encoding="utf-8").splitlines()
    (line,) = (one for one in lines if "mochi-mqtt/server" in one)
    return line.split()[-1].removeprefix("v")


async def outcome(url: str, protocol: str, node: str | None) -> str:
    """Use a broker as an agent or an aggregator does; return ``yes``, or what is missing."""
    mqtt = msgspec.convert({"protocol": protocol}, Mqtt)
    try:
        for _ in range(2):  # the second time on a new connection, where everything is retained
            store = open_store(url, mqtt=mqtt, node=node)
            try:
                async with asyncio.timeout(patience(240)):
                    await serve(await usable(store), node)
            finally:
                await store.close()
    except StoreError as error:
        return next((text for words, text in TEXTS.items() if words in str(error)), str(error))
    return "yes"


async def serve(store: Store, node: str | None) -> None:
    await store.put(DEVICE_INFO)
    await store.beat(Beat("node-1", "host", 5.0, 7))
    shown = await store.get(DEVICE_INFO.namespace, DEVICE_INFO.name)
    assert shown is not None
    assert shown.data == DEVICE_INFO.data
    if node is not None:
        return
    documents = [Document("mindx-dl", f"one-{n}", {"text": "x" * 20_000}) for n in range(MANY)]
    await asyncio.gather(*(store.put(one) for one in documents))
    assert len(await store.list(Selection("mindx-dl"))) == MANY
    (found,) = await store.list(Selection("kube-system", label=("mx-consumer-cim", "true")))
    assert found.name == DEVICE_INFO.name
    assert [beat.node for beat in await store.beats()] == ["node-1"]


async def usable(store: Store) -> Store:
    """Wait until the first connection is up; a broker that lacks something is asked once more."""
    with contextlib.suppress(StoreError):
        await store.get("mindx-dl", "none")
    await stays(0.5, because="the first pause before another connection is 0.25 s")
    return store


async def judge(
    results: list[record.Result], name: str, version: str, url: str, protocol: str
) -> None:
    agent = await outcome(url, protocol, "node-1")
    aggregator = await outcome(url, protocol, None)
    assert (agent, aggregator) == EXPECTED[name, protocol]
    day = datetime.now(UTC).date().isoformat()
    shown = f"{name} (a proxy plays it)" if name == "EMQX" else name
    results.append(record.Result(shown, version, protocol, agent, aggregator, day))


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@pytest.mark.parametrize("name", ["mosquitto", "mochi-mqtt", "RabbitMQ", "HiveMQ CE", "EMQX"])
async def test_a_broker_serves_what_the_documents_state(
    tmp_path: Path, results: list[record.Result], name: str, protocol: str
) -> None:
    if name == "mosquitto":
        with Broker(tmp_path) as broker:
            await judge(results, name, mosquitto_version(), broker.url, protocol)
    elif name == "mochi-mqtt":
        with Mochi(tmp_path) as mochi:
            await judge(results, name, mochi_version(), mochi.url, protocol)
    elif name == "RabbitMQ":
        with RabbitMq(tmp_path / "rabbitmq") as rabbitmq:
            await judge(results, name, RabbitMq.version(), rabbitmq.url, protocol)
    elif name == "HiveMQ CE":
        with HiveMq(tmp_path / "hivemq") as hivemq:
            await judge(results, name, HiveMq.version(), hivemq.url, protocol)
    else:
        with Broker(tmp_path) as broker:
            async with MqttProxy(broker.port, Plays(retained_bytes=700)) as proxy:
                await judge(results, name, "-", proxy.url, protocol)
