"""Labels and annotations of the Node, by a real agent on a real API server.

Source: docs/spec/device-plugin.md#6.2, 6.3.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.node import Node
from tests.parts.deadlines import nothing_happens_for, patience

if TYPE_CHECKING:
    from pathlib import Path

    from tests.parts.places import Cluster

pytestmark = pytest.mark.apiserver

A2 = "Ascend910"
RECORDED = {
    "a2": {
        "labels": {
            "huawei.com/driver.version": "24.1.rc3",
            "mind-cluster/npu-chip-memory": "64G",
            "servertype": "Ascend910B-20",
        },
        "annotations": {"serverIndex": "-2", "serverType": "", "superPodID": "-2"},
    },
    "a3": {
        "labels": {
            "huawei.com/driver.version": "25.5.0",
            "huawei.com/topotree.superpodid": "0",
            "mind-cluster/npu-chip-memory": "64G",
            "servertype": "Ascend910A3-24",
        },
        "annotations": {"serverIndex": "0", "serverType": "A3", "superPodID": "0"},
    },
}
"""``healthy-a2`` and ``healthy-a3``, but for ``baseDeviceInfos``."""
UNRECORDED = {
    "a2": {"accelerator": "huawei-Ascend910", "node.kubernetes.io/npu.chip.name": "910B3"},
    "a3": {"accelerator": "huawei-Ascend910", "node.kubernetes.io/npu.chip.name": "Ascend910"},
}
"""The recorded Nodes had these before; every one gets them (device-plugin#6.2)."""


class Watched:
    """The Node object of one node."""

    def __init__(self, cluster: Cluster, name: str, labels: dict[str, str]) -> None:
        self.plane = cluster.plane
        self.path = f"/api/v1/nodes/{name}"
        body = {"metadata": {"name": name, "labels": labels, "annotations": {"other": "kept"}}}
        self.plane.request("POST", "/api/v1/nodes", body)

    def read(self) -> dict[str, dict[str, str]]:
        metadata = self.plane.request("GET", self.path)["metadata"]
        return {key: metadata.get(key, {}) for key in ("labels", "annotations")}

    def label(self, key: str) -> str | None:
        return self.read()["labels"].get(key)

    def annotation(self, key: str) -> str | None:
        return self.read()["annotations"].get(key)

    def edit(self, **metadata: dict[str, str | None]) -> None:
        """Change labels or annotations as ``kubectl label`` and ``kubectl annotate`` do."""
        self.plane.request("PATCH", self.path, {"metadata": metadata})

    @property
    def version(self) -> str:
        return str(self.plane.request("GET", self.path)["metadata"]["resourceVersion"])


def base_device_infos(profile: str) -> str:
    """Return the annotation with the chips' addresses as recorded.

    All dies of a super-pod's server have their own ids.
    """
    devices = {}
    for chip in range(8 if profile == "a2" else 16):
        sdid = 0 if profile == "a2" else (chip // 2 * 4 + chip % 2) << 16 | chip
        devices[f"{A2}-{chip}"] = {"IP": f"192.168.100.{10 + chip}", "SuperDeviceID": sdid}
    return json.dumps(dict(sorted(devices.items())), separators=(",", ":"))


@pytest.mark.parametrize("profile", ["a2", "a3"])
def test_a_healthy_node_reports_what_is_recorded(
    tmp_path: Path, built: Path, cluster: Cluster, profile: str
) -> None:
    watched = Watched(cluster, "node-1", {"kept": "too"})
    node = Node(tmp_path, built, cluster, profile=profile)
    try:
        node.start()
        node.wait(lambda: watched.label("servertype") is not None, "the labels are there")
        nothing_happens_for(0.5, because="all that is set on the Node is set together")
        version = watched.version
        got = watched.read()
        nothing_happens_for(
            1.5, because="what is refused or lost is tried again after _AGAIN_SECONDS, 1"
        )
    finally:
        node.close()
    wanted: dict[str, Any] = RECORDED[profile]
    assert got["labels"] == {"kept": "too"} | wanted["labels"] | UNRECORDED[profile]
    assert got["annotations"] == {
        "other": "kept",
        "baseDeviceInfos": base_device_infos(profile),
        **wanted["annotations"],
    }
    assert watched.version == version, "written once"


@pytest.fixture
def watched(cluster_node: Node, cluster: Cluster) -> Watched:
    """Start the agent and wait for its labels; return the Node object that it writes to."""
    watched = Watched(cluster, cluster_node.name, {})
    cluster_node.start()
    cluster_node.wait(lambda: watched.label("servertype") is not None, "the labels are there")
    return watched


def test_label_changed_by_another_program_is_repaired_within_a_second(
    cluster_node: Node, watched: Watched
) -> None:
    node = cluster_node
    before = watched.read()
    watched.edit(labels={"accelerator": "mine", "huawei.com/driver.version": None})
    assert node.wait(lambda: watched.read() == before, "both labels are repaired", 5) < patience(1)
    watched.edit(annotations={"baseDeviceInfos": "{}", "superPodID": None})
    assert node.wait(
        lambda: watched.read() == before, "both annotations are repaired", 5
    ) < patience(1)
    watched.edit(labels={"servertype": None})
    assert node.wait(lambda: watched.read() == before, "the type is repaired", 5) < patience(1)
    # The API server shows a write before its writer has the answer.
    node.wait(
        lambda: "npu_vigil_node_object_writes_total 4.0" in node.ask("/metrics")[1],
        "all are counted",
    )
    assert "npu_vigil_node_object_foreign_writes_total 5.0" in node.ask("/metrics")[1]


def test_a_type_that_is_there_is_left_alone(cluster_node: Node, cluster: Cluster) -> None:
    watched = Watched(cluster, cluster_node.name, {"servertype": "soc"})
    cluster_node.start()
    cluster_node.wait(lambda: watched.label("accelerator") is not None, "the labels are there")
    nothing_happens_for(0.5, because="all that is set on the Node is set together")
    assert watched.label("servertype") == "soc"


def test_a_key_that_another_program_goes_on_writing_is_a_conflict(
    cluster_node: Node, watched: Watched
) -> None:
    node = cluster_node

    def is_ours() -> bool:
        return watched.label("accelerator") == "huawei-Ascend910"

    for turn in range(4):
        watched.edit(labels={"accelerator": f"turn-{turn}"})
        if turn < 3:
            node.wait(is_ours, f"repaired {turn}", 5)
    conflict = "conflict: another program writes label accelerator of the node"
    node.wait(lambda: conflict in node.logged(), "the conflict")
    assert 'npu_vigil_node_object_conflict{key="accelerator"} 1.0' in node.ask("/metrics")[1]
    node.waits_for_text(conflict)
    assert node.logged().count(conflict) == 1
    node.wait(is_ours, "it is tried again", 10)
    watched.edit(annotations={"serverIndex": "7"})
    node.wait(lambda: watched.annotation("serverIndex") == "-2", "other keys are repaired", 5)


def test_the_kubelets_traffic_costs_no_write(cluster_node: Node, watched: Watched) -> None:
    writes = "npu_vigil_node_object_writes_total 1.0"
    cluster_node.wait(lambda: writes in cluster_node.ask("/metrics")[1], "the write is counted", 5)
    for turn in range(20):
        status = {"status": {"phase": f"turn-{turn}"}}
        watched.plane.request("PATCH", f"{watched.path}/status", status)
    watched.edit(annotations={"somebody/else": "writes"})
    # Longer than an exposition is good.
    nothing_happens_for(1.5, because="an exposition is good for a second, and so is _AGAIN_SECONDS")
    assert writes in cluster_node.ask("/metrics")[1]


def test_a_node_that_comes_later_or_again_gets_its_labels(
    cluster_node: Node, cluster: Cluster
) -> None:
    node = cluster_node
    node.start()
    node.healthy()
    watched = Watched(cluster, node.name, {})
    node.wait(lambda: watched.label("servertype") is not None, "it came", 5)
    watched.plane.request("DELETE", watched.path)
    again = Watched(cluster, node.name, {})
    node.wait(lambda: again.label("servertype") is not None, "it came again", 5)


def test_labels_of_older_releases_are_removed(cluster_node: Node, cluster: Cluster) -> None:
    watched = Watched(cluster, cluster_node.name, {"huawei.com/Ascend910-Recover": "x"})
    watched.edit(annotations={"huawei.com/Ascend910-Unhealthy": "Ascend910-1"})
    cluster_node.start()
    cluster_node.wait(lambda: watched.label("servertype") is not None, "the labels are there")
    got = watched.read()
    assert "huawei.com/Ascend910-Recover" not in got["labels"]
    assert "huawei.com/Ascend910-Unhealthy" not in got["annotations"]


@pytest.mark.parametrize("options", [["--documents", "node-info"], []])
def test_an_agent_without_the_chips_or_with_labels_off_leaves_the_node_alone(
    cluster_node: Node, cluster: Cluster, options: list[str]
) -> None:
    node = cluster_node
    watched = Watched(cluster, node.name, {})
    node.options += options
    if not options:
        node.environment["VIGIL_NODE_LABELS_ENABLED"] = "false"
    before = watched.version
    node.start()
    node.up()
    nothing_happens_for(2, because="it would be set with the first inventory, or again after 1 s")
    assert watched.version == before
