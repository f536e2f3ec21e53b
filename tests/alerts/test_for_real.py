"""Rules on a real Prometheus that scrapes a real agent and aggregator."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.catalogue import shipped
from contract.codes.chip_codes import LINK_DOWN, NETWORK_FAULT_CODES
from contract.codes.levels import ChipLevel
from contract.codes.reference import describe_code
from tests.aggregator.daemon import Daemon
from tests.alerts.files import RULES
from tests.end_to_end.node import Node
from tests.end_to_end.places import Folder
from tests.parts.deadlines import nothing_happens_for, wait_until
from tests.parts.prometheus import start_with_rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.parts.prometheus import Prometheus

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(120)]

CALL = "dcmi_get_device_errorcode_v2"


def code_of(level: ChipLevel) -> str:
    """Return a code that a driver reports, and that has ``level``."""
    tables = shipped()
    return next(
        code
        for code in sorted(tables.chip_levels)
        if tables.chip_levels[code] == level and len(code) == 8 and code not in NETWORK_FAULT_CODES
    )


FAULTS = {
    "NpuVigilChipSeparated": (0, code_of(ChipLevel.SEPARATE_NPU)),
    "NpuVigilChipToRestart": (1, code_of(ChipLevel.RESTART_BUSINESS)),
    "NpuVigilChipPreSeparated": (2, code_of(ChipLevel.PRE_SEPARATE_NPU)),
    "NpuVigilChipSubHealthy": (3, code_of(ChipLevel.SUB_HEALTH_FAULT)),
    "NpuVigilLinkDown": (4, LINK_DOWN),
}
"""Alert to a chip and a code that raise it."""


class Cluster:
    """One node with an agent, an aggregator, and a Prometheus with the rules."""

    def __init__(self, directory: Path, built: Path) -> None:
        self.node = Node(directory / "node", built, Folder(directory / "store"))
        self.node.options = ["--listen", "127.0.0.1:0", "--heartbeat-interval-seconds", "1"]
        # What this machine lacks would be an alert of its own.
        for source in ("BMC", "KERNEL_LOG"):
            self.node.environment[f"VIGIL_{source}_ENABLED"] = "false"
        self.aggregator = Daemon(
            directory / "aggregator", "--store", f"directory:{directory}/store"
        )
        self._directory = directory
        self._prometheus: Prometheus | None = None

    def start(self) -> None:
        """Start all three."""
        self.node.start()
        self.node.healthy()
        self.aggregator.start()
        self._prometheus = start_with_rules(
            self._directory,
            RULES.read_text(),
            self.node.name,
            (self.node.state_dir / "listen").read_text(),
            self.aggregator.url,
        )

    def alerts(self, *states: str) -> dict[str, dict[str, Any]]:
        """Return the alerts in one of ``states``, by name."""
        assert self._prometheus is not None
        answer = self._prometheus.ask("alerts")
        assert answer is not None, "Prometheus must answer, or no alert would mean nothing"
        alerts = answer["alerts"]
        return {alert["labels"]["alertname"]: alert for alert in alerts if alert["state"] in states}

    def fire(self, *names: str) -> dict[str, dict[str, Any]]:
        """Wait until the alerts ``names`` fire, and return all that do."""
        wait_until(
            lambda: self.alerts("firing").keys() >= {*names},
            lambda: f"{names} fire; these do: {sorted(self.alerts('firing'))}",
            30,
            0.2,
        )
        return self.alerts("firing")

    def resolve(self) -> None:
        """Wait until no alert is pending or fires."""
        wait_until(
            lambda: not self.alerts("firing", "pending"),
            lambda: f"all are resolved; these are not: {sorted(self.alerts('firing', 'pending'))}",
            30,
            0.2,
        )

    def close(self) -> None:
        """End all three."""
        if self._prometheus is not None:
            self._prometheus.stop()
        self.aggregator.stop()
        self.node.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("alerts"), built)
    with contextlib.closing(cluster):
        cluster.start()
        yield cluster


def test_faults_raise_their_alerts_and_no_others(cluster: Cluster) -> None:
    cluster.resolve()
    nothing_happens_for(3, because="with a for of 1 s an alert would be pending by then")
    assert cluster.alerts("firing", "pending") == {}
    for chip, code in FAULTS.values():
        cluster.node.emulator.occur(chip, code)
    firing = cluster.fire(*FAULTS)
    assert firing.keys() == FAULTS.keys()
    for name, (chip, code) in FAULTS.items():
        labels = firing[name]["labels"]
        assert (labels["node"], labels["chip"]) == (cluster.node.name, str(chip))
        assert labels["code"] == code
        reference = describe_code(code)
        assert reference is not None
        assert reference.name("en") in firing[name]["annotations"]["summary"]
        assert labels["name_zh"] == reference.name("zh")
    for chip, code in FAULTS.values():
        cluster.node.emulator.recover(chip, code)
    cluster.resolve()


def test_a_call_that_hangs_raises_one_alert(cluster: Cluster) -> None:
    cluster.node.emulator.hang(CALL, 5)
    firing = cluster.fire("NpuVigilDriverCallStuck")
    assert firing.keys() == {"NpuVigilDriverCallStuck"}
    cluster.node.emulator.clear(CALL, 5)
    cluster.resolve()


def test_an_agent_that_is_killed_is_a_lost_node_and_an_aggregator_no_leader(
    cluster: Cluster,
) -> None:
    cluster.node.kill()
    firing = cluster.fire("NpuVigilNodeLost")
    assert firing.keys() == {"NpuVigilNodeLost"}
    assert firing["NpuVigilNodeLost"]["labels"]["node"] == cluster.node.name
    cluster.aggregator.stop()
    assert "NpuVigilNoLeader" in cluster.fire("NpuVigilNoLeader")
