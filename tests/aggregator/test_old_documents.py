"""Node-info of old releases in cluster-info: their faults count, their heartbeats are no change."""

from __future__ import annotations

from contract.documents.node_info import (
    FaultDevice,
    NodeBeat,
    encode_beating_node_info,
    encode_node_beat,
)
from contract.names import CLUSTER_NODE_NAME
from stores.base import Deleted, Document
from tests.aggregator.nodes import instant, node_report
from tests.aggregator.pipelines import WrittenPipeline

CPU = FaultDevice("CPU", 1, ["00000011"], "SeparateFault")


def of(node: str, data: dict[str, str]) -> Document:
    modern = node_report(node, [], "Healthy")
    return Document(modern.namespace, modern.name, data, modern.labels)


def v6rc(at: int, faults: list[FaultDevice], status: str) -> Document:
    return of("n1", encode_beating_node_info(faults, status, NodeBeat(at, 5)))


def v5(at: int) -> Document:
    return of("n1", encode_node_beat(NodeBeat(at, 5)))


def test_parts_reported_by_a_node_of_generation_c_count() -> None:
    bench = WrittenPipeline(v6rc(1_710_907_679, [CPU], "UnHealthy"))
    (entry,) = bench.servers().values()
    assert entry["NodeStatus"] == "UnHealthy"
    assert entry["FaultDevList"][0]["FaultCode"] == ["00000011"]
    assert entry["UpdateTime"] == 1_710_907_679_000
    for beat in range(1, 5):
        changed = bench.put(v6rc(1_710_907_679 + 5 * beat, [CPU], "UnHealthy"))
        assert changed == frozenset(), "a heartbeat alone is written nowhere"
    assert bench.put(v6rc(1_710_907_710, [], "Healthy")) == {CLUSTER_NODE_NAME}
    assert bench.statuses() == {"n1": "Healthy"}


def test_a_document_of_generation_b_proves_nothing_of_parts() -> None:
    bench = WrittenPipeline(v5(1_703_836_707))
    assert bench.servers() == {}
    assert bench.pipeline.sources[0].node.rejected == {}
    bench.lose("n1")
    assert bench.statuses() == {"n1": "UnHealthy"}
    bench.lose()
    assert bench.servers() == {}


def test_it_neither_ends_nor_hides_a_fault_that_was_reported_before() -> None:
    bench = WrittenPipeline(node_report("n1", [CPU], "UnHealthy"))
    assert bench.put(v5(1)) == frozenset()
    bench.lose("n1")
    assert bench.servers()["n1"]["FaultDevList"] is not None
    bench.lose()
    assert bench.statuses() == {"n1": "UnHealthy"}
    # The operator's way out, also where its NodeD writes it again before anybody looked.
    gone = v5(1)
    bench.pipeline.observe_event(bench.nodes, Deleted(gone.namespace, gone.name), instant(0))
    bench.put(v5(2))
    assert bench.servers() == {}


def test_an_upgrade_goes_through_all_generations_and_back() -> None:
    """ClusterD loses the first document of another generation: it checks the old one first."""
    bench = WrittenPipeline(v5(1))
    assert bench.put(v6rc(6, [CPU], "UnHealthy")) == {CLUSTER_NODE_NAME}
    broken = of("n1", encode_beating_node_info([], "Healthy", NodeBeat(7, 5)))
    broken.data["NodeInfo"] = broken.data["NodeInfo"].replace("Healthy", "UnHealth")
    assert bench.put(broken) == frozenset()
    assert bench.statuses() == {"n1": "UnHealthy"}
    assert bench.put(node_report("n1", [], "Healthy")) == {CLUSTER_NODE_NAME}
    assert bench.statuses() == {"n1": "Healthy"}
    assert bench.put(v6rc(11, [CPU], "UnHealthy")) == {CLUSTER_NODE_NAME}
    assert bench.put(v5(16)) == frozenset()
    assert bench.statuses() == {"n1": "UnHealthy"}
