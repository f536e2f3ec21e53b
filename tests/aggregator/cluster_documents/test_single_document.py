"""The one document that holds all nodes, and what it leaves out when it is too small."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from aggregator.cluster_documents.single_document import SingleDocument
from contract.documents.cluster_info import VALUE_LIMIT, missed, verify_node_value
from contract.documents.node_info import FaultDevice, NodeRecord, render_node_entry
from contract.names import CLUSTER_NODE_NAME, node_info_name

if TYPE_CHECKING:
    from aggregator.cluster_documents.shards import Value

FAN = FaultDevice("Fan", 1, ["28000009"], "NotHandleFault")


def document_of(*records: tuple[str, NodeRecord]) -> SingleDocument:
    made = SingleDocument(node_info_name, missed)
    for node, record in records:
        made.put(node, render_node_entry(node, record))
    return made


def nodes_in(value: Value) -> set[str]:
    entries = json.loads(value.text) if value.text else {}
    return {key.removeprefix("mindx-dl-nodeinfo-") for key in entries}


def many(
    prefix: str, count: int, status: str, *faults: FaultDevice
) -> list[tuple[str, NodeRecord]]:
    return [(f"{prefix}-{number:05}", NodeRecord(faults, status, 0)) for number in range(count)]


def test_all_nodes_as_long_as_they_fit() -> None:
    value = document_of(*many("good", 5000, "Healthy"), *many("bad", 10, "UnHealthy")).value(0)
    assert (value.nodes, value.left_out) == (5010, 0)
    assert len(value.text.encode()) <= VALUE_LIMIT
    verify_node_value(value.text, CLUSTER_NODE_NAME, value.nodes)


@pytest.mark.slow
def test_b7_healthy_nodes_without_faults_are_left_out_first() -> None:
    value = document_of(
        *many("good", 10_000, "Healthy"),
        *many("fan", 100, "Healthy", FAN),
        *many("bad", 10, "UnHealthy"),
    ).value(0)
    assert (value.nodes, value.left_out) == (110, 10_000)
    assert not any(node.startswith("good") for node in nodes_in(value))
    verify_node_value(value.text, CLUSTER_NODE_NAME, value.nodes)


@pytest.mark.slow
def test_b7_then_healthy_nodes_with_faults() -> None:
    value = document_of(
        *many("good", 10, "Healthy"),
        *many("fan", 9000, "Healthy", FAN),
        *many("bad", 10, "UnHealthy", FAN),
    ).value(0)
    assert (value.nodes, value.left_out) == (10, 9010)


@pytest.mark.slow
def test_b7_in_the_end_as_many_as_fit() -> None:
    # Without that no word about any node would reach anybody.
    made = document_of(*many("bad", 10_000, "UnHealthy", FAN), *many("good", 100, "Healthy"))
    value = made.value(0)
    assert value.nodes > 3000
    assert value.nodes + value.left_out == 10_100
    assert sorted(nodes_in(value)) == [f"bad-{number:05}" for number in range(value.nodes)]
    verify_node_value(value.text, CLUSTER_NODE_NAME, value.nodes)
    made.put("bad-00000", render_node_entry("bad-00000", NodeRecord((), "Healthy", 0)))
    assert made.value(0).nodes >= value.nodes
    assert "bad-00000" not in nodes_in(made.value(0))


@pytest.mark.slow
def test_the_size_is_counted_as_nodes_come_change_and_go() -> None:
    made = document_of(*many("good", 6000, "Healthy"), ("bad", NodeRecord((FAN,), "UnHealthy", 0)))
    for node, _ in many("good", 6000, "Healthy"):
        made.put(node, render_node_entry(node, NodeRecord((FAN,), "Healthy", 1)))
    assert made.value(0).left_out == 6000
    for node, _ in many("good", 3000, "Healthy"):
        made.drop(node)
    assert (made.value(0).nodes, made.value(0).left_out) == (3001, 0)
    assert made.drop("stranger") == frozenset()


def test_words_inside_of_texts_do_not_deceive() -> None:
    liar = FaultDevice('"NodeStatus":"Healthy"', 1, [], "NotHandleFault")
    assert missed(render_node_entry("n", NodeRecord((liar,), "UnHealthy", 0))) == 2
    assert missed(render_node_entry("n", NodeRecord((liar,), "Healthy", 0))) == 1
    assert missed(render_node_entry("n", NodeRecord((), "Healthy", 0))) == 0


def test_annotations_are_a_change_of_their_own() -> None:
    made = document_of(("n", NodeRecord((), "Healthy", 0)))
    before = made.value(0).revision
    assert made.annotate({"a": "b"}) == {0}
    assert made.annotate({"a": "b"}) == frozenset()
    assert made.value(0).annotations == {"a": "b"}
    assert made.value(0).revision == before + 1
