"""Rules on a real Prometheus that scrapes a real agent and aggregator."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from contract.codes.reference import describe_code
from tests.alerts.cluster import CHIP_ALERTS, Cluster
from tests.parts.deadlines import nothing_happens_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = [pytest.mark.daemon, pytest.mark.timeout(120)]

FACTOR = 60
"""Divides the durations of the rules."""
CALL = "dcmi_get_device_errorcode_v2"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("alerts"), built)
    with contextlib.closing(cluster):
        cluster.start(FACTOR)
        yield cluster


def test_faults_raise_their_alerts_and_no_others(cluster: Cluster) -> None:
    cluster.watcher.resolve()
    nothing_happens_for(3, because="with a for of at most 2 s an alert would be pending by then")
    assert cluster.watcher.alerts("firing", "pending") == {}
    for chip, code in CHIP_ALERTS.values():
        cluster.node.emulator.occur(chip, code)
    firing = cluster.watcher.fire(*CHIP_ALERTS)
    assert firing.keys() == CHIP_ALERTS.keys()
    for name, (chip, code) in CHIP_ALERTS.items():
        labels = firing[name]["labels"]
        assert (labels["node"], labels["chip"]) == (cluster.node.name, str(chip))
        assert labels["code"] == code
        reference = describe_code(code)
        assert reference is not None
        assert reference.name("en") in firing[name]["annotations"]["summary"]
        assert labels["name_zh"] == reference.name("zh")
    for chip, code in CHIP_ALERTS.values():
        cluster.node.emulator.recover(chip, code)
    cluster.watcher.resolve()


def test_a_call_that_hangs_raises_one_alert(cluster: Cluster) -> None:
    cluster.node.emulator.hang(CALL, 5)
    firing = cluster.watcher.fire("NpuVigilDriverCallStuck")
    assert firing.keys() == {"NpuVigilDriverCallStuck"}
    cluster.node.emulator.clear(CALL, 5)
    cluster.watcher.resolve()


def test_an_agent_that_is_killed_is_a_lost_node_and_an_aggregator_no_leader(
    cluster: Cluster,
) -> None:
    cluster.node.kill()
    firing = cluster.watcher.fire("NpuVigilNodeLost")
    assert firing.keys() == {"NpuVigilNodeLost"}
    assert firing["NpuVigilNodeLost"]["labels"]["node"] == cluster.node.name
    cluster.aggregator.stop()
    assert "NpuVigilNoLeader" in cluster.watcher.fire("NpuVigilNoLeader")
    # The other tests of this cluster may come behind this one.
    cluster.node.start()
    cluster.aggregator.start()
    cluster.watcher.resolve()
