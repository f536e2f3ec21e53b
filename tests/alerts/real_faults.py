"""Faults of chips, links, hosts, switches and jobs raise their alerts, and these resolve."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from contract.codes.catalogue import shipped
from contract.codes.chip_codes import LINK_DOWN
from contract.codes.levels import ChipLevel
from dcmi_shim.emulator.bmc import BmcAlarm
from dcmi_shim.emulator.install import install
from dcmi_shim.emulator.switch_faults import EmulatedSwitchFault
from dcmi_shim.emulator.switch_faults import code_of as switch_code
from tests.aggregator.public_faults.messages import document, fault_message
from tests.aggregator.public_faults.messages import one as public_fault
from tests.alerts.cluster import CHIP_ALERTS, Cluster, code_of
from tests.alerts.times import FACTOR, Cause, Product
from tests.parts.deadlines import let_time_pass, wait_until
from tests.parts.verbs import run_vigil

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.alerts.times import Times

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(600)]

ROUNDS = 3
EMULATOR = "a fault in the emulated driver"
SWITCH = EmulatedSwitchFault(switch_code("[0x00f1fef5,155912,cpu,na]"), chip=2, port=3, peer_port=4)
HELD = Product(
    begin=shipped().durations[LINK_DOWN].fault_timeout_ms / 1000,
    why="the shipped fault configuration raises the level of a link that has been down for 20 s.",
)
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


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_faults_of_chips_links_hosts_and_switches(
    cluster: Cluster, times: Times, turn: int
) -> None:
    emulator, name = cluster.node.emulator, cluster.node.name

    def of_chip(alert: str, chip: int, code: str) -> Cause:
        return Cause(
            alert,
            {"node": name, "chip": str(chip), "code": code},
            EMULATOR,
            lambda: emulator.occur(chip, code),
            lambda: emulator.recover(chip, code),
            HELD if code == LINK_DOWN else Product(),
        )

    times.measure(
        cluster.watcher,
        *(of_chip(alert, chip, code) for alert, (chip, code) in CHIP_ALERTS.items()),
        Cause(
            "NpuVigilHostFault",
            {"node": name, "code": FAN.code},
            "an alarm of the emulated BMC",
            lambda: emulator.bmc.occur(FAN),
            emulator.bmc.clear,
        ),
        Cause(
            "NpuVigilSwitchFault",
            {"node": name},
            EMULATOR,
            lambda: emulator.switch_occur(SWITCH),
            lambda: emulator.switch_recover(SWITCH),
        ),
    )


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

    labels = {"node": cluster.node.name, "level": "PreSeparateNPU"}
    times.measure(
        cluster.watcher,
        Cause("NpuVigilShortFault", labels, "a fault of 0.3 s", begin, lambda: None),
    )


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_an_isolated_chip_and_a_public_fault(cluster: Cluster, times: Times, turn: int) -> None:
    name = cluster.node.name

    def change(*arguments: str) -> None:
        status, _, errors = run_vigil(*arguments, "--yes", *cluster.place.options)
        assert status == 0, errors

    def send(assertion: str) -> None:
        now = int(time.time() * 1000)
        entry = public_fault(f"fault-{turn:04}", assertion, node=name, devices=[7], time_ms=now)
        message = fault_message(entry, at_ms=now, name=f"message-{turn}-{assertion}")
        cluster.put(document("ccae", message))

    times.measure(
        cluster.watcher,
        Cause(
            "NpuVigilChipIsolated",
            {"node": name, "chip": "6"},
            "`vigil isolate`, then `vigil release`",
            lambda: change("isolate", name, "6", "--reason", "its memory is replaced"),
            lambda: change("release", name, "6"),
        ),
        Cause(
            "NpuVigilPublicFault",
            {"code": "220001001", "level": "SeparateNPU"},
            "a message of another program in its document",
            lambda: send("occur"),
            lambda: send("recover"),
        ),
    )
