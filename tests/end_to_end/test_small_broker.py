"""An agent on a broker that takes small packets only: what is too large silences nothing else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.mqtt_node import OnBroker
from tests.end_to_end.node import Node
from tests.parts.broker import Broker
from tests.parts.mqtt_proxy import MqttProxy, Plays

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAULTS = ("80E18402", "80E01801", "80C98008", "80CD8809")
LIMIT = 4500
DEVICE_INFO = "mindx-dl-deviceinfo-node-1"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[OnBroker]:
    (tmp_path / "broker").mkdir()
    with Broker(tmp_path / "broker", [f"max_packet_size {LIMIT}"]) as broker:
        yield OnBroker(broker, "node-1")


@pytest.fixture(params=["5", "3.1.1"])
def node(
    tmp_path: Path, built: Path, place: OnBroker, request: pytest.FixtureRequest
) -> Iterator[Node]:
    node = Node(tmp_path / "node-1", built, place)
    node.environment |= place.environment | {"VIGIL_MQTT_PROTOCOL": request.param}
    node.options += ["--heartbeat-interval-seconds", "1"]
    yield node
    node.close()


def test_a_document_that_is_too_large_is_named_and_silences_nothing_else(
    node: Node, place: OnBroker
) -> None:
    def is_named() -> bool:
        text = str(node.ask("/readyz"))
        return "bytes as a packet" in text and "max_packet_size" in text

    def beaten_at_ms() -> int:
        found: int = place.retained("vigil/v1/nodes/node-1/beat")["beaten_at_ms"]
        return found

    node.start()
    node.healthy()
    for chip in range(8):
        for code in FAULTS:
            node.emulator.occur(chip, code)
    node.wait(is_named, "it is named", 20)
    assert node.ask("/readyz")[0] == 503
    beaten = beaten_at_ms()
    node.wait(lambda: beaten_at_ms() > beaten + 2000, "heartbeats go on", 10)
    assert is_named()
    logged = [line for line in node.logged().splitlines() if "cannot be published" in line]
    assert len(logged) <= 2, "it is named once, and with 3.1.1 the breaks before"
    place.broker.configure([])
    node.wait(lambda: str(place.read(DEVICE_INFO)).count(FAULTS[-1]) >= 8, "it is reported", 15)
    node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready", 10)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_a_document_that_later_readers_do_not_get_is_named_with_its_size(
    tmp_path: Path, built: Path, protocol: str
) -> None:
    (tmp_path / "broker").mkdir()
    with Broker(tmp_path / "broker") as broker:
        async with MqttProxy(broker.port, Plays(retained_bytes=700)) as proxy:
            node = Node(tmp_path / "node-1", built, OnBroker(broker, "node-1"))
            node.environment |= {
                "VIGIL_STORE": proxy.url,
                "VIGIL_MQTT_PROTOCOL": protocol,
            }
            node.options = ["--heartbeat-interval-seconds", "1", "--store", proxy.url]
            try:
                await asyncio.to_thread(node.start)
                await asyncio.to_thread(node.up)
                lack = "cannot be published: "
                await asyncio.to_thread(
                    node.wait, lambda: lack in str(node.ask("/readyz")), "it is named", 20
                )
                status, page = await asyncio.to_thread(node.ask, "/readyz")
                assert status == 503
                assert "retained messages" in str(page)
                logged = node.logged()
                assert "another program" not in logged
                assert sum(lack in line for line in logged.splitlines()) <= 2, "once a document"
                proxy.plays.retained_bytes = 1 << 28
                await asyncio.to_thread(
                    node.wait, lambda: node.ask("/readyz")[0] == 200, "it is ready", 20
                )
            finally:
                node.close()
