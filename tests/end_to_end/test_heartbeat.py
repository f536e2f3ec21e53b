"""The heartbeat of a real agent: when it beats, when it does not, and beside another program."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from dcmi_shim.emulator.bmc import BmcAlarm
from service.watchdog import STANDSTILL_SECONDS
from tests.parts.controlplane import LEASES
from tests.parts.deadlines import let_time_pass, nothing_happens_for, patience

if TYPE_CHECKING:
    from pathlib import Path

    from tests.end_to_end.node import Node
    from tests.parts.places import Cluster

FAULT = "80E01801"


def lease(cluster: Cluster) -> Any:
    status, found = cluster.plane.ask("GET", f"{LEASES}/npu-vigil-node-1")
    return found["spec"] if status == 200 else None


def test_it_beats_before_the_driver_answers(cluster_node: Node, cluster: Cluster) -> None:
    node = cluster_node
    node.options += ["--heartbeat-interval-seconds", "1"]
    node.emulator.hang("dcmi_get_card_list")
    node.start()
    node.wait(lambda: lease(cluster) is not None, "the first beat")
    first = lease(cluster)
    assert first["holderIdentity"] == node.status()["heartbeat"]["holder"]
    assert first["leaseDurationSeconds"] == 3
    node.wait(lambda: lease(cluster)["renewTime"] != first["renewTime"], "the next one", 4.0)
    assert lease(cluster)["acquireTime"] == first["acquireTime"]
    assert node.shown() is None
    metrics = node.ask("/metrics")[1]
    assert "npu_vigil_heartbeat_withheld 0.0" in metrics
    assert "npu_vigil_heartbeat_conflict 0.0" in metrics


def test_a_stop_may_take_a_while_and_a_kill_may_not(cluster_node: Node, cluster: Cluster) -> None:
    node = cluster_node
    node.options += ["--heartbeat-interval-seconds", "1"]
    node.environment["VIGIL_HEARTBEAT_ABSENCE_SECONDS"] = "300"
    node.start()
    node.wait(lambda: lease(cluster) is not None, "the first beat")
    node.kill()
    assert lease(cluster)["leaseDurationSeconds"] == 3
    node.start()
    # Its documents are those of the killed one: only its own page shows that it beats.
    node.up()
    node.wait(lambda: node.status()["heartbeat"]["beats"], "the next agent beats")
    status, seconds = node.stop()
    assert (status, lease(cluster)["leaseDurationSeconds"]) == (0, 300)
    assert seconds < patience(3)
    node.start()
    node.wait(lambda: lease(cluster)["leaseDurationSeconds"] == 3, "it beats as before")


def test_it_does_not_beat_while_a_collector_hangs(folder_node: Node, tmp_path: Path) -> None:
    node = folder_node
    node.options += ["--heartbeat-interval-seconds", "1"]
    hangs = tmp_path / "hangs"
    node.environment["HANGS_WHILE_THERE_IS"] = str(hangs)
    node.start((sys.executable, "-m", "tests.end_to_end.hanging_agent"))
    node.healthy()

    def heartbeat() -> Any:
        return node.status()["heartbeat"]

    node.wait(lambda: heartbeat()["beats"] > 2, "it beats")
    hangs.touch()
    node.wait(lambda: heartbeat()["withheld"] == "no progress: hangs", "it stops", 5.0)
    beats = heartbeat()["beats"]
    node.emulator.occur(3, FAULT)
    node.until(lambda now: now.codes(3) == {FAULT}, "what is known is published all the same")
    nothing_happens_for(2.5, because="two intervals of one second pass")
    assert heartbeat()["beats"] == beats
    assert node.ask("/healthz")[0] == 503
    assert "npu_vigil_heartbeat_withheld 1.0" in node.ask("/metrics")[1]
    node.waits_for_text("no heartbeat: no progress: hangs")
    assert node.logged().count("no heartbeat: no progress: hangs") == 1
    hangs.unlink()
    node.wait(lambda: heartbeat()["beats"] > beats, "it beats again", 4.0)
    assert node.ask("/healthz")[0] == 200


def test_an_api_server_that_is_away_only_makes_beats_fail(
    cluster_node: Node, cluster: Cluster
) -> None:
    node = cluster_node
    node.options += ["--heartbeat-interval-seconds", "1"]
    node.start()
    node.healthy()
    cluster.plane.kill_apiserver()
    node.wait(lambda: node.status()["heartbeat"]["failures"] > 1, "beats fail")
    assert node.ask("/healthz")[0] == 200
    heartbeat = node.status()["heartbeat"]
    assert heartbeat["withheld"] is None
    assert heartbeat["standing"] == "ours"
    cluster.plane.start_apiserver()
    node.wait(lambda: node.status()["heartbeat"]["trouble"] is None, "it beats again", 5.0)
    node.waits_for_text("heartbeats work again")
    assert node.logged().count("heartbeats work again") == 1


def put(cluster: Cluster, node: Node, manager: str) -> None:
    body = {
        "metadata": {"name": node.document, "labels": {"mx-consumer-cim": "true"}},
        "data": {"DeviceInfoCfg": "{}"},
    }
    path = f"/api/v1/namespaces/kube-system/configmaps?fieldManager={manager}"
    cluster.plane.request("POST", path, body)


@pytest.mark.parametrize("manager", ["device-plugin", "somebody"])
def test_document_of_another_program_is_left_to_it(
    cluster_node: Node, cluster: Cluster, manager: str
) -> None:
    """Heartbeat and node-info go on; with the document gone it is written at once."""
    node = cluster_node
    node.give_bmc(node.state_dir.parent)
    node.emulator.bmc.occur(BmcAlarm("2C000031", "System"))
    put(cluster, node, manager)
    node.start()
    node.wait(lambda: lease(cluster) is not None, "it beats")
    node.wait(lambda: node.node_info() is not None, "node-info is published")
    node.wait(lambda: "is left to" in str(node.ask("/readyz")[1]), "device-info is left to it")
    status, answer = node.ask("/readyz")
    assert status == 503
    reason = next(text for text in answer["reasons"] if "is left to" in text)
    assert f"kube-system/{node.document} is left to '{manager}'" in reason
    assert "take device-info out of `documents`" in reason
    node.waits_for_text("is left to")
    assert node.logged().count("is left to") == 1
    labels = f'document="device-info",store="kubernetes:",writer="{manager}"'
    assert f"npu_vigil_foreign_writer{{{labels}}} 1.0" in node.ask("/metrics")[1]
    data = cluster.read(node.document)
    assert data == {"DeviceInfoCfg": "{}"}, "nothing was written"
    cluster.delete(node.document)
    node.healthy()
    node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready")


def test_real_plugin_that_starts_is_given_the_document(
    cluster_node: Node, cluster: Cluster
) -> None:
    node = cluster_node
    node.start()
    node.healthy()
    path = f"/api/v1/namespaces/kube-system/configmaps/{node.document}"
    written = {"data": {"DeviceInfoCfg": "{}"}}
    cluster.plane.request("PATCH", f"{path}?fieldManager=device-plugin", written)
    node.wait(lambda: "is left to" in str(node.ask("/readyz")[1]), "it is left to the plugin")
    node.emulator.occur(1, FAULT)
    node.wait(lambda: len(node.status()["faults"]) == 1, "the fault is known")
    data = cluster.read(node.document)
    assert data is not None
    assert data["DeviceInfoCfg"] == "{}", "the plugin's document was written"


@pytest.mark.parametrize("manager", ["kubectl-edit", "npu-vigil"])
def test_it_takes_over_what_people_and_it_itself_wrote(
    cluster_node: Node, cluster: Cluster, manager: str
) -> None:
    put(cluster, cluster_node, manager)
    cluster_node.start()
    cluster_node.healthy()


def test_it_beats_at_once_after_the_whole_process_stood_still(
    folder_node: Node, tmp_path: Path
) -> None:
    node = folder_node
    # The next beat would be due in a minute.
    node.options += ["--heartbeat-interval-seconds", "60"]
    node.environment["HANGS_WHILE_THERE_IS"] = str(tmp_path / "nothing")
    node.start((sys.executable, "-m", "tests.end_to_end.hanging_agent"))
    node.healthy()
    node.wait(lambda: node.status()["heartbeat"]["beats"] > 0, "the first beat")
    # The second beat has a random time in the first interval.
    beats = node.status()["heartbeat"]["beats"]
    node.process.signal(signal.SIGSTOP)
    let_time_pass(STANDSTILL_SECONDS + 1)
    node.process.signal(signal.SIGCONT)
    node.wait(lambda: node.status()["heartbeat"]["beats"] > beats, "it beats at once", 5)
    node.waits_for_text("the whole process stood still")
    assert "it does not beat" not in node.logged()
