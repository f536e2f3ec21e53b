"""Troubles between NPU Vigil and a real API server, and what only exists there, raise alerts."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from aggregator.processors.separation_documents import POLICY_KEY, POLICY_NAME
from contract.codes.levels import ChipLevel
from contract.documents import dpu_info
from contract.documents.node_info import FaultDevice
from contract.names import NODE_INFO_NAMESPACE
from stores.base import Document
from tests.aggregator.dpu_faults.scene import PORT_DOWN, dpu_document
from tests.aggregator.nodes import T0, node_report
from tests.alerts.cluster import CHIP_ALERTS, Cluster, code_of
from tests.alerts.times import FACTOR, Cause, Product
from tests.parts import pods
from tests.parts.api_proxy import ApiProxy, Rule
from tests.parts.controlplane import ControlPlane
from tests.parts.places import Proxied
from tests.parts.verbs import run_vigil

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.alerts.times import Times

pytestmark = [pytest.mark.apiserver, pytest.mark.daemon, pytest.mark.timeout(600)]

POLICY = """
enabled: true
separate: {fault_window_hours: 1, fault_threshold: 1}
release: {fault_free_hours: -1}
"""
SYSTEM = "cluster-system"
UNAVAILABLE, UNPROCESSABLE, CREATED = 503, 422, 201
SERVERS = ("server-1", "server-2")
SEPARATING = "SeparateFault"
HARMLESS = code_of(ChipLevel.NOT_HANDLE_FAULT)
CHIP, CODE = CHIP_ALERTS["NpuVigilChipPreSeparated"]
COUNTED_LATER = Product(begin=30, why="a fault without others counts after 30 s.")


class Proxies:
    """An API server, and a proxy before it for the aggregator and for each of four agents."""

    def __init__(self, plane: ControlPlane, aggregator: ApiProxy, agents: list[ApiProxy]) -> None:
        self.plane = plane
        self.aggregator = aggregator
        self.agents = agents


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxies]:
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(tmp_path_factory.mktemp("plane")))
        for name in (NODE_INFO_NAMESPACE, dpu_info.NAMESPACE, SYSTEM):
            plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        first, *others = (stack.enter_context(ApiProxy(plane)) for _ in range(5))
        yield Proxies(plane, first, others)


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, built: Path, proxies: Proxies
) -> Iterator[Cluster]:
    """Yield four nodes; a pod uses a chip of the last one, and the policy separates at once."""
    plane = proxies.plane
    place = Proxied(plane, proxies.aggregator)
    cluster = Cluster(tmp_path_factory.mktemp("store"), built, place, nodes=4)
    for node, proxy in zip(cluster.nodes, proxies.agents, strict=True):
        node.place = Proxied(plane, proxy)
    owner = pods.owned_by("11111111-2222-3333-4444-555555555555", "training")
    pods.make(plane, "rank-0", cluster.nodes[3].name, f"Ascend910-{CHIP}", owner=owner)
    with contextlib.closing(cluster):
        cluster.put(Document(SYSTEM, POLICY_NAME, {POLICY_KEY: POLICY}))
        # Only the Nodes of one test exist, so nothing else can get a taint.
        cluster.aggregator.environment["VIGIL_NODE_TAINTS_ENABLED"] = "true"
        cluster.start(FACTOR)
        yield cluster


def test_documents_that_are_not_written(cluster: Cluster, times: Times, proxies: Proxies) -> None:
    """A fault that raises no alert is what is to be written."""
    first, second, third, _ = proxies.agents

    def refuse(proxy: ApiProxy, status: int, node: int, name: str) -> None:
        proxy.refuse(status, Rule(name=name))
        cluster.nodes[node].emulator.occur(0, HARMLESS)

    def relent(proxy: ApiProxy, node: int) -> None:
        proxy.relent()
        cluster.nodes[node].emulator.recover(0, HARMLESS)

    times.measure(
        cluster.watcher,
        Cause(
            "NpuVigilNotPublished",
            {"node": "node-1", "document": "device-info"},
            "the API server answers 503 to each write of the document",
            lambda: refuse(first, UNAVAILABLE, 0, "mindx-dl-deviceinfo-node-1"),
            lambda: relent(first, 0),
        ),
        Cause(
            "NpuVigilPublicationRefused",
            {"node": "node-2", "document": "device-info"},
            "the API server answers 422 to each write of the document",
            lambda: refuse(second, UNPROCESSABLE, 1, "mindx-dl-deviceinfo-node-2"),
            lambda: relent(second, 1),
        ),
        Cause(
            "NpuVigilAgentStoreAway",
            {"node": "node-3"},
            "an agent cannot connect to the API server",
            third.refuse_connections,
            third.accept_connections,
        ),
        Cause(
            "NpuVigilAggregatorNotPublishing",
            {"document": "cluster-info-device"},
            "the API server answers 503 to each write of the document",
            lambda: refuse(proxies.aggregator, UNAVAILABLE, 3, "cluster-info-device-0"),
            lambda: relent(proxies.aggregator, 3),
        ),
    )


def test_chips_and_cards_that_the_aggregator_reports(cluster: Cluster, times: Times) -> None:
    node = cluster.nodes[3]

    def release() -> None:
        node.emulator.recover(CHIP, CODE)
        status, _, errors = run_vigil(
            "release", node.name, str(CHIP), "--yes", *cluster.place.options
        )
        assert status == 0, errors

    frequent = "a fault of a chip that a job uses, with a policy that separates at once"
    times.measure(
        cluster.watcher,
        Cause(
            "NpuVigilDpuFault",
            {"code": PORT_DOWN.code, "level": PORT_DOWN.level},
            "a document as an RDMA plugin writes it",
            lambda: cluster.put(dpu_document(node.name, PORT_DOWN, at=time.time() - T0)),
            lambda: cluster.put(dpu_document(node.name, at=time.time() - T0)),
        ),
        Cause(
            "NpuVigilChipPreSeparated",
            {"node": node.name, "chip": str(CHIP), "code": CODE},
            frequent,
            lambda: node.emulator.occur(CHIP, CODE),
            lambda: None,
        ),
        Cause(
            "NpuVigilChipsIsolatedByAggregator", {}, frequent, lambda: None, release, COUNTED_LATER
        ),
    )


def test_taints_that_wait_for_room(cluster: Cluster, times: Times, proxies: Proxies) -> None:
    """Of so few nodes the cap allows a single taint."""
    fault = FaultDevice("CPU", 0, ["00000001"], SEPARATING)
    for name in SERVERS:
        status, answer = proxies.plane.ask("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        assert status == CREATED, answer

    def put(devices: list[FaultDevice], status: str) -> None:
        cluster.put(*(node_report(name, devices, status) for name in SERVERS))

    times.measure(
        cluster.watcher,
        Cause(
            "NpuVigilTaintsWait",
            {"option": "node_taints", "reason": "cap"},
            "two servers have a separating fault, and one Node may have a taint",
            lambda: put([fault], "UnHealthy"),
            lambda: put([], "Healthy"),
        ),
    )


def test_an_api_server_that_is_killed(cluster: Cluster, times: Times, proxies: Proxies) -> None:
    plane = proxies.plane
    times.measure(
        cluster.watcher,
        Cause(
            "NpuVigilStoreAway",
            {"store": "kubernetes:"},
            "the API server is killed, and started again",
            plane.kill_apiserver,
            plane.start_apiserver,
        ),
    )
