"""What keeps faults from being seen or published raises its alert, in a directory store."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.levels import ChipLevel
from contract.documents.node_info import FaultDevice
from tests.aggregator.nodes import node_report
from tests.alerts.cluster import Cluster, code_of
from tests.alerts.times import FACTOR, Cause, Product
from tests.parts.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from tests.alerts.times import Times
    from tests.parts.places import Place

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(600)]

CALL = "dcmi_get_device_errorcode_v2"
CHIP = 3
CLUSTER_DOCUMENT = "cluster-info-device-0"
FAULT_CONFIGURATION = "mindx-dl-fault-config"
LARGE_NODES = 20
LARGE_DEVICES = 1000
"""The parts in 20 documents of nodes take more than the 800 KiB of a document of the cluster."""
FOREIGN_WRITES = Product(
    end=60, why="a conflict ends a minute after the last write of the other program."
)
PROBES = Product(
    end=25, why="the agent repeats a call that hung after pauses of up to half a minute."
)
_SOURCE = Path(__file__).with_name("clock_preload.c")


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


class OtherWriter:
    """Another program, which writes a document every 0.3 s."""

    def __init__(self, place: Place, name: str, data: dict[str, str]) -> None:
        self._ends = threading.Event()

        def write() -> None:
            while not self._ends.wait(0.3):
                place.write(name, data)

        self._thread = threading.Thread(target=write, daemon=True)
        self.start = self._thread.start

    def stop(self) -> None:
        """End it."""
        self._ends.set()
        self._thread.join()


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
    """Yield seven nodes, each of which may have another trouble."""
    directory = tmp_path_factory.mktemp("own")
    cluster = Cluster(directory, built, nodes=7)
    node = cluster.node
    node.environment["VIGIL_BMC_ENABLED"] = "true"
    node.give_bmc(directory)
    cluster.nodes[4].environment["VIGIL_LINKS_PERIOD_SECONDS"] = "1"
    library = directory / "clock_preload.so"
    flags = ("-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
    subprocess.run(["cc", *flags, "-o", library, _SOURCE, "-ldl"], check=True)
    cluster.nodes[6].environment |= {
        "LD_PRELOAD": str(library),
        "CLOCK_IS_AHEAD_WHILE_THERE_IS": str(directory / "ahead"),
    }
    address = cluster.agent_addresses["node-2"]
    way.append(Way(address))
    cluster.agent_addresses["node-2"] = f"127.0.0.1:{way[0].relay.port}"
    with contextlib.closing(cluster):
        cluster.start(FACTOR)
        yield cluster


def test_single_agents_in_trouble(cluster: Cluster, times: Times, way: list[Way]) -> None:
    bmc, relay = cluster.node.emulator.bmc, way[0]
    links, calls = cluster.nodes[4].emulator, cluster.nodes[5].emulator
    ahead = cluster.directory / "ahead"
    times.measure(
        cluster.watcher,
        Cause(
            "NpuVigilNodeBlind",
            {"node": "node-1"},
            "a BMC that refuses each command",
            lambda: bmc.fail(0xC1),
            bmc.ok,
        ),
        Cause(
            "NpuVigilAgentDown",
            {"node": "node-2"},
            "each scrape is refused",
            lambda: relay.do(relay.relay.cut()),
            lambda: relay.do(relay.restore()),
        ),
        _full_disk(cluster),
        _task_that_stands_still(cluster),
        Cause(
            "NpuVigilChipBlind",
            {"node": "node-5", "chip": str(CHIP)},
            "`hccn_tool` fails for one chip",
            lambda: links.tool("hccn_tool", "fail", CHIP, exit_status=1, text="no answer"),
            lambda: links.tool("hccn_tool", "ok", CHIP),
        ),
        Cause(
            "NpuVigilDriverCallStuck",
            {"node": "node-6"},
            "a driver call that hangs",
            lambda: calls.hang(CALL, 5),
            lambda: calls.clear(CALL, 5),
            PROBES,
        ),
        Cause(
            "NpuVigilClockOff",
            {"node": "node-7"},
            "a clock that is a minute ahead",
            ahead.touch,
            ahead.unlink,
        ),
    )


def _full_disk(cluster: Cluster) -> Cause:
    """Return that the kernel refuses each write behind a limit, as on a full disk."""
    node, code = cluster.nodes[2], code_of(ChipLevel.NOT_HANDLE_FAULT)
    before = resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE)

    def begin() -> None:
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (8192, before[1]))
        node.emulator.occur(0, code)

    def end() -> None:
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, before)
        node.emulator.recover(0, code)

    return Cause(
        "NpuVigilJournalFailing",
        {"node": node.name},
        "the kernel refuses longer files, as on a full disk",
        begin,
        end,
    )


def _task_that_stands_still(cluster: Cluster) -> Cause:
    """Return that a collector of the test hangs: no real one does, as driver calls have processes.

    An agent with such a task sends no heartbeat. Its alert covers that the node is lost, too.
    """
    node = cluster.nodes[3]
    hangs = cluster.directory / "hangs"
    node.environment["HANGS_WHILE_THERE_IS"] = str(hangs)
    node.kill()
    node.start((sys.executable, "-m", "tests.end_to_end.hanging_agent"))
    node.up()
    node.ready()
    labels = {"node": node.name, "task": "hangs"}
    text = "a collector of the test that hangs"
    return Cause("NpuVigilTaskStalled", labels, text, hangs.touch, hangs.unlink)


def test_documents_in_trouble(cluster: Cluster, times: Times) -> None:
    place = cluster.place
    of_agent = OtherWriter(place, "mindx-dl-deviceinfo-node-5", {"DeviceInfoCfg": "{}"})
    of_cluster = OtherWriter(place, CLUSTER_DOCUMENT, {CLUSTER_DOCUMENT: "{}"})
    other = "another program writes the document every 0.3 s"

    times.measure(
        cluster.watcher,
        Cause(
            "NpuVigilFaultConfigurationRefused",
            {"document": "faultCode.json"},
            "a malformed document of the fault configuration",
            lambda: place.write(FAULT_CONFIGURATION, {"faultCode.json": "{"}),
            lambda: place.delete(FAULT_CONFIGURATION),
        ),
        Cause(
            "NpuVigilTwoWriters",
            {"node": "node-5", "document": "device-info"},
            other,
            of_agent.start,
            of_agent.stop,
            FOREIGN_WRITES,
        ),
        Cause(
            "NpuVigilAggregatorTwoWriters",
            {"document": "cluster-info-device"},
            other,
            of_cluster.start,
            of_cluster.stop,
            FOREIGN_WRITES,
        ),
    )


def test_a_lost_node_scrapes_that_time_out_and_a_document_that_is_full(
    cluster: Cluster, times: Times, way: list[Way]
) -> None:
    node, relay = cluster.nodes[2], way[0]

    def put(devices: int) -> None:
        parts = [FaultDevice("Fan", n, ["28000009"], "NotHandleFault") for n in range(devices)]
        cluster.put(*(node_report(f"large-{n}", parts, "Healthy") for n in range(LARGE_NODES)))

    times.measure(
        cluster.watcher,
        Cause(
            "NpuVigilNodeLost",
            {"node": node.name},
            "an agent that is killed",
            node.kill,
            node.start,
        ),
        Cause(
            "NpuVigilAgentDown",
            {"node": "node-2"},
            "each scrape of the agent times out",
            lambda: relay.do(relay.freeze()),
            lambda: relay.do(relay.restore()),
        ),
        Cause(
            "NpuVigilNodesLeftOut",
            {"document": "cluster-info-node-cm"},
            "nodes have more faulty parts than the document has room for",
            lambda: put(LARGE_DEVICES),
            lambda: put(0),
        ),
    )


def test_four_of_seven_nodes_that_are_killed(cluster: Cluster, times: Times) -> None:
    nodes = [cluster.nodes[number] for number in (2, 4, 5, 6)]

    def kill() -> None:
        for node in nodes:
            node.kill()

    def start() -> None:
        for node in nodes:
            node.start()

    times.measure(
        cluster.watcher,
        Cause(
            "NpuVigilManyNodesSilent",
            {},
            "four of seven agents are killed",
            kill,
            start,
        ),
    )


def test_an_aggregator_that_is_killed(cluster: Cluster, times: Times) -> None:
    times.measure(
        cluster.watcher,
        Cause(
            "NpuVigilNoLeader",
            {},
            "the only aggregator is killed",
            cluster.aggregator.kill,
            cluster.aggregator.spawn,
        ),
    )
