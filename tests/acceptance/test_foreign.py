"""Other people write the documents too."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.acceptance.daemons import wait
from tests.acceptance.places import CLUSTER, NODES
from tests.acceptance.reading import CLUSTER_PREFIX, DEVICE_PREFIX, signed
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.conftest import MakeAgent
    from tests.acceptance.daemons import Daemon
    from tests.acceptance.places import Cluster, Folder, Place

FAULT = "80E01801"
HEALTHY = {
    "huawei.com/Ascend910": "Ascend910-0,Ascend910-1",
    "huawei.com/Ascend910-Fault": "[]",
    "huawei.com/Ascend910-NetworkUnhealthy": "",
    "huawei.com/Ascend910-Recovering": "",
    "huawei.com/Ascend910-Unhealthy": "",
}


def test_two_agents_of_one_name(folder: Folder, make_agent: MakeAgent) -> None:
    one, other = make_agent(folder), make_agent(folder, "other")
    one.start()
    one.up()
    other.name = one.name
    other.state_dir = one.state_dir
    other.start()
    assert other.ended() == 2
    assert "in use by another agent" in other.logged()
    assert one.ask("/readyz")[0] == 200


def test_the_aggregator_reads_only_what_is_good(
    cluster: Cluster, make_agent: MakeAgent, make_aggregator: Callable[[Place], Daemon]
) -> None:
    agent, aggregator = make_agent(cluster), make_aggregator(cluster)
    aggregator.start()
    agent.start()
    agent.hardware.list_code(4, FAULT)
    wait(lambda: "node-1" in cluster.cluster_info(), "published", 15)
    now = int(time.time())
    good = signed(HEALTHY, now)
    cluster.write(DEVICE_PREFIX + "n-good", {"DeviceInfoCfg": good})
    bad = {
        "n-check": good.replace("Ascend910-0", "Ascend910-7", 1),
        "n-text": "no json",
        "n-empty": "",
        "n-null": "null",
        "n-list": "[]",
        "n-float": good.replace(f'"UpdateTime":{now}', f'"UpdateTime":{now}.5'),
        "n-deep": "[" * 20_000,
        "n-huge": signed(HEALTHY, 2**70),
    }
    for node, text in bad.items():
        cluster.write(DEVICE_PREFIX + node, {"DeviceInfoCfg": text})
    cluster.write(DEVICE_PREFIX + "n-other-key", {"Something": "else"})
    cluster.write("not-ours", {"DeviceInfoCfg": good})
    wait(lambda: set(cluster.cluster_info()) == {"node-1", "n-good"}, "only the good ones")
    for text in bad.values():
        cluster.write(DEVICE_PREFIX + "n-good", {"DeviceInfoCfg": text})
    agent.hardware.occur(5, FAULT)
    wait(lambda: cluster.cluster_info()["node-1"].codes(5) == {FAULT}, "goes on")
    assert cluster.cluster_info()["n-good"].free == {"Ascend910-0", "Ascend910-1"}
    nodes = {node["node"]: node for node in aggregator.ask("/api/v1/nodes")[1]["nodes"]}
    assert set(nodes) >= {"node-1", "n-good", "n-check", "n-text"}
    faults = aggregator.ask("/api/v1/faults")[1]["faults"]
    assert {(fault["node"], fault["code"]) for fault in faults} == {("node-1", FAULT)}
    assert aggregator.ask("/healthz")[0] == 200


def test_cluster_info_is_kept_and_repaired(
    cluster: Cluster, make_agent: MakeAgent, make_aggregator: Callable[[Place], Daemon]
) -> None:
    agent, aggregator = make_agent(cluster), make_aggregator(cluster)
    aggregator.start()
    agent.hardware.list_code(4, FAULT)
    agent.start()
    wait(lambda: "node-1" in cluster.cluster_info(), "published", 15)
    wait(lambda: bool(cluster.cluster_info()["node-1"].codes(4)), "with its fault")
    name = CLUSTER_PREFIX + "0"
    before = cluster.read(name)
    aggregator.kill()
    aggregator.start()
    wait(lambda: aggregator.ask("/readyz")[0] == 200, "ready again")
    assert cluster.read(name) == before, "a restart changes nothing"
    cluster.delete(name)
    assert wait(lambda: cluster.read(name) == before, "a deletion is repaired") < patience(2)
    path = f"/api/v1/namespaces/{CLUSTER}/configmaps/{name}"
    cluster.plane.request("PATCH", path, {"data": {name: "{}"}})
    # Within 2 s of its start an edit may be another leader's last write.
    assert wait(lambda: cluster.read(name) == before, "an edit is repaired") < patience(3)
    cluster.plane.request("PATCH", path, {"data": {name: "garbage"}})
    aggregator.kill()
    cluster.plane.request("PATCH", path, {"data": {name: "garbage"}})
    aggregator.start()
    wait(lambda: cluster.read(name) == before, "garbage at start is repaired")


def test_a_folder_with_foreign_files(
    folder: Folder, make_agent: MakeAgent, make_aggregator: Callable[[Place], Daemon]
) -> None:
    aggregator = make_aggregator(folder)
    folder.write_text(DEVICE_PREFIX + "n-text", "no json")
    folder.write_text(DEVICE_PREFIX + "n-shape", '{"labels": 7}')
    folder.write_text(DEVICE_PREFIX + "n-empty", "")
    folder.write_text("other", '{"labels": {}, "data": {}}')
    (folder.root / NODES / f"{DEVICE_PREFIX}n-folder.json").mkdir()
    (folder.root / NODES / "stray.txt").write_text("stray")
    folder.write(DEVICE_PREFIX + "n-good", {"DeviceInfoCfg": signed(HEALTHY, 1_700_000_000)})
    aggregator.start()
    agent = make_agent(folder)
    agent.start()
    agent.up()
    wait(lambda: set(folder.cluster_info()) == {"node-1", "n-good"}, "the good ones")
    agent.hardware.occur(4, FAULT)
    wait(lambda: folder.cluster_info()["node-1"].codes(4) == {FAULT}, "goes on")
    status, seconds = aggregator.stop()
    assert (status, seconds < patience(5)) == (0, True)
