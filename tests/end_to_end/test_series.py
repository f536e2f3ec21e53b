"""How many series a scrape has: counted at real daemons, and as ``docs/metrics.md`` sums them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from typing import TYPE_CHECKING

import pytest

from contract.documents.node_info import FaultDevice
from contract.names import NODE_INFO_NAMESPACE
from stores.address import open_store
from stores.base import Beat
from tests.aggregator.daemon import Daemon
from tests.aggregator.nodes import healthy, node_report, report, with_switch
from tests.end_to_end.node import Node
from tests.parts.deadlines import until, wait_until
from tests.parts.exposition import (
    AGENT,
    CERTIFICATES,
    DOCUMENT,
    ON_KUBERNETES,
    listed,
    scraped,
    series_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from stores.base import Store
    from tests.parts.controlplane import ControlPlane
    from tests.parts.places import Cluster

MAX_OF_AGENT, MAX_OF_AGGREGATOR = 130, 140
CHIPS = 16
REPLICAS = 2
OF_FAULTS = frozenset(
    (
        *("npu_vigil_fault_info", "npu_vigil_node_lost"),
        *("npu_vigil_cluster_server_faults", "npu_vigil_cluster_switch_faults"),
    )
)
"""Metrics of the faults that the nodes of the test have."""


def settled(scrape: Callable[[], str]) -> set[tuple[str, ...]]:
    """Return the series once two scrapes have the same: parts of a daemon have theirs later."""
    series: set[tuple[str, ...]] = set()

    def is_settled() -> bool:
        nonlocal series
        before, series = series, series_of(scrape())
        return series == before

    wait_until(is_settled, "the series stay the same", 60, 3.0)
    return series


def documented(what: str) -> int:
    """Return the number in the row ``what`` of the table of series."""
    (number,) = re.findall(rf"^\| {what} \| ([\d,]+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    return int(number.replace(",", ""))


def test_the_sums_are_those_of_their_parts() -> None:
    agent, aggregator = documented("an agent with 16 chips"), documented("an aggregator")
    assert agent <= MAX_OF_AGENT
    assert aggregator <= MAX_OF_AGGREGATOR
    for nodes in (1_000, 10_000):
        total = documented(f"{nodes:,} nodes and {REPLICAS} aggregators")
        assert total == nodes * agent + REPLICAS * aggregator


@pytest.mark.apiserver
@pytest.mark.daemon
def test_an_agent_at_rest_has_as_many_series_as_documented(
    tmp_path: Path, built_a3: Path, cluster: Cluster, control_plane: ControlPlane
) -> None:
    # Without the namespace, the agent does not know whether the policy is in force.
    control_plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NODE_INFO_NAMESPACE}})
    node = Node(tmp_path, built_a3, cluster, profile="a3")
    node.give_bmc(tmp_path)
    node.options = ["--listen", "127.0.0.1:0"]
    # The kernel log of this machine is not that of the node.
    node.environment["VIGIL_KERNEL_LOG_ENABLED"] = "false"
    with contextlib.closing(node):
        node.start()
        node.up()
        # Whether the API server has the policy is known last.
        node.wait(lambda: "\nnpu_vigil_own_node_only " in node.ask("/metrics")[1], "the policy", 30)
        series = settled(lambda: node.ask("/metrics")[1])
        text = node.ask("/metrics")[1]
    assert len(series) == documented("an agent with 16 chips"), "\n".join(map(str, sorted(series)))
    shown = scraped(text)
    assert text.count("npu_vigil_chip_health{") == CHIPS
    assert shown.items() <= (listed(AGENT) | listed(ON_KUBERNETES) | listed(CERTIFICATES)).items()
    assert listed(CERTIFICATES).items() <= shown.items()


async def put_nodes(store: Store, number: int) -> None:
    """Write documents of all kinds, and heartbeats, as ``number`` agents do; close the store."""
    try:
        for node in (f"node-{n:05}" for n in range(2, number)):
            await store.put(report(node, healthy(int(time.time()))))
            await store.beat(Beat(node, "host", 60.0, int(time.time() * 1000)))
        # Without heartbeats: these documents are old, and would be stale.
        await store.put(with_switch("node-00000", "NotHandle", "Healthy"))
        await store.put(report("node-00001", healthy()))
        fan = FaultDevice("Fan", 1, ["28000009"], "NotHandleFault")
        await store.put(node_report("node-00001", [fan], "Healthy"))
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def running(daemon: Daemon, nodes: int) -> AsyncIterator[set[tuple[str, ...]]]:
    """Start an aggregator; yield its series once it has published all nodes."""
    published = 'npu_vigil_publication_nodes{document="cluster-info-device"'
    await asyncio.to_thread(daemon.start)
    try:

        async def is_published() -> bool:
            return await asyncio.to_thread(daemon.metric, published) == nodes

        await until(is_published, "all nodes are published", 120, 1.0)
        yield await asyncio.to_thread(settled, lambda: daemon.ask("/metrics")[1])
    finally:
        await asyncio.to_thread(daemon.stop)


def at_rest(series: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Return the series that a cluster without faults has, too."""
    return {one for one in series if one[0] not in OF_FAULTS}


@pytest.mark.apiserver
@pytest.mark.daemon
async def test_an_aggregator_has_as_many_series_as_documented(
    tmp_path: Path, control_plane: ControlPlane
) -> None:
    await put_nodes(open_store("kubernetes:", control_plane.kubeconfig), 25)
    where = ("--store", "kubernetes:", "--kubeconfig", str(control_plane.kubeconfig))
    daemon = Daemon(tmp_path / "aggregator", *where)
    async with running(daemon, 25) as series:
        assert len(at_rest(series)) == documented("an aggregator")


@pytest.mark.daemon
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_the_number_of_series_does_not_grow_with_that_of_nodes(tmp_path: Path) -> None:
    names = []
    for nodes in (100, 2_000):
        root = tmp_path / str(nodes)
        root.mkdir()
        url = f"directory:{root}"
        await put_nodes(open_store(url), nodes)
        async with running(Daemon(tmp_path / f"of-{nodes}", "--store", url), nodes) as series:
            names.append(sorted(name for name, *_ in at_rest(series)))
    assert names[0] == names[1]
    assert len([name for name in names[0] if name.endswith("_heartbeat_age_seconds")]) == 20
