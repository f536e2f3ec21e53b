"""Faults of chips, links, hosts, switches and jobs raise their alerts, and these resolve."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from contract.codes.levels import ChipLevel
from dcmi_shim.emulator.bmc import BmcAlarm
from dcmi_shim.emulator.install import install
from dcmi_shim.emulator.switch_faults import EmulatedSwitchFault
from dcmi_shim.emulator.switch_faults import code_of as switch_code
from stores.address import open_store
from tests.aggregator.public_faults.messages import document, fault_message
from tests.aggregator.public_faults.messages import one as public_fault
from tests.alerts.cluster import CHIP_ALERTS, Cluster, code_of
from tests.alerts.times import FACTOR
from tests.parts.deadlines import let_time_pass, wait_until
from tests.parts.verbs import run_vigil

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stores.base import Document
    from tests.alerts.times import Times

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(600)]

ROUNDS = 3
EMULATOR = "a fault in the emulated driver"
SWITCH = EmulatedSwitchFault(switch_code("[0x00f1fef5,155912,cpu,na]"), chip=2, port=3, peer_port=4)
FAN = BmcAlarm("06000025", "Fan", 3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield an A3 with its BMC, so that one node has all kinds of parts."""
    directory = tmp_path_factory.mktemp("faults")
    install(directory / "driver", directory / "emulator", "a3")
    cluster = Cluster(directory, directory, profile="a3")
    node = cluster.node
    node.environment["VIGIL_SWITCH_AUDIT_PERIOD_SECONDS"] = "0.3"
    node.environment["VIGIL_BMC_ENABLED"] = "true"
    node.give_bmc(directory)
    with contextlib.closing(cluster):
        cluster.start(FACTOR)
        yield cluster


def put(cluster: Cluster, document: Document) -> None:
    """Write a document into the store of the cluster, as another program does."""

    async def write() -> None:
        store = open_store(cluster.place.options[1])
        try:
            await store.put(document)
        finally:
            await store.close()

    asyncio.run(write())


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_faults_of_chips_links_hosts_and_switches(
    cluster: Cluster, times: Times, turn: int
) -> None:
    emulator, name = cluster.node.emulator, cluster.node.name
    expected = {
        alert: {"node": name, "chip": str(chip), "code": code}
        for alert, (chip, code) in CHIP_ALERTS.items()
    }
    expected["NpuVigilHostFault"] = {"node": name, "code": FAN.code}
    expected["NpuVigilSwitchFault"] = {"node": name}

    def begin() -> None:
        for chip, code in CHIP_ALERTS.values():
            emulator.occur(chip, code)
        emulator.switch_occur(SWITCH)
        emulator.bmc.occur(FAN)

    def end() -> None:
        for chip, code in CHIP_ALERTS.values():
            emulator.recover(chip, code)
        emulator.switch_recover(SWITCH)
        emulator.bmc.clear()

    times.measure(cluster.watcher, EMULATOR, expected, begin, end)


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_a_short_fault(cluster: Cluster, times: Times, turn: int) -> None:
    """It has no end to wait for: the alert resolves when its age is over.

    An event that the driver sends once is shown for 5 s, so here it is longer than a ``for``.
    """
    emulator, code = cluster.node.emulator, code_of(ChipLevel.PRE_SEPARATE_NPU)
    earlier = 'max_over_time(ALERTS{alertname="NpuVigilChipPreSeparated"}[18s])'
    wait_until(lambda: not cluster.watcher.ask(earlier), "no alert covers the fault", 60, 0.5)

    def begin() -> None:
        emulator.occur(5, code)
        let_time_pass(0.3)
        emulator.recover(5, code)

    times.measure(
        cluster.watcher,
        "a fault of 0.3 s",
        {"NpuVigilShortFault": {"node": cluster.node.name, "level": "PreSeparateNPU"}},
        begin,
        lambda: None,
    )


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_a_chip_that_an_operator_isolates(cluster: Cluster, times: Times, turn: int) -> None:
    def change(*arguments: str) -> None:
        status, _, errors = run_vigil(*arguments, "--yes", *cluster.place.options)
        assert status == 0, errors

    name = cluster.node.name
    times.measure(
        cluster.watcher,
        "`vigil isolate`, then `vigil release`",
        {"NpuVigilChipIsolated": {"node": name, "chip": "6"}},
        lambda: change("isolate", name, "6", "--reason", "its memory is replaced"),
        lambda: change("release", name, "6"),
    )


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_a_public_fault(cluster: Cluster, times: Times, turn: int) -> None:
    node = cluster.node.name

    def send(assertion: str) -> None:
        now = int(time.time() * 1000)
        entry = public_fault(f"fault-{turn:04}", assertion, node=node, devices=[7], time_ms=now)
        message = fault_message(entry, at_ms=now, name=f"message-{turn}-{assertion}")
        put(cluster, document("ccae", message))

    times.measure(
        cluster.watcher,
        "a message of another program in its document",
        {"NpuVigilPublicFault": {"code": "220001001", "level": "SeparateNPU"}},
        lambda: send("occur"),
        lambda: send("recover"),
    )
