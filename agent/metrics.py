"""Prometheus metrics, made at each scrape from one picture of the agent: nothing goes stale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

from agent.publication import BUCKETS_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from agent.publication import Histogram, Publication
    from agent.status import Status


class _Picture(Collector):
    def __init__(self, status: Status, record: Publication) -> None:
        self._status = status
        self._record = record

    def collect(self) -> Iterator[Metric]:
        status = self._status
        build = InfoMetricFamily("npu_vigil_build", "Version of NPU Vigil.")
        build.add_metric([], {"version": status.version, "node": status.node})
        yield build
        yield from _chips(status)
        yield from _driver(status)
        yield from _publication(status, self._record)
        yield from _heartbeat(status)
        yield from _journal(status)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _chips(status: Status) -> Iterator[Metric]:
    yield _gauge("npu_vigil_chips", "Chips that were read at least once.", len(status.chips))
    faults = GaugeMetricFamily(
        "npu_vigil_faults",
        "A fault code that holds on a chip now (1).",
        labels=["chip", "code", "level", "severity", "device_fault"],
    )
    for fault in status.faults:
        labels = [
            str(fault.chip),
            fault.code,
            fault.level,
            fault.severity or "",
            str(fault.device_fault).lower(),
        ]
        faults.add_metric(labels, 1)
    yield faults
    blind = GaugeMetricFamily(
        "npu_vigil_blind",
        "A source that gives no answer about a chip (1).",
        labels=["source", "chip"],
    )
    since = GaugeMetricFamily(
        "npu_vigil_blind_since_seconds",
        "Since when a source gives no answer about a chip (Unix time).",
        labels=["source", "chip"],
    )
    for chip in status.chips:
        for source in chip.blind:
            blind.add_metric([source.source, str(chip.chip)], 1)
            since.add_metric([source.source, str(chip.chip)], source.since_ms / 1000)
    yield blind
    yield since


def _driver(status: Status) -> Iterator[Metric]:
    driver = status.driver
    yield CounterMetricFamily(
        "npu_vigil_driver_gaps",
        "Times that driver events may have been lost (a restarted driver process, a full queue).",
        value=driver.gaps,
    )
    yield _gauge(
        "npu_vigil_driver_subscribed",
        "Whether the driver tells of faults by itself; else it is polled.",
        driver.library is not None and driver.polling_reason is None,
    )
    stuck = GaugeMetricFamily(
        "npu_vigil_driver_stuck_calls", "A driver call that does not return (1).", labels=["call"]
    )
    for call in driver.stuck_calls:
        stuck.add_metric([call], 1)
    yield stuck
    stalled = GaugeMetricFamily(
        "npu_vigil_stalled_seconds",
        "For how long a task has made no progress.",
        labels=["task"],
    )
    for task, seconds in status.stalled.items():
        stalled.add_metric([task], seconds)
    yield stalled


def _publication(status: Status, record: Publication) -> Iterator[Metric]:
    publication = status.publication
    lag = CounterMetricFamily(
        "npu_vigil_publication_writes",
        "Attempts to write a document.",
        labels=["reason", "result"],
    )
    for (reason, result), count in sorted(record.writes.items()):
        lag.add_metric([reason, result], count)
    yield lag
    waiting_ms = publication.waiting_since_ms
    yield _gauge(
        "npu_vigil_publication_lag_seconds",
        "Age of the oldest change that no store has acknowledged; 0 when there is none.",
        0.0 if waiting_ms is None else max(0, status.at_ms - waiting_ms) / 1000,
    )
    if publication.acknowledged_at_ms is not None:
        yield _gauge(
            "npu_vigil_publication_acknowledged_seconds",
            "When a store acknowledged the document last (Unix time).",
            publication.acknowledged_at_ms / 1000,
        )
    yield _gauge(
        "npu_vigil_publication_conflict",
        "Whether publishing stopped because somebody else writes the document.",
        publication.conflict_since_ms is not None,
    )
    yield CounterMetricFamily(
        "npu_vigil_publication_foreign_writes",
        "Changes of the document by somebody else.",
        value=publication.foreign_writes,
    )
    stages = HistogramMetricFamily(
        "npu_vigil_publication_seconds",
        "Time from an event to the acknowledgement of its document, by stage.",
        labels=["stage"],
    )
    for stage, histogram in record.stages.items():
        stages.add_metric([stage.value], _buckets(histogram), histogram.sum_seconds)
    yield stages


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    total = 0
    buckets: list[tuple[str, float]] = []
    bounds = [*(str(bound) for bound in BUCKETS_SECONDS), "+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets


def _heartbeat(status: Status) -> Iterator[Metric]:
    heartbeat = status.heartbeat
    yield CounterMetricFamily(
        "npu_vigil_heartbeat_beats", "Heartbeats that the store took.", value=heartbeat.beats
    )
    yield CounterMetricFamily(
        "npu_vigil_heartbeat_failures",
        "Attempts to read or write the heartbeat that failed.",
        value=heartbeat.failures,
    )
    if heartbeat.beaten_at_ms is not None:
        yield _gauge(
            "npu_vigil_heartbeat_beaten_seconds",
            "When the store took a heartbeat last (Unix time).",
            heartbeat.beaten_at_ms / 1000,
        )
    yield _gauge(
        "npu_vigil_heartbeat_withheld",
        "Whether the agent does not beat because a task of it makes no progress.",
        heartbeat.withheld is not None,
    )
    yield _gauge(
        "npu_vigil_heartbeat_conflict",
        "Whether nothing is published because another agent has the node name.",
        heartbeat.conflict is not None,
    )


def _journal(status: Status) -> Iterator[Metric]:
    journal = status.journal
    yield _gauge(
        "npu_vigil_journal_trouble",
        "Whether the journal fails or is late.",
        journal.trouble is not None,
    )
    yield CounterMetricFamily(
        "npu_vigil_journal_gaps", "Times the journal failed or was late.", value=journal.gaps
    )
    yield CounterMetricFamily(
        "npu_vigil_journal_rows", "Rows written to the journal.", value=journal.rows_written
    )
    yield CounterMetricFamily(
        "npu_vigil_journal_rows_lost", "Rows the journal lost.", value=journal.rows_dropped
    )
    yield _gauge("npu_vigil_journal_rows_held", "Rows not written yet.", journal.rows_held)


def exposition(status: Status, record: Publication) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Picture(status, record))
    return generate_latest(registry)
