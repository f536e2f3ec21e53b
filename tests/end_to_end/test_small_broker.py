"""An agent on a broker that takes small packets only: what is too large silences nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.mqtt_node import OnBroker
from tests.end_to_end.node import Node
from tests.parts.broker import Broker

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
    node.wait(lambda: str(place.read(DEVICE_INFO)).count(FAULTS[-1]) >= 8, "it is told", 15)
    node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready", 10)
