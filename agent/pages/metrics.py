"""Prometheus metrics, made at each scrape from one status of the agent: nothing goes stale."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import HistogramMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from agent.pages import npu_exporter
from agent.publishing.publication import BUCKETS_SECONDS, WRITE_RESULTS
from collectors.registry import GAUGES
from service.log.setup import dropped_lines
from service.metric_families import counter, fault_info, gauge, single_counter, single_gauge
from service.tls.expiry import certificate_metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client import Metric

    from agent.fault_state import EpisodeCounts
    from agent.pages.npu_exporter import Cards
    from agent.publishing.publication import Publication
    from contract.pages.agent_status import (
        AgentStatus,
        EventsStatus,
        FaultServiceStatus,
        HeldFaultStatus,
        HistoryForwarderStatus,
        NodeObjectStatus,
        PublicationStatus,
        ShadowStatus,
    )
    from stores.base import PodUsage

_FAULT_LABELS = ["chip", "subject", "part", "code", "level", "severity", "device_fault"]
_BOUNDS = [*map(str, BUCKETS_SECONDS), "+Inf"]


class AgentMetrics(Collector):
    """The metrics of one status. ``records`` are by kind of document.

    With ``cards`` also under NPU exporter's names, with ``pods`` those of them on faulty chips.
    """

    def __init__(
        self,
        status: AgentStatus,
        records: Mapping[str, Publication],
        episodes: EpisodeCounts,
        cards: Cards | None = None,
        pods: Sequence[PodUsage] | None = None,
    ) -> None:
        self._status = status
        self._records = records
        self._episodes = episodes
        self._cards = cards
        self._pods = pods

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        status = self._status
        build = InfoMetricFamily("npu_vigil_build", "Version of NPU Vigil.")
        build.add_metric([], {"version": status.version, "node": status.node})
        yield build
        yield from _chips(status)
        if self._pods is not None:
            yield _fault_pods(status, self._pods)
        yield from _fault_episodes(self._episodes)
        if status.usage is not None:
            devices = {chip.device for chip in status.chips}
            used = len(devices.intersection(status.usage.used))
            yield single_gauge(
                "npu_vigil_chips_in_use", "Chips that pods have, as last known.", used
            )
        yield from _driver(status)
        yield single_counter(
            "npu_vigil_kernel_log_gaps",
            "Times that records of the kernel's log were lost before they were read.",
            status.kernel_log_gaps,
        )
        yield single_counter(
            "npu_vigil_log_lines_dropped",
            "Lines of the log that were dropped because no program read standard error.",
            dropped_lines(),
        )
        yield certificate_metric(status.certificates)
        if status.missed_changes is not None:
            yield counter(
                "npu_vigil_store_missed_changes",
                "Changes of documents that a listing found and no event showed.",
                ["store"],
                [([status.store], status.missed_changes)],
            )
        yield from _publications(status, self._records)
        yield from _fault_configuration(status)
        yield from _heartbeat(status)
        yield from _journal(status)
        if status.events is not None:
            yield from _events(status.events)
        if status.node_object is not None:
            yield from _node_object(status.node_object)
        if status.own_node_only is not None:
            yield single_gauge(
                "npu_vigil_own_node_only",
                "Whether the API server refuses writes of this agent to other nodes (1).",
                status.own_node_only,
            )
        if status.fault_service is not None:
            yield from _fault_service(status.fault_service)
        if status.episodes is not None:
            yield from _episodes(status.episodes)
        if status.shadow is not None:
            yield from _shadow(status.shadow)
        if self._cards is not None:
            yield from npu_exporter.families(self._cards)


def _chips(status: AgentStatus) -> Iterator[Metric]:
    read = sum(chip.was_read for chip in status.chips)
    yield single_gauge("npu_vigil_chips", "Chips that were read at least once.", read)
    unknown = sum(chip.was_read and not chip.answers for chip in status.chips)
    yield single_gauge(
        "npu_vigil_chips_unknown", "Of those, chips that give no answer now.", unknown
    )
    yield gauge(
        "npu_vigil_faults",
        "A fault code that holds now on a chip, a switch port or a part of the server (1).",
        _FAULT_LABELS,
        ((_labels(fault), 1) for fault in status.faults),
    )
    yield gauge(
        "npu_vigil_fault_since_timestamp_seconds",
        "Since when the fault holds (Unix time).",
        _FAULT_LABELS,
        ((_labels(fault), fault.since_ms / 1000) for fault in status.faults),
    )
    yield fault_info(fault.code for fault in status.faults)
    yield gauge(
        "npu_vigil_upgrades",
        "A rule that raises a code of a chip to a level, also after the code is gone (1).",
        ["chip", "code", "level", "rule"],
        (
            ([str(chip.chip), upgrade.code, upgrade.level, upgrade.kind], 1)
            for chip in status.chips
            for upgrade in chip.upgrades
        ),
    )
    yield gauge(
        "npu_vigil_chip_health",
        "The driver's health word of a chip: 0 healthy, 1 minor, 2 major, 3 critical.",
        ["chip"],
        (([str(chip.chip)], chip.health) for chip in status.chips if chip.health is not None),
    )
    for name, text in GAUGES.items():
        readings = status.gauges.get(name, {}).items()
        rows = (([about], value) for about, value in readings)
        yield gauge(f"npu_vigil_{name}", text, ["chip"], rows)
    blind = [
        ([blindness.source, str(chip.chip)], blindness)
        for chip in status.chips
        for blindness in chip.blind
    ]
    blind += [([blindness.source, ""], blindness) for blindness in status.blind]
    yield gauge(
        "npu_vigil_blind",
        "A source that gives no answer about a chip, or about the node where chip is empty (1).",
        ["source", "chip"],
        ((labels, 1) for labels, _ in blind),
    )
    yield gauge(
        "npu_vigil_blind_since_timestamp_seconds",
        "Since when a source gives no answer about a chip or the node (Unix time).",
        ["source", "chip"],
        (
            (labels, blindness.since_ms / 1000)
            for labels, blindness in blind
            if blindness.since_ms is not None
        ),
    )
    if status.bmc_failed_readings is not None:
        yield single_counter(
            "npu_vigil_bmc_failed_readings",
            "Lists of the BMC that were not given, incomplete or inconsistent.",
            status.bmc_failed_readings,
        )


def _fault_pods(status: AgentStatus, pods: Iterable[PodUsage]) -> Metric:
    faulty = {fault.device: fault.chip for fault in status.faults if fault.chip is not None}
    return gauge(
        "npu_vigil_fault_pods",
        "A pod that has a chip with an active fault (1).",
        ["chip", "namespace", "pod"],
        sorted(
            ([str(faulty[device]), pod.namespace, pod.name], 1)
            for pod in pods
            for device in pod.chips
            if device in faulty
        ),
    )


def _fault_episodes(episodes: EpisodeCounts) -> Iterator[Metric]:
    yield counter(
        "npu_vigil_fault_episodes",
        "Faults that began since the start of the agent, by level.",
        ["level"],
        (([level], count) for level, count in episodes.by_level.items()),
    )
    yield gauge(
        "npu_vigil_last_fault_episode_timestamp_seconds",
        "When the last fault of a level began (Unix time).",
        ["level"],
        (([level], at_ms / 1000) for level, at_ms in sorted(episodes.last_at_ms.items())),
    )


def _labels(fault: HeldFaultStatus) -> list[str]:
    return [
        "" if fault.chip is None else str(fault.chip),
        fault.subject,
        fault.part,
        fault.code,
        fault.level,
        fault.severity or "",
        str(fault.device_fault).lower(),
    ]


def _driver(status: AgentStatus) -> Iterator[Metric]:
    driver = status.driver
    yield single_counter(
        "npu_vigil_driver_gaps",
        "Times that driver events may have been lost (a restarted driver process, a full queue).",
        driver.gaps,
    )
    yield single_gauge(
        "npu_vigil_driver_subscribed",
        "Whether the driver reports faults by events; else it is polled.",
        driver.library is not None and driver.polling_reason is None,
    )
    if status.list_period_seconds is not None:
        yield single_gauge(
            "npu_vigil_driver_list_period_seconds",
            "How often the code list of each chip is asked.",
            status.list_period_seconds,
        )
    yield single_gauge(
        "npu_vigil_driver_virtual_chips",
        "Chips that are cut into virtual devices, which are not supported: no device-info then.",
        len(driver.virtual_chips),
    )
    yield gauge(
        "npu_vigil_driver_stuck_calls",
        "A driver call that does not return (1).",
        ["call"],
        (([call], 1) for call in driver.stuck_calls),
    )
    yield gauge(
        "npu_vigil_stalled_seconds",
        "For how long a task has made no progress.",
        ["task"],
        (([task], seconds) for task, seconds in status.stalled.items()),
    )


def _publications(status: AgentStatus, records: Mapping[str, Publication]) -> Iterator[Metric]:
    """Yield the families about publications; ``document`` is ``device-info`` or ``node-info``."""
    labels = ["store", "document"]
    shown = [
        (records[publication.kind], publication, [publication.store, publication.kind])
        for publication in status.publications
    ]
    yield counter(
        "npu_vigil_publication_writes",
        "Attempts to write or delete a document, by result.",
        [*labels, "result"],
        (
            ([*values, result], record.writes[result])
            for record, _, values in shown
            for result in WRITE_RESULTS
        ),
    )
    yield gauge(
        "npu_vigil_publication_lag_seconds",
        "Age of the oldest change that no store has acknowledged; 0 when there is none.",
        labels,
        (
            (values, _age_seconds(publication.waiting_since_ms, status.at_ms))
            for _, publication, values in shown
        ),
    )
    yield gauge(
        "npu_vigil_publication_acknowledged_timestamp_seconds",
        "When a store acknowledged the document, or its absence, last (Unix time).",
        labels,
        (
            (values, ms / 1000)
            for _, publication, values in shown
            if (ms := publication.acknowledged_at_ms) is not None
        ),
    )
    yield gauge(
        "npu_vigil_publication_failing",
        "1 while the document cannot be written.",
        labels,
        ((values, publication.trouble is not None) for _, publication, values in shown),
    )
    yield gauge(
        "npu_vigil_publication_conflict",
        "Whether the document is written only now and then because another program writes it.",
        labels,
        ((values, publication.conflict_since_ms is not None) for _, publication, values in shown),
    )
    yield gauge(
        "npu_vigil_foreign_writer",
        "Who writes the document during a conflict, or instead of this agent (1); empty where the "
        "store does not know.",
        [*labels, "writer"],
        (
            ([*values, writer], 1)
            for _, publication, values in shown
            if (writer := _writer(publication)) is not None
        ),
    )
    yield counter(
        "npu_vigil_publication_foreign_writes",
        "Changes of the document by another program.",
        labels,
        ((values, publication.foreign_writes) for _, publication, values in shown),
    )
    durations = HistogramMetricFamily(
        "npu_vigil_publication_seconds",
        "Time from an event to the acknowledgement of its document.",
        labels=["document"],
    )
    for record, publication, _ in shown:
        histogram = record.durations
        if not any(histogram.counts):
            continue
        # In the exposition format, each bucket has all smaller ones in it.
        buckets = list(zip(_BOUNDS, accumulate(histogram.counts), strict=True))
        durations.add_metric([publication.kind], buckets, histogram.sum_seconds)
    yield durations


def _age_seconds(since_ms: int | None, now_ms: int) -> float:
    return 0 if since_ms is None else max(0, now_ms - since_ms) / 1000


def _writer(publication: PublicationStatus) -> str | None:
    """Return who writes the document besides this agent or instead of it; ``None`` for none."""
    if publication.conflict_since_ms is not None:
        return publication.conflict_writer or ""
    return publication.left_to_writer


def _fault_configuration(status: AgentStatus) -> Iterator[Metric]:
    """By ``document``: the key in the ConfigMap and name of the file."""
    configuration = status.fault_configuration
    yield gauge(
        "npu_vigil_fault_configuration_problems",
        "Parts of the fault configuration that have not the effect they seem to have.",
        ["document"],
        (([name], count) for name, count in sorted(configuration.problem_counts.items())),
    )
    yield gauge(
        "npu_vigil_fault_configuration_source",
        "Where a document in force is from: configmap, file, shipped, or kept from before (1).",
        ["document", "source"],
        (([d.document, "kept" if d.kept else d.source], 1) for d in configuration.documents),
    )
    yield single_gauge(
        "npu_vigil_fault_configuration_watch_failing",
        "Whether a change of the fault configuration would not be noticed.",
        configuration.trouble is not None,
    )


def _heartbeat(status: AgentStatus) -> Iterator[Metric]:
    heartbeat = status.heartbeat
    yield single_counter(
        "npu_vigil_heartbeat_successes", "Heartbeats that the store took.", heartbeat.beats
    )
    yield single_counter(
        "npu_vigil_heartbeat_failures",
        "Attempts to read or write the heartbeat that failed.",
        heartbeat.failures,
    )
    if heartbeat.beaten_at_ms is not None:
        yield single_gauge(
            "npu_vigil_heartbeat_last_success_timestamp_seconds",
            "When the store took a heartbeat last (Unix time).",
            heartbeat.beaten_at_ms / 1000,
        )
    yield single_gauge(
        "npu_vigil_heartbeat_withheld",
        "Whether the agent does not beat because a task of it makes no progress.",
        heartbeat.withheld is not None,
    )
    yield single_gauge(
        "npu_vigil_heartbeat_failing",
        "Whether the store accepts no heartbeat, or does not show whether another agent beats.",
        heartbeat.trouble is not None,
    )
    if (old := heartbeat.old) is not None:
        yield single_gauge(
            "npu_vigil_legacy_heartbeat_failing",
            "Whether the Node takes no heartbeat for readers of old releases.",
            old.trouble is not None,
        )
        yield single_gauge(
            "npu_vigil_legacy_heartbeat_label_missing",
            "Whether the Node lacks the label without which old readers leave heartbeats out.",
            old.label is not None,
        )
    yield single_gauge(
        "npu_vigil_heartbeat_conflict",
        "Whether nothing is published because another agent has the node name.",
        heartbeat.conflict is not None,
    )


def _journal(status: AgentStatus) -> Iterator[Metric]:
    journal = status.journal
    yield single_gauge(
        "npu_vigil_journal_failing",
        "Whether the journal fails or is late.",
        journal.trouble is not None,
    )
    yield single_counter(
        "npu_vigil_journal_gaps", "Times the journal failed or was late.", journal.gaps
    )
    yield single_counter(
        "npu_vigil_journal_rows", "Rows written to the journal.", journal.rows_written
    )
    yield single_counter(
        "npu_vigil_journal_rows_lost", "Rows the journal lost.", journal.rows_dropped
    )
    yield single_gauge("npu_vigil_journal_rows_held", "Rows not written yet.", journal.rows_held)
    yield single_counter(
        "npu_vigil_journal_unacknowledged_deleted",
        "Rows of changes that were deleted before an aggregator acknowledged them.",
        journal.changes_unacknowledged,
    )


def _episodes(episodes: HistoryForwarderStatus) -> Iterator[Metric]:
    yield single_gauge(
        "npu_vigil_history_forwarding_unacknowledged_rows",
        "Rows of changes in the journal that the aggregator has not acknowledged.",
        episodes.behind,
    )
    yield single_gauge(
        "npu_vigil_history_forwarding_oldest_unacknowledged_timestamp_seconds",
        "From when the oldest of them is (Unix time); 0 while there are none.",
        (episodes.since_ms or 0) / 1000,
    )
    yield single_counter(
        "npu_vigil_history_forwarding_batches",
        "Batches that the broker accepted.",
        episodes.sent,
    )
    yield single_counter(
        "npu_vigil_history_forwarding_resends",
        "Times that unacknowledged batches were sent again.",
        episodes.repeats,
    )
    yield single_gauge(
        "npu_vigil_history_forwarding_failing",
        "Whether batches cannot be sent, or no aggregator answers.",
        episodes.trouble is not None,
    )


def _events(events: EventsStatus) -> Iterator[Metric]:
    yield counter(
        "npu_vigil_events",
        "Kubernetes Events: taken by the API server (sent), or refused by it (refused).",
        ["result"],
        [(["sent"], events.sent), (["refused"], events.refused)],
    )
    yield single_counter(
        "npu_vigil_events_merged",
        "Reports that share a Kubernetes Event with an earlier one.",
        events.merged,
    )
    yield single_gauge("npu_vigil_events_waiting", "Kubernetes Events that wait.", events.waiting)


def _node_object(node: NodeObjectStatus) -> Iterator[Metric]:
    yield single_counter(
        "npu_vigil_node_object_writes", "Writes of labels and annotations of the Node.", node.writes
    )
    yield single_counter(
        "npu_vigil_node_object_foreign_writes",
        "Changes of labels and annotations of ours on the Node by another program.",
        node.foreign_writes,
    )
    yield single_gauge(
        "npu_vigil_node_object_failing",
        "Whether the Node cannot be read or written.",
        node.trouble is not None,
    )
    yield gauge(
        "npu_vigil_node_object_conflict",
        "A label or annotation of the Node that is written only now and then because another "
        "program writes it (1).",
        ["key"],
        (([key], 1) for key in node.conflicts),
    )


def _fault_service(service: FaultServiceStatus) -> Iterator[Metric]:
    yield single_gauge(
        "npu_vigil_fault_service_waiting",
        "Changes of storage faults that ClusterD has not acknowledged yet.",
        service.waiting,
    )
    yield counter(
        "npu_vigil_fault_service_answers",
        "Changes of storage faults that ClusterD answered, by result.",
        ["result"],
        [(["acknowledged"], service.acknowledged), (["refused"], service.refused)],
    )


def _shadow(shadow: ShadowStatus) -> Iterator[Metric]:
    yield counter(
        "npu_vigil_shadow_writes",
        "What came of comparing each write of a real Device Plugin, and of waiting for one.",
        ["result"],
        (([result.value], count) for result, count in shadow.writes.items()),
    )
    yield counter(
        "npu_vigil_shadow_differences",
        "Differences of those writes, by the first field of a device or of the node.",
        ["field"],
        (([field.value], count) for field, count in shadow.differences.items()),
    )
