"""Documents that did not come for two periods, while their node beats."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from aggregator.merge.stale_documents import StaleDocuments, stale_documents
from contract.documents.node_info import FaultDevice
from contract.pages.aggregator_status import StaleDocument
from tests.aggregator.nodes import T0, healthy, node_report, report
from tests.aggregator.pipelines import WrittenPipeline

if TYPE_CHECKING:
    from contract.documents.node_info import NodeRecord

FAN = FaultDevice("Fan", 1, ["28000009"], "NotHandleFault")


def server_time(bench: WrittenPipeline) -> int:
    record: NodeRecord = bench.pipeline.node.caches[0].reports["n2"].record
    return record.update_time_ms


@pytest.fixture
def bench() -> WrittenPipeline:
    return WrittenPipeline(report("n1", healthy()), node_report("n2", [FAN], "Healthy"))


def test_device_info_is_stale_after_ten_minutes(bench: WrittenPipeline) -> None:
    assert stale_documents(bench.pipeline, "n1", (T0 + 600) * 1000) == ()
    assert stale_documents(bench.pipeline, "n1", (T0 + 601) * 1000) == (
        StaleDocument("device-info", 601.0),
    )
    assert stale_documents(bench.pipeline, "n1", 0) == (), "a clock that was set back"
    assert stale_documents(bench.pipeline, "nobody", (T0 + 601) * 1000) == ()


def test_node_info_is_stale_after_an_hour(bench: WrittenPipeline) -> None:
    at_ms = server_time(bench)
    assert stale_documents(bench.pipeline, "n2", at_ms + 3_600_000) == ()
    assert stale_documents(bench.pipeline, "n2", at_ms + 3_600_001) == (
        StaleDocument("node-info", 3600.001),
    )


def test_they_are_named_once_until_none_is_left(
    bench: WrittenPipeline, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    beats = {"n1": (T0 + 30) * 1000, "n2": server_time(bench)}
    stale = StaleDocuments(bench.pipeline, beats.items)
    stale.check()
    assert caplog.text == ""
    beats["n1"] += 700_000
    for _ in range(3):
        stale.check()
        beats["n1"] += 60_000
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert "n1 (device-info, 730 s)" in line.getMessage()
    bench.put(report("n1", healthy(T0 + 900)), 900)
    stale.check()
    assert "no document is older than two of its periods any more" in caplog.text
