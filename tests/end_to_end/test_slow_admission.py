"""Agent and aggregator while an admission webhook that never answers delays each write."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.aggregator.daemon import Daemon
from tests.parts.admission import HangingWebhook
from tests.parts.deadlines import let_time_pass, nothing_happens_for, patience
from tests.parts.node_reader import NodeReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.end_to_end.node import Node
    from tests.parts.places import Cluster

pytestmark = pytest.mark.apiserver

FAULT = "80E01801"
INTERVAL_SECONDS = 1
TIMEOUT_SECONDS = 4
"""Longer than three intervals: without patience the node would be lost."""
LEASE_SECONDS = 2
"""Much less than that: the first slow renewal of a leader outlasts its Lease."""
FAULTS = 6


@pytest.fixture
def node(cluster_node: Node) -> Node:
    cluster_node.environment["VIGIL_HEARTBEAT_INTERVAL_SECONDS"] = str(INTERVAL_SECONDS)
    return cluster_node


@pytest.fixture
def aggregator(tmp_path: Path, cluster: Cluster) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "aggregator", *cluster.options)
    yield daemon
    daemon.stop()


def test_a_leader_leads_on_while_its_first_slow_renewal_is_under_way(
    node: Node, aggregator: Daemon, cluster: Cluster
) -> None:
    aggregator.environment["VIGIL_LEADER_LEASE_SECONDS"] = str(LEASE_SECONDS)
    with NodeReader(cluster.plane) as reader:
        node.start()
        node.healthy()
        aggregator.start()
        with HangingWebhook(cluster.plane, TIMEOUT_SECONDS, ("leases",)):
            for chip in range(FAULTS):
                node.emulator.occur(chip, FAULT)
                occurred, device = time.monotonic(), f"Ascend910-{chip}"

                def shown(device: str = device) -> float | None:
                    return reader.shown_at("cluster-info-device-", node.name, device, FAULT)

                node.wait(lambda: shown() is not None, f"chip {chip} is in cluster-info", 15)
                at = shown()
                assert at is not None
                assert at - occurred <= patience(2)
                let_time_pass(occurred + 1 - time.monotonic())
    assert "leads no more" not in aggregator.log.read_text()


@pytest.mark.timeout(150)
def test_no_node_is_lost_and_a_dead_one_is(
    node: Node, aggregator: Daemon, cluster: Cluster
) -> None:
    with NodeReader(cluster.plane) as reader:
        node.start()
        node.healthy()
        aggregator.start()
        node.wait(lambda: len(reader.beats(node.name)) > 3, "it beats")
        with HangingWebhook(cluster.plane, TIMEOUT_SECONDS):
            nothing_happens_for(
                3 * TIMEOUT_SECONDS, because="three requests end at the webhook's deadline"
            )
            node.emulator.occur(2, FAULT)
            occurred = time.monotonic()

            def shown(document: str) -> float | None:
                return reader.shown_at(document, node.name, "Ascend910-2", FAULT)

            node.wait(lambda: shown(node.document) is not None, "it is in device-info", 15)
            at = shown(node.document)
            assert at is not None
            assert at - occurred <= TIMEOUT_SECONDS + patience(2)
            node.wait(lambda: shown("cluster-info-device-") is not None, "in cluster-info", 15)
            at = shown("cluster-info-device-")
            assert at is not None
            assert at - occurred <= patience(2 * TIMEOUT_SECONDS + 2)
            assert max(reader.durations(node.name)) > 3 * INTERVAL_SECONDS
            assert (reader.lost, reader.vanished) == ({}, [])
            node.kill()
            killed = time.monotonic()
            node.wait(lambda: node.name in reader.lost, "it is lost", 40)
            # What the aggregator has found it writes through the same webhook.
            longest = 3 * INTERVAL_SECONDS + patience(3 * TIMEOUT_SECONDS + 2)
            assert reader.lost[node.name][0] - killed <= longest
