"""Chips that pods use, on a real API server: the free list, pre-separation, outages, restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.parts import pods
from tests.parts.exposition import ON_KUBERNETES, listed, scraped

if TYPE_CHECKING:
    from tests.end_to_end.node import Node
    from tests.parts.places import Cluster

PRE_SEPARATE = "8118043C"
VOLCANO = {"huawei.com/Ascend910": "Ascend910-0"}


def is_blind(node: Node) -> bool:
    return any(one["source"] == "pods" for one in node.status()["blind"])


def name(*chips: int) -> set[str]:
    return {f"Ascend910-{chip}" for chip in chips}


@pytest.mark.apiserver
def test_ex_32_pre_separation_spares_a_chip_in_use(cluster: Cluster, cluster_node: Node) -> None:
    node = cluster_node
    pods.make(cluster.plane, "train", node.name, "Ascend910-0", annotations=VOLCANO)
    pods.make(cluster.plane, "elsewhere", "node-2", "Ascend910-5")
    node.start()
    node.until(lambda now: len(now.free) == 7, "all chips but the one in use", 20)
    for chip in (0, 1):
        node.emulator.occur(chip, PRE_SEPARATE)
    node.until(lambda now: now.codes(0) == now.codes(1) == {PRE_SEPARATE}, "both are listed")
    node.until(lambda now: now.unhealthy == name(1), "the idle one is unhealthy")
    began = node.status()["usage"]
    assert began == {"pods": 1, "used": ["Ascend910-0"], "assigned": ["Ascend910-0"]}
    pods.end(cluster.plane, "train", "Succeeded")
    node.until(lambda now: now.unhealthy == name(0, 1), "the end of the pod")
    unused = {"node": "node-1", "used": [], "assigned": []}
    # A journal that is slow never delays a document.
    node.wait(lambda: node.journal("usage")[-1] == unused, "it is journaled", 5)
    pods.make(cluster.plane, "nonsense", node.name, "Ascend910-99,npu-1,,Ascend910-")
    node.wait(lambda: node.status()["usage"]["pods"] == 1, "a pod with chips that nobody has")
    metrics = node.ask("/metrics")[1]
    assert "npu_vigil_chips_in_use 0.0" in metrics
    one = "npu_vigil_chips_in_use"
    assert scraped(metrics)[one] == listed(ON_KUBERNETES)[one]


@pytest.mark.apiserver
def test_pods_on_faulty_chips_are_shown_where_that_is_asked_for(
    cluster: Cluster, cluster_node: Node
) -> None:
    node = cluster_node
    metric = "npu_vigil_fault_pods"
    pods.make(cluster.plane, "train", node.name, "Ascend910-0")
    pods.make(cluster.plane, "healthy", node.name, "Ascend910-5")
    node.emulator.occur(0, PRE_SEPARATE)
    node.start()
    node.until(lambda now: now.codes(0) == {PRE_SEPARATE}, "the fault is shown", 20)
    node.wait(lambda: node.status()["usage"]["pods"] == 2, "both pods are known")
    assert metric not in node.ask("/metrics")[1]
    node.kill()
    node.environment["VIGIL_METRICS_FAULT_PODS"] = "true"
    node.start()
    node.up()
    series = f'{metric}{{chip="0",namespace="default",pod="train"}} 1.0'
    node.wait(lambda: series in node.ask("/metrics")[1], "the pod is shown", 20)
    shown = node.ask("/metrics")[1]
    assert shown.count(f"{metric}{{") == 1, "the other chip has no fault"
    assert scraped(shown)[metric] == listed(ON_KUBERNETES)[metric]
    node.emulator.recover(0, PRE_SEPARATE)
    node.wait(lambda: f"{metric}{{" not in node.ask("/metrics")[1], "the fault is over", 10)


@pytest.mark.apiserver
def test_k38_either_annotation_marks_a_chip_as_in_use(cluster: Cluster, cluster_node: Node) -> None:
    node = cluster_node
    node.start()
    node.healthy()
    for chip in (0, 1, 2):
        node.emulator.occur(chip, PRE_SEPARATE)
    node.until(lambda now: now.unhealthy == name(0, 1, 2), "all are idle")
    pods.make(cluster.plane, "without-volcano", node.name, "Ascend910-1")
    node.until(lambda now: now.unhealthy == name(0, 2), "one is in use")
    pods.make(cluster.plane, "soon", node.name, annotations=VOLCANO)
    node.until(lambda now: now.unhealthy == name(2), "one is about to be")
    shown = node.shown()
    assert shown is not None
    assert shown.free == name(3, 4, 5, 6, 7), "nothing that is to be separated is offered"


@pytest.mark.apiserver
def test_chips_in_use_are_kept_over_an_outage_and_a_restart(
    cluster: Cluster, cluster_node: Node
) -> None:
    node, plane = cluster_node, cluster.plane
    pods.make(plane, "train", node.name, "Ascend910-0")
    node.start()
    node.until(lambda now: len(now.free) == 7, "one is in use", 20)
    plane.stop_apiserver()
    node.wait(lambda: is_blind(node), "it is blind")
    assert 'npu_vigil_blind{chip="",source="pods"} 1.0' in node.ask("/metrics")[1]
    node.kill()
    node.start()
    node.up()
    node.wait(lambda: node.status()["usage"]["used"] == ["Ascend910-0"], "it remembers")
    node.wait(
        lambda: any(one["source"] == "pods" for one in node.status()["blind"]), "and is blind"
    )
    plane.start_apiserver()
    pods.delete(plane, "train")
    node.healthy()
    assert not is_blind(node)
