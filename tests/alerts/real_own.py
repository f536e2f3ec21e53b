"""What keeps faults from being seen or published raises its alert, in a directory store."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.levels import ChipLevel
from tests.alerts.cluster import Cluster, code_of
from tests.alerts.times import FACTOR, Product
from tests.parts.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from tests.alerts.times import Times

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(600)]

CALL = "dcmi_get_device_errorcode_v2"
HEALTH_INTERVALS = Product(begin=5, end=5)
"""A node is lost after three heartbeats of a second, and the aggregator lists them each second."""


class Way:
    """The way from Prometheus to the agent of a node; a thread relays what passes it."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.relay = Relay(int(address.rpartition(":")[2]))
        self.do(self.relay.__aenter__())

    def do(self, work: Coroutine[Any, Any, object]) -> None:
        """Do what the relay does in its loop."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def freeze(self) -> None:
        """Pass nothing on."""
        self.relay.freeze()

    async def restore(self) -> None:
        """Pass everything on again."""
        self.relay.restore()

    def close(self) -> None:
        """End it."""
        self.do(self.relay.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def way() -> Iterator[list[Way]]:
    """Yield a list with the way to the second agent, once there is one."""
    ways: list[Way] = []
    yield ways
    for way in ways:
        way.close()


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, built: Path, way: list[Way]
) -> Iterator[Cluster]:
    """Yield five nodes: as few as can be many that are silent at once."""
    directory = tmp_path_factory.mktemp("own")
    cluster = Cluster(directory, built, nodes=5)
    node = cluster.node
    node.environment["VIGIL_BMC_ENABLED"] = "true"
    node.give_bmc(directory)
    address = cluster.agent_addresses["node-2"]
    way.append(Way(address))
    cluster.agent_addresses["node-2"] = f"127.0.0.1:{way[0].relay.port}"
    with contextlib.closing(cluster):
        cluster.start(FACTOR)
        yield cluster


def test_a_node_that_is_killed(cluster: Cluster, times: Times) -> None:
    node = cluster.nodes[1]
    times.measure(
        cluster.watcher,
        "an agent that is killed",
        {"NpuVigilNodeLost": {"node": node.name}},
        node.kill,
        node.start,
        product=HEALTH_INTERVALS,
    )


@pytest.mark.parametrize("cause", ["refused", "times out"])
def test_a_scrape_that_fails(cluster: Cluster, times: Times, way: list[Way], cause: str) -> None:
    relay = way[0]
    times.measure(
        cluster.watcher,
        f"each scrape of the agent {cause}" if cause == "times out" else "each scrape is refused",
        {"NpuVigilAgentDown": {"node": "node-2"}},
        lambda: relay.do(relay.relay.cut() if cause == "refused" else relay.freeze()),
        lambda: relay.do(relay.restore()),
    )


def test_four_of_five_nodes_that_are_killed(cluster: Cluster, times: Times) -> None:
    def each(act: Callable[[int], None]) -> None:
        for number in range(1, 5):
            act(number)

    times.measure(
        cluster.watcher,
        "four of five agents are killed",
        {"NpuVigilManyNodesSilent": {}},
        lambda: each(lambda number: cluster.nodes[number].kill()),
        lambda: each(lambda number: cluster.nodes[number].start()),
        product=HEALTH_INTERVALS,
    )


def test_an_aggregator_that_is_killed(cluster: Cluster, times: Times) -> None:
    times.measure(
        cluster.watcher,
        "the only aggregator is killed",
        {"NpuVigilNoLeader": {}},
        cluster.aggregator.kill,
        cluster.aggregator.spawn,
    )


def test_a_bmc_that_fails(cluster: Cluster, times: Times) -> None:
    bmc = cluster.node.emulator.bmc
    times.measure(
        cluster.watcher,
        "a BMC that refuses each command",
        {"NpuVigilNodeBlind": {"node": cluster.node.name}},
        lambda: bmc.fail(0xC1),
        bmc.ok,
    )


def test_a_driver_call_that_hangs(cluster: Cluster, times: Times) -> None:
    emulator = cluster.node.emulator
    times.measure(
        cluster.watcher,
        "a driver call that hangs",
        {"NpuVigilDriverCallStuck": {"node": cluster.node.name}},
        lambda: emulator.hang(CALL, 5),
        lambda: emulator.clear(CALL, 5),
        # The agent asks again after pauses that grow to half a minute.
        product=Product(begin=10, end=35),
    )


def test_a_fault_configuration_that_is_malformed(cluster: Cluster, times: Times) -> None:
    place = cluster.place
    name = "mindx-dl-fault-config"
    times.measure(
        cluster.watcher,
        "a malformed document of the fault configuration",
        {"NpuVigilFaultConfigurationRefused": {"document": "faultCode.json"}},
        lambda: place.write(name, {"faultCode.json": "{"}),
        lambda: place.delete(name),
    )


def test_a_disk_that_is_full(cluster: Cluster, times: Times) -> None:
    """The kernel refuses each write behind the limit, as on a full disk."""
    node, code = cluster.nodes[2], code_of(ChipLevel.NOT_HANDLE_FAULT)
    before = resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE)

    def begin() -> None:
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (8192, before[1]))
        node.emulator.occur(0, code)

    def end() -> None:
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, before)
        node.emulator.recover(0, code)

    times.measure(
        cluster.watcher,
        "the kernel refuses longer files, as on a full disk",
        {"NpuVigilJournalFailing": {"node": node.name}},
        begin,
        end,
    )


def test_a_task_that_stands_still(cluster: Cluster, times: Times) -> None:
    """A collector of the test hangs: no real one does, because driver calls have processes."""
    node = cluster.nodes[3]
    hangs = cluster.directory / "hangs"
    node.environment["HANGS_WHILE_THERE_IS"] = str(hangs)
    node.kill()
    node.start((sys.executable, "-m", "tests.end_to_end.hanging_agent"))
    node.up()
    node.ready()
    times.measure(
        cluster.watcher,
        "a collector of the test that hangs",
        {"NpuVigilTaskStalled": {"node": node.name, "task": "hangs"}},
        hangs.touch,
        hangs.unlink,
        # A task stands still after 5 s without progress.
        product=Product(begin=10, end=5),
    )


CLUSTER_DOCUMENT = "cluster-info-device-0"


@pytest.mark.parametrize(
    ("alert", "name", "data", "document"),
    [
        (
            "NpuVigilTwoWriters",
            "mindx-dl-deviceinfo-node-5",
            {"DeviceInfoCfg": "{}"},
            "device-info",
        ),
        (
            "NpuVigilAggregatorTwoWriters",
            CLUSTER_DOCUMENT,
            {CLUSTER_DOCUMENT: "{}"},
            CLUSTER_DOCUMENT,
        ),
    ],
)
def test_another_program_that_writes_a_document(
    cluster: Cluster, times: Times, alert: str, name: str, data: dict[str, str], document: str
) -> None:
    ends = threading.Event()

    def write() -> None:
        while not ends.wait(0.3):
            cluster.place.write(name, data)

    writer = threading.Thread(target=write)

    def end() -> None:
        ends.set()
        writer.join()

    try:
        times.measure(
            cluster.watcher,
            "another program writes the document every 0.3 s",
            {alert: {"document": document}},
            writer.start,
            end,
            product=Product(end=60),
        )
    finally:
        ends.set()
