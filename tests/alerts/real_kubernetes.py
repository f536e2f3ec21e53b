"""An API server that is away, documents of RDMA plugins, and two aggregators on Kubernetes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from stores.address import open_store
from tests.aggregator.dpu_faults.scene import PORT_DOWN
from tests.aggregator.dpu_faults.test_for_real import of_now
from tests.alerts.cluster import Cluster
from tests.alerts.times import FACTOR, Product
from tests.end_to_end.places import Cluster as Kubernetes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from contract.documents.dpu_info import DpuFault
    from tests.alerts.times import Times
    from tests.parts.controlplane import ControlPlane

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, built: Path, running_control_plane: ControlPlane
) -> Iterator[Cluster]:
    """Yield two nodes and two aggregators, of which the first leads."""
    plane = running_control_plane
    plane.recover()
    plane.clean()
    directory = tmp_path_factory.mktemp("kubernetes")
    cluster = Cluster(directory, built, Kubernetes(plane), nodes=2, aggregators=2)
    with contextlib.closing(cluster):
        cluster.start(FACTOR)
        yield cluster
    plane.recover()


def test_an_api_server_that_is_killed(
    cluster: Cluster, times: Times, running_control_plane: ControlPlane
) -> None:
    times.measure(
        cluster.watcher,
        "the API server is killed",
        {"NpuVigilStoreAway": {}},
        running_control_plane.kill_apiserver,
        running_control_plane.start_apiserver,
        product=Product(begin=10, end=35),
    )


def test_a_fault_of_a_dpu(
    cluster: Cluster, times: Times, running_control_plane: ControlPlane
) -> None:
    def put(*faults: DpuFault) -> None:
        async def write() -> None:
            store = open_store("kubernetes:", running_control_plane.kubeconfig)
            try:
                await store.put(of_now(cluster.node.name, *faults))
            finally:
                await store.close()

        asyncio.run(write())

    times.measure(
        cluster.watcher,
        "a document of the RDMA plugin",
        {"NpuVigilDpuFault": {"code": "21000024", "level": "SeparateDPU"}},
        lambda: put(PORT_DOWN),
        put,
    )


def test_another_leader_while_an_alert_is_pending(cluster: Cluster, times: Times) -> None:
    """The alert fires once, as if the leader had not changed; the former leader comes back."""
    node, (leader, _) = cluster.nodes[1], cluster.aggregators

    def begin() -> None:
        node.kill()
        cluster.watcher.pending("NpuVigilNodeLost")
        leader.kill()

    def end() -> None:
        leader.spawn()
        node.start()

    times.measure(
        cluster.watcher,
        "an agent is killed, and the leader while the alert is pending",
        {"NpuVigilNodeLost": {"node": node.name}},
        begin,
        end,
        # A lease ends, and the next leader reads heartbeats for three intervals.
        product=Product(begin=30, end=10),
    )
