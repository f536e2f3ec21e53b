"""A broker without persistence that restarts often: its restarts are no foreign writes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from contract.names import CLUSTER_NODE_NAME
from dcmi_shim.emulator.bmc import BmcAlarm
from tests.end_to_end.mqtt_node import OnBroker, aggregator_on_broker
from tests.end_to_end.node import Node
from tests.parts.deadlines import let_time_pass, patience

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.aggregator.daemon import Daemon
    from tests.parts.broker import Broker

FAULT = "80E18402"
FAN = BmcAlarm("06000025", "Fan", 3)
_ENDS_SECONDS = 4.0
"""A deletion counts when it has stood for 2 s and the agent's heartbeat names it as its own."""
_BACK_SECONDS = 6.0
_RESTARTS = 10
_APART_SECONDS = 1.5
DOCUMENTS = ("mindx-dl-deviceinfo-node-1", "cluster-info-device-0", CLUSTER_NODE_NAME)


@pytest.fixture
def place(broker: Broker) -> OnBroker:
    return OnBroker(broker, "node-1")


@pytest.fixture
def node(tmp_path: Path, built: Path, place: OnBroker) -> Iterator[Node]:
    node = Node(tmp_path / "node-1", built, place)
    node.environment |= place.environment
    yield node
    node.close()


@pytest.fixture
def aggregator(tmp_path: Path, broker: Broker) -> Iterator[Daemon]:
    daemon = aggregator_on_broker(tmp_path / "aggregator", broker, "--store", broker.tls_url)
    yield daemon
    daemon.stop()


def test_ten_restarts_in_a_minute_freeze_nothing(
    node: Node, aggregator: Daemon, place: OnBroker
) -> None:
    node.start()
    node.healthy()
    aggregator.start()
    node.emulator.occur(3, FAULT)
    node.wait(lambda: FAULT in str(place.read(DOCUMENTS[0])), "the fault is reported", 10)
    node.wait(lambda: FAULT in str(place.read(DOCUMENTS[1])), "it is merged", 10)
    for _ in range(_RESTARTS):
        let_time_pass(_APART_SECONDS)
        place.broker.kill()
        place.broker.start()
    began = time.monotonic()
    missing = set(DOCUMENTS)
    while missing:
        missing = {name for name in missing if place.read(name) is None}
        assert time.monotonic() - began < patience(_BACK_SECONDS), f"not back: {missing}"
    assert FAULT in str(place.read(DOCUMENTS[0]))
    assert "node-1" in str(place.read(DOCUMENTS[1]))
    assert "conflict" not in node.logged()
    assert "conflict" not in aggregator.process.log.read_text()
    assert node.ask("/metrics")[1].count("npu_vigil_foreign_writer{") == 0


def test_an_alarm_that_an_agent_takes_back_ends_while_it_beats(
    node: Node, aggregator: Daemon, place: OnBroker, tmp_path: Path
) -> None:
    node.give_bmc(tmp_path)
    node.start()
    node.healthy()
    aggregator.start()

    def is_shown() -> bool:
        return "Fan" in str(place.read(CLUSTER_NODE_NAME))

    for _ in range(2):
        node.emulator.bmc.occur(FAN)
        node.wait(is_shown, "the alarm is shown", 10)
        node.emulator.bmc.clear()
        assert node.wait(lambda: not is_shown(), "the alarm ends", 20) < patience(_ENDS_SECONDS)
        assert aggregator.metric('npu_vigil_heartbeats{state="alive"}') == 1
    assert "lacks documents" not in aggregator.process.log.read_text()
