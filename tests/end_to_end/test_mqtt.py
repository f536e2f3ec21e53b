"""Agent and aggregator on a real broker with client certificates, and beside Kubernetes."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.mqtt_node import OnBroker, aggregator_on_broker
from tests.end_to_end.node import Node
from tests.parts.deadlines import nothing_happens_for, patience
from tests.parts.processes import program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.aggregator.daemon import Daemon
    from tests.parts.broker import Broker
    from tests.parts.places import Cluster

CODE = "80E01801"


@pytest.fixture
def node(tmp_path: Path, built: Path, broker: Broker) -> Iterator[Node]:
    place = OnBroker(broker, "node-1")
    node = Node(tmp_path / "node-1", built, place)
    node.environment |= place.environment
    node.options += ["--heartbeat-interval-seconds", "1"]
    yield node
    node.close()


@pytest.fixture
def aggregator(tmp_path: Path, broker: Broker) -> Iterator[Daemon]:
    daemon = aggregator_on_broker(tmp_path / "aggregator", broker, "--store", broker.tls_url)
    yield daemon
    daemon.stop()


def devices(data: dict[str, str] | None) -> dict[str, Any]:
    """Return the entry of each node in a published cluster-info-device document."""
    if data is None:
        return {}
    ((_, text),) = data.items()
    found: dict[str, Any] = json.loads(text)
    return {name.removeprefix("mindx-dl-deviceinfo-"): entry for name, entry in found.items()}


def on_broker(node: Node, name: str = "cluster-info-device-0") -> dict[str, Any]:
    return devices(node.place.read(name))


def test_a_fault_reaches_the_cluster_documents_over_a_broker(
    node: Node, aggregator: Daemon
) -> None:
    node.start()
    node.healthy()
    aggregator.start()
    node.emulator.occur(2, CODE)
    node.until(lambda now: CODE in now.codes(2), "the fault is in device-info")
    node.wait(lambda: CODE in json.dumps(on_broker(node).get("node-1")), "it is in cluster-info")
    node.emulator.recover(2, CODE)
    node.wait(lambda: CODE not in json.dumps(on_broker(node)["node-1"]), "it is gone there")
    # A stranger's deletion is repaired.
    node.place.delete(node.document)
    node.healthy()
    status, _ = node.stop()
    assert status == 0
    # A clean stop is no broken connection.
    assert "is_broken" not in node.place.retained("vigil/v1/nodes/node-1/beat")  # type: ignore[attr-defined]


def test_malformed_payload_is_counted_and_named(
    node: Node, aggregator: Daemon, broker: Broker
) -> None:
    node.start()
    node.healthy()
    aggregator.start()
    node.wait(lambda: "node-1" in on_broker(node), "the node is in cluster-info")
    stranger = OnBroker(broker, "node-2")
    stranger.spoil("mindx-dl-deviceinfo-node-2", b"garbage")
    rejected = 'npu_vigil_rejected_documents_total{reason="unreadable"'
    node.wait(lambda: aggregator.metric(rejected) >= 1, "it is counted")
    status, page = aggregator.ask("/api/v1/nodes/node-2")
    assert status == 200
    assert page["node"]["state"] == "rejected"
    (one,) = page["node"]["rejected"]
    assert "is not a valid document" in one["reason"]
    assert set(on_broker(node)) == {"node-1"}

    problems = "npu_vigil_fault_configuration_problems"
    lines = [line for line in node.ask("/metrics")[1].splitlines() if line.startswith(problems)]
    assert sum(float(line.rpartition(" ")[2]) for line in lines) == 0
    to_broker = ("-h", "127.0.0.1", "-p", str(broker.port), "-r", "-q", "1")
    topic = "vigil/v1/config/kube-system/mindx-dl-fault-config"
    text = '{"data":{"faultCode.json":"{}"}}'
    subprocess.run([program("mosquitto_pub"), *to_broker, "-t", topic, "-m", text], check=True)

    def wrong() -> float:
        lines = node.ask("/metrics")[1].splitlines()
        return sum(float(one.rpartition(" ")[2]) for one in lines if one.startswith(problems))

    node.wait(lambda: wrong() == 1, "a configuration without labels is a problem")
    configuration = node.status()["fault_configuration"]
    assert "labels" in configuration["problems"][0]["what"]


def test_a_broker_that_was_killed_has_everything_again(
    node: Node, aggregator: Daemon, broker: Broker
) -> None:
    # The broker is away for a part of three intervals, and nobody is to be lost.
    node.options += ["--heartbeat-interval-seconds", f"{patience(1):g}"]
    node.start()
    node.healthy()
    aggregator.start()
    node.wait(lambda: "node-1" in on_broker(node), "the node is in cluster-info")
    broker.kill()
    node.emulator.occur(3, CODE)
    broker.start()
    node.until(lambda now: CODE in now.codes(3), "the fault is in device-info", 15)
    node.wait(
        lambda: CODE in json.dumps(on_broker(node).get("node-1")), "it is in cluster-info", 15
    )
    node.wait(lambda: aggregator.ask("/readyz")[0] == 200, "the aggregator is ready", 15)
    assert aggregator.ask("/api/v1/liveness")[1]["liveness"]["lost"] == []


def test_an_agent_that_was_killed_is_lost_by_its_will(node: Node, aggregator: Daemon) -> None:
    node.start()
    node.healthy()
    aggregator.start()
    place = node.place
    assert isinstance(place, OnBroker)
    node.wait(
        lambda: place.retained("vigil/v1/nodes/node-1/beat") is not None, "the agent has beaten"
    )
    node.kill()
    node.wait(
        lambda: bool(place.retained("vigil/v1/nodes/node-1/beat").get("is_broken")),
        "its last will is there",
        2,
    )
    node.wait(
        lambda: "UnHealthy" in json.dumps(node.place.read("cluster-info-node-cm")), "it is lost", 10
    )
    # Who comes later knows of the node by its will alone.
    aggregator.kill()
    aggregator.start()
    nothing_happens_for(4, because="a node is silent after three intervals of one second")
    assert "UnHealthy" in json.dumps(node.place.read("cluster-info-node-cm"))
    node.start()
    node.wait(
        lambda: "UnHealthy" not in json.dumps(node.place.read("cluster-info-node-cm")),
        "it is back",
        15,
    )


@pytest.mark.apiserver
def test_nodes_of_both_stores_are_in_the_same_documents(
    node: Node, tmp_path: Path, built: Path, broker: Broker, cluster: Cluster
) -> None:
    other = Node(tmp_path / "node-2", built, cluster, "node-2")
    daemon = aggregator_on_broker(
        tmp_path / "aggregator",
        broker,
        *("--store", broker.tls_url, "--store", "kubernetes:"),
        *("--publish", broker.tls_url, "--publish", "kubernetes:"),
        *("--kubeconfig", str(cluster.plane.kubeconfig)),
    )
    try:
        node.start()
        other.start()
        node.healthy()
        other.healthy()
        daemon.start()
        node.emulator.occur(1, CODE)
        other.emulator.occur(2, CODE)

        def shown() -> list[dict[str, Any]]:
            path = "/api/v1/namespaces/mindx-dl/configmaps/cluster-info-device-0"
            status, answer = cluster.plane.ask("GET", path)
            return [on_broker(node), devices(answer["data"]) if status == 200 else {}]

        node.wait(
            lambda: all(
                CODE in json.dumps(one.get(name))
                for one in shown()
                for name in ("node-1", "node-2")
            ),
            "both faults are in both documents",
            20,
        )

        def are_equal() -> bool:
            first, second = shown()
            return first == second

        # One is written after the other.
        node.wait(are_equal, "both documents are equal")
    finally:
        daemon.stop()
        other.close()
