"""Watches of the aggregator that deliver nothing, or are dead, on a real API server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from contract.documents.write_numbers import decode_writes
from tests.aggregator.daemon import Daemon
from tests.aggregator.nodes import published, unhealthy
from tests.end_to_end.node import Node, shown
from tests.parts.api_proxy import ApiProxy, Rule
from tests.parts.controlplane import LEASES
from tests.parts.deadlines import nothing_happens_for, patience

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.parts.places import Cluster

pytestmark = pytest.mark.apiserver

FAULT = "80E01801"
LEASE = f"{LEASES}/npu-vigil-node-1"
SHOWN_SECONDS = 15.0
NODES_DOCUMENTS = Rule(verb="list", resource="configmaps")


@pytest.fixture
def node(tmp_path: Path, built: Path, cluster: Cluster) -> Iterator[Node]:
    node = Node(tmp_path / "node-1", built, cluster)
    yield node
    node.close()


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[ApiProxy]:
    """Yield the proxy through which only the aggregator reaches the API server."""
    with ApiProxy(cluster.plane) as proxy:
        yield proxy


@pytest.fixture
def aggregator(tmp_path: Path, proxy: ApiProxy) -> Iterator[Daemon]:
    options = ("--store", "kubernetes:", "--kubeconfig", str(proxy.kubeconfig))
    daemon = Daemon(tmp_path / "aggregator", *options)
    yield daemon
    daemon.stop()


def in_cluster_info(cluster: Cluster, chip: int) -> bool:
    data = cluster.read("cluster-info-device-0")
    assert data is not None
    entry = published(data["cluster-info-device-0"])["node-1"]
    return f"Ascend910-{chip}" in unhealthy(entry).split(",")


def read_by_name(proxy: ApiProxy, since: float) -> int:
    """Count the requests since a time that list the node's document by its name."""
    return sum(
        "metadata.name=mindx-dl-deviceinfo-node-1" in "".join(one.query.get("fieldSelector", []))
        for one in proxy.requests(NODES_DOCUMENTS, since)
    )


def test_a_fault_that_no_watch_shows_is_in_cluster_info_within_15_s(
    node: Node, aggregator: Daemon, proxy: ApiProxy, cluster: Cluster
) -> None:
    node.start()
    node.healthy()
    aggregator.start()

    def claims() -> bool:
        data = cluster.read(node.document)
        assert data is not None
        annotations = cluster.plane.request("GET", LEASE)["metadata"]["annotations"]
        return (
            decode_writes(annotations.get("npu-vigil/writes", '{"version":1}')).get("device-info")
            == shown(data).update_time
        )

    began = time.monotonic()
    node.emulator.occur(1, FAULT)
    node.wait(lambda: in_cluster_info(cluster, 1), "it is shown")
    node.wait(claims, "the heartbeat names the write")
    nothing_happens_for(8, because="heartbeats are listed every 6 s, and PATIENCE_MS is 2000")
    assert read_by_name(proxy, began) == 0
    proxy.silence(Rule(resource="configmaps"))
    silent = time.monotonic()
    node.emulator.occur(2, FAULT)
    node.wait(lambda: in_cluster_info(cluster, 2), "it is shown there")
    assert time.monotonic() - silent <= patience(SHOWN_SECONDS)
    assert read_by_name(proxy, silent) == 1
    missed = 'npu_vigil_missed_write_reads_total{result="missed",store="kubernetes:"}'
    node.wait(lambda: aggregator.metric(missed) == 1, "it is counted")
    aggregator.waits_for_text("has not shown the last write of device-info")
    assert aggregator.ask("/readyz")[0] == 200


def test_dead_watches_are_asked_anew_when_other_requests_find_dead_connections(
    node: Node, aggregator: Daemon, proxy: ApiProxy, cluster: Cluster
) -> None:
    node.options += ["--heartbeat-interval-seconds", "60"]  # it is not to help
    node.start()
    node.healthy()
    aggregator.start()
    watches = Rule(verb="watch", resource="configmaps")
    frozen = time.monotonic()
    assert proxy.freeze_old() > 0
    node.emulator.occur(1, FAULT)
    node.wait(lambda: in_cluster_info(cluster, 1), "it is shown there")
    assert time.monotonic() - frozen <= patience(SHOWN_SECONDS)
    asked = proxy.requests(watches, frozen)
    # A third of the Lease's 10 s until a request, 2 s without an answer, 5 s.
    assert asked
    assert asked[0].at - frozen <= patience(11)
    assert read_by_name(proxy, frozen) == 0
    # Nothing was missed: it went on from where it was, and no other replica leads.
    assert "leads no more" not in aggregator.log.read_text()
    assert aggregator.ask("/readyz")[0] == 200
