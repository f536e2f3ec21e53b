"""Taints of devices and of the Node, as the real kube-scheduler and controllers act on them.

The levels of the faults are the shipped ones, and so are the options but where a test names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.node.scheduling import SERVER, SchedulingSite
from tests.parts.controlplane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.daemon, pytest.mark.timeout(300)]

SEPARATE, PRE_SEPARATE = "80E18402", "8118043C"
SERVER_SEPARATE, SERVER_PRE_SEPARATE = "2C000031", "00000003"
OURS = "npu-vigil/fault"
OPTIONS = {
    "DEVICE_TAINTS_ENABLED": "true",
    "NODE_TAINTS_ENABLED": "true",
    "NODE_TAINTS_NO_EXECUTE_LEVELS": "SeparateFault",
}


@pytest.fixture(scope="module")
def running_site(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Iterator[SchedulingSite]:
    """Run a cluster whose scheduler and controllers know DeviceTaintRules."""
    plane = ControlPlane(tmp_path_factory.mktemp("gates"))
    with SchedulingSite(plane, built, OPTIONS, "DRADeviceTaintRules") as running:
        yield running


@pytest.fixture
def site(running_site: SchedulingSite) -> Iterator[SchedulingSite]:
    yield running_site
    running_site.clean()


def test_a_pod_is_not_placed_on_a_tainted_device(site: SchedulingSite) -> None:
    site.break_chip(3, PRE_SEPARATE)
    site.until(lambda: site.effect(3) == "NoSchedule", "the device is tainted")
    site.run("wants-3", [3])
    site.until(lambda: bool(site.refusal("wants-3")), "no device is free")
    site.run("wants-3-or-5", [3, 5])
    site.until(lambda: site.is_placed("wants-3-or-5"), "the other device is free")
    assert site.chips_of("wants-3-or-5") == {"npu-5"}
    assert not site.is_placed("wants-3")
    site.run("tolerates", [3], tolerates=True)
    site.until(lambda: site.is_placed("tolerates"), "its claim tolerates the taint")
    assert site.taints() == [], "one chip does not concern the Node"


def test_recovery_of_a_chip_lifts_its_taint(site: SchedulingSite) -> None:
    site.break_chip(2, PRE_SEPARATE)
    site.until(lambda: site.effect(2) == "NoSchedule", "the device is tainted")
    site.run("waits", [2])
    site.until(lambda: bool(site.refusal("waits")), "no device is free")
    site.repair(2, PRE_SEPARATE)
    site.until(lambda: site.is_placed("waits"), "the taint is lifted")
    assert site.chips_of("waits") == {"npu-2"}
    assert site.effect(2) is None


def test_no_execute_deletes_the_pod_of_the_device_alone(site: SchedulingSite) -> None:
    site.run("faulty", [4])
    site.run("healthy", [6])
    site.until(lambda: site.is_placed("faulty") and site.is_placed("healthy"), "both run")
    site.break_chip(4, SEPARATE)
    site.until(lambda: site.is_gone("faulty"), "the pod of the tainted device is deleted")
    assert site.effect(4) == "NoExecute"
    assert site.is_placed("healthy")


def test_a_pod_whose_claim_tolerates_the_taint_stays(site: SchedulingSite) -> None:
    site.run("tolerates", [1], tolerates=True)
    site.until(lambda: site.is_placed("tolerates"), "it runs")
    site.break_chip(1, SEPARATE)
    site.until(lambda: site.effect(1) == "NoExecute", "the device is tainted")
    answer = ("False", "NotStarted")
    site.until(lambda: site.eviction(1) == answer, "the controller has no pod to evict")
    assert site.is_placed("tolerates")


def test_more_pods_than_the_limit_stay_and_new_ones_are_kept_away(site: SchedulingSite) -> None:
    site.run("first", [7])
    site.until(lambda: site.is_placed("first"), "it runs")
    site.share("second", "first")
    site.until(lambda: site.is_placed("second"), "it shares the device")
    site.break_chip(7, SEPARATE)
    # Two of two pods are more than the 5 % that may be evicted.
    site.until(lambda: site.effect(7) == "NoSchedule", "the device takes no new pods")
    site.run("third", [7], tolerates=False)
    site.until(lambda: bool(site.refusal("third")), "no device is free")
    assert site.is_placed("first")
    assert site.is_placed("second")


def test_a_pod_without_claims_is_kept_off_a_tainted_node(site: SchedulingSite) -> None:
    site.run("before")
    site.until(lambda: site.is_placed("before"), "it runs")
    site.break_server(SERVER_PRE_SEPARATE)
    site.until(lambda: site.taints() == [(OURS, "NoSchedule")], "the Node is tainted")
    site.run("waits")
    site.run("tolerates", tolerates=True)
    site.until(lambda: "untolerated taint" in site.refusal("waits"), "the taint is why")
    site.until(lambda: site.is_placed("tolerates"), "it tolerates the taint")
    assert site.is_placed("before")
    site.repair(SERVER, SERVER_PRE_SEPARATE)
    site.until(lambda: site.is_placed("waits"), "the taint is lifted")
    assert site.taints() == []


def test_no_execute_of_the_node_deletes_pods_without_a_toleration(site: SchedulingSite) -> None:
    site.run("evicted")
    site.run("tolerates", tolerates=True)
    site.until(lambda: site.is_placed("evicted") and site.is_placed("tolerates"), "both run")
    site.break_server(SERVER_SEPARATE)
    site.until(lambda: site.is_gone("evicted"), "the pod is deleted")
    assert site.taints() == [(OURS, "NoExecute")]
    assert site.is_placed("tolerates")


def test_a_leader_killed_between_the_two_steps_of_an_eviction_loses_none(
    site: SchedulingSite,
) -> None:
    site.run("evicted", [0])
    site.until(lambda: site.is_placed("evicted"), "it runs")
    # Without an answer the leader waits between its two writes.
    site.controllers.freeze()
    try:
        site.break_chip(0, SEPARATE)
        site.until(lambda: site.effect(0) == "None", "the first write")
        site.aggregator.kill()
    finally:
        site.controllers.thaw()
    site.until(lambda: site.eviction(0) == ("False", "NoEffect"), "the answer comes meanwhile")
    assert site.is_placed("evicted")
    site.aggregator.start()
    site.until(lambda: site.is_gone("evicted"), "the next leader makes the second write")
    assert site.effect(0) == "NoExecute"
    assert site.written("device_taints") == 1


def test_a_fault_during_an_outage_of_the_api_server_is_written_once(site: SchedulingSite) -> None:
    site.run("evicted", [3])
    site.until(lambda: site.is_placed("evicted"), "it runs")
    options = ("device_taints", "node_taints")
    rules, taints = map(site.written, options)
    site.plane.kill_apiserver()
    site.break_chip(3, SEPARATE)
    site.break_server(SERVER_PRE_SEPARATE)
    site.plane.start_apiserver()
    site.until(lambda: site.is_gone("evicted"), "the pod of the tainted device is deleted")
    site.until(lambda: site.taints() == [(OURS, "NoSchedule")], "the Node is tainted")
    assert site.effect(3) == "NoExecute"
    assert [site.written(option) for option in options] == [rules + 2, taints + 1]
