"""Metrics of documents are by kind: the number of series does not depend on that of nodes."""

from __future__ import annotations

import msgspec

from aggregator.api.metrics import metrics_of_documents
from contract.pages.aggregator_status import DocumentStatus

STORE = "kubernetes:"
KIND = "cluster-info-device"
LABELS = ("document", "store", "result", "writer")
SHARD = DocumentStatus(
    store=STORE,
    document="cluster-info-device-0",
    nodes=100,
    bytes=1000,
    published=True,
    writes=3,
    touches=1,
    left_out_nodes=0,
    foreign_writes=2,
    refused_writes=1,
    conflict=False,
    conflict_writer=None,
    error=None,
    lag_seconds=0.5,
)
BAD = msgspec.structs.replace(
    SHARD,
    document="cluster-info-device-17",
    conflict=True,
    conflict_writer="kubectl",
    error="denied",
    left_out_nodes=5,
    lag_seconds=90.0,
)


def samples(*documents: DocumentStatus) -> dict[tuple[str, ...], float]:
    """Return the value of each series about ``documents``, by name and labels."""
    return {
        (
            sample.name.removeprefix("npu_vigil_"),
            *(sample.labels[name] for name in LABELS if name in sample.labels),
        ): sample.value
        for family in metrics_of_documents(documents)
        for sample in family.samples
    }


def test_documents_of_a_kind_are_one_series_with_their_sum_or_the_worst() -> None:
    assert samples(SHARD, BAD) == {
        ("publication_writes_total", KIND, STORE, "acknowledged"): 6,
        ("publication_writes_total", KIND, STORE, "conflict"): 2,
        ("publication_lag_seconds", KIND, STORE): 90,
        ("publication_failing", KIND, STORE): 1,
        ("publication_conflict", KIND, STORE): 1,
        ("publication_touches_total", KIND, STORE): 2,
        ("publication_left_out_nodes", KIND, STORE): 5,
        ("publication_foreign_writes_total", KIND, STORE): 4,
        ("publication_nodes", KIND, STORE): 200,
        ("publication_bytes", KIND, STORE): 2000,
        ("foreign_writer", KIND, STORE, "kubectl"): 1,
    }


def test_stores_and_kinds_are_series_of_their_own() -> None:
    server = msgspec.structs.replace(SHARD, document="cluster-info-node-cm")
    elsewhere = msgspec.structs.replace(BAD, store="mqtts://broker:8883")
    failing = {
        tuple(labels): value
        for (name, *labels), value in samples(SHARD, server, elsewhere).items()
        if name == "publication_failing"
    }
    assert failing == {
        (KIND, STORE): 0,
        ("cluster-info-node-cm", STORE): 0,
        (KIND, "mqtts://broker:8883"): 1,
    }


def test_a_writer_of_several_documents_is_one_series() -> None:
    other = msgspec.structs.replace(BAD, document="cluster-info-device-3")
    assert samples(BAD, other)["foreign_writer", KIND, STORE, "kubectl"] == 1
