"""Prometheus metrics, computed at each scrape from one ``AggregatorStatus``."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from aggregator.api.feature_metrics import metrics_of_parts
from aggregator.liveness.clock_skew import WARNING_MS
from aggregator.merge.stale_documents import DEVICE_INFO, NODE_INFO
from contract.pages.aggregator_status import HEARTBEATS, STATES
from service.log.setup import dropped_lines
from service.metric_families import counter, fault_info, gauge, single_counter, single_gauge
from service.tls.expiry import certificate_metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric

    from aggregator.api.collect_status import AggregatorStatus
    from contract.pages.aggregator_status import DocumentStatus

    _Make = Callable[..., Metric]
    _Combine = Callable[[Iterable[float]], float]

BLIND_STATES = ("blind", "none", "unknown")

MAX_BLIND = 2000
"""Most blind sources with series of their own; all are counted."""

OLDEST_HEARTBEATS = 20
"""Most nodes with a series of their own, those silent for longest first."""


class AggregatorMetrics(Collector):
    """The metrics of one status."""

    def __init__(self, status: AggregatorStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from _cluster(self._status)
        yield from _liveness(self._status)
        yield from _blind(self._status)
        yield from _stores(self._status)
        yield from metrics_of_documents(self._status.documents.documents)
        yield from _leader(self._status)
        yield certificate_metric(self._status.certificate_ends_ms)
        yield from metrics_of_parts(self._status)


def _cluster(status: AggregatorStatus) -> Iterator[Metric]:
    states = Counter(node.state for node in status.nodes)
    yield gauge(
        "npu_vigil_nodes",
        "Number of nodes, by state of their newest report.",
        ["state"],
        (([state], states[state]) for state in STATES),
    )
    faults = Counter(
        (
            fault.code,
            fault.level,
            fault.severity or "unknown",
            "unknown" if fault.device_fault is None else str(fault.device_fault).lower(),
            fault.severity_source or "",
        )
        for fault in status.faults
        if fault.kind == "chip"
    )
    yield gauge(
        "npu_vigil_cluster_faults",
        "Chips of the cluster that have this fault now, those held back from readers, too.",
        ["code", "level", "severity", "device_fault", "severity_source"],
        ((labels, count) for labels, count in sorted(faults.items())),
    )
    yield fault_info(fault.code for fault in status.faults)
    yield single_gauge(
        "npu_vigil_ready",
        "1 after everything known was published once.",
        not status.health.not_ready,
    )
    yield gauge(
        "npu_vigil_stalled_seconds",
        "For how long a task has made no progress.",
        ["task"],
        (([task], seconds) for task, seconds in status.health.stalled.items()),
    )
    yield single_counter(
        "npu_vigil_log_lines_dropped",
        "Lines of the log that were dropped because no program read standard error.",
        dropped_lines(),
    )


def _liveness(status: AggregatorStatus) -> Iterator[Metric]:
    states = Counter(node.heartbeat for node in status.nodes)
    yield gauge(
        "npu_vigil_heartbeats",
        "Nodes by the state of their heartbeats.",
        ["state"],
        (([state], states[state]) for state in HEARTBEATS),
    )
    yield gauge(
        "npu_vigil_node_lost",
        "1 for a node that was silent for more than 3 intervals.",
        ["node"],
        (([node], 1.0) for node in status.liveness.lost),
    )
    ages = [
        (node.heartbeat_age_seconds, node.node)
        for node in status.nodes
        if node.heartbeat_age_seconds is not None
    ]
    yield gauge(
        "npu_vigil_heartbeat_age_seconds",
        f"How long ago the heartbeat changed, of the {OLDEST_HEARTBEATS} nodes silent for longest.",
        ["node"],
        (([node], age) for age, node in sorted(ages, reverse=True)[:OLDEST_HEARTBEATS]),
    )
    yield gauge(
        "npu_vigil_node_clock_skew_seconds",
        "By how much a node's clock is ahead of the aggregator's, at least; behind where negative. "
        "Only clocks that are more than 2 s off.",
        ["node"],
        (
            ([node.node], node.clock_skew_seconds)
            for node in status.nodes
            if node.clock_skew_seconds is not None
            and abs(node.clock_skew_seconds) * 1000 > WARNING_MS
        ),
    )
    yield single_gauge(
        "npu_vigil_node_lost_brake",
        "1 while so many nodes fell silent at once that they are not published lost.",
        status.liveness.alarm,
    )
    yield single_gauge(
        "npu_vigil_heartbeats_unreadable",
        "Places whose heartbeats, or nodes with old ones, cannot be listed now.",
        len(status.liveness.problems),
    )
    yield gauge(
        "npu_vigil_heartbeats_last_read_age_seconds",
        "How long ago the heartbeats in a store, or in its Nodes, were read last.",
        ["place"],
        (([place], age) for place, age in status.liveness.listed_seconds_ago.items()),
    )
    stale = Counter(
        stale_document.document for node in status.nodes for stale_document in node.stale
    )
    yield gauge(
        "npu_vigil_stale_documents",
        "Nodes that beat and whose document is older than two of its periods.",
        ["document"],
        (([document], stale[document]) for document in (DEVICE_INFO, NODE_INFO) if stale[document]),
    )


def _blind(status: AggregatorStatus) -> Iterator[Metric]:
    states = Counter(
        "unknown" if node.blind is None else "blind" if node.blind else "none"
        for node in status.nodes
    )
    yield gauge(
        "npu_vigil_blind_nodes",
        "Nodes by whether a source gives their agent no answer; unknown: it does not report it.",
        ["state"],
        (([state], states[state]) for state in BLIND_STATES),
    )
    blind = [
        ([node.node, source.chip or "", source.source], source.since_ms)
        for node in status.nodes
        for source in node.blind or ()
    ]
    labels = ["node", "chip", "source"]
    yield gauge(
        "npu_vigil_cluster_blind",
        "1 for a source that gives a node's agent no answer about a chip, or about the node where "
        f"chip is empty; {MAX_BLIND} at most.",
        labels,
        ((values, 1.0) for values, _ in blind[:MAX_BLIND]),
    )
    yield gauge(
        "npu_vigil_cluster_blind_since_timestamp_seconds",
        "Since when such a source gives no answer (Unix time of the node's clock).",
        labels,
        ((values, ms / 1000) for values, ms in blind[:MAX_BLIND] if ms is not None),
    )
    # Absent at rest, as decision 65 has it: a scrape may have 140 series then.
    number = len(blind) + sum(node.blind_left_out for node in status.nodes)
    if number:
        yield single_gauge(
            "npu_vigil_cluster_blind_sources", "How many such sources there are.", number
        )


def _stores(status: AggregatorStatus) -> Iterator[Metric]:
    sources = status.documents.stores
    yield gauge(
        "npu_vigil_store_connected",
        "1 while changes in the store are watched.",
        ["store"],
        (([s.store], float(s.listed and s.interrupted is None)) for s in sources),
    )
    yield counter(
        "npu_vigil_store_interruptions",
        "Times the watch of the store was interrupted.",
        ["store"],
        (([s.store], s.interruptions) for s in sources),
    )
    yield counter(
        "npu_vigil_store_missed_changes",
        "Changes of documents that a listing found and no event showed.",
        ["store"],
        (([s.store], s.missed_changes) for s in sources if s.missed_changes is not None),
    )
    yield gauge(
        "npu_vigil_store_replaced",
        "1 while a directory is not the known one, by its mark.",
        ["store"],
        (([s.store], float(s.replaced is not None)) for s in sources),
    )
    yield counter(
        "npu_vigil_rejected_documents",
        "Documents, heartbeats and messages that were refused, by why.",
        ["store", "reason"],
        (
            ([rejected.store, rejected.reason], rejected.number)
            for rejected in status.documents.rejected
        ),
    )
    yield gauge(
        "npu_vigil_rejected_nodes",
        "Nodes whose newest document was refused.",
        ["store"],
        (([s.store], s.rejected_nodes) for s in sources),
    )
    yield counter(
        "npu_vigil_missed_write_reads",
        "Documents of nodes that were read by name because a heartbeat named a write that no watch "
        "had shown, by result.",
        ["store", "result"],
        (
            ([missed.store, result], count)
            for missed in status.missed_writes
            for result, count in missed.read.items()
        ),
    )
    yield gauge(
        "npu_vigil_unreadable_write_keys",
        "Nodes whose heartbeat has a key about writes that cannot be read.",
        ["store"],
        (([missed.store], missed.unreadable) for missed in status.missed_writes),
    )

    yield gauge(
        "npu_vigil_missing_documents",
        "Nodes whose document the store had and lacks; its last state stays.",
        ["store", "document"],
        (([missing.store, missing.document], missing.nodes) for missing in status.missing),
    )
    yield gauge(
        "npu_vigil_held_deletions",
        "Of those, nodes whose deletion is held back because so many were deleted at once.",
        ["store", "document"],
        (([missing.store, missing.document], missing.held) for missing in status.missing),
    )


_OF_A_KIND: tuple[tuple[_Make, str, str, Callable[[DocumentStatus], float], _Combine], ...] = (
    (
        gauge,
        "lag_seconds",
        "How long a change has been waiting for its acknowledgement.",
        attrgetter("lag_seconds"),
        max,
    ),
    (
        gauge,
        "failing",
        "1 while a document of the kind cannot be written.",
        lambda document: document.error is not None,
        max,
    ),
    (
        gauge,
        "conflict",
        "1 while a document is written only now and then because another program writes it.",
        attrgetter("conflict"),
        max,
    ),
    (
        counter,
        "touches",
        "Touches of documents, so that their readers get an event.",
        attrgetter("touches"),
        sum,
    ),
    (
        gauge,
        "left_out_nodes",
        "Nodes that are not in the documents for lack of room.",
        attrgetter("left_out_nodes"),
        sum,
    ),
    (
        counter,
        "foreign_writes",
        "Changes of documents by another program.",
        attrgetter("foreign_writes"),
        sum,
    ),
    (gauge, "nodes", "Nodes in the documents.", attrgetter("nodes"), sum),
    (gauge, "bytes", "Size of the values of the documents.", attrgetter("bytes"), sum),
)
"""Metrics ``npu_vigil_publication_…``: what each shows of the documents of a kind."""


def metrics_of_documents(statuses: Iterable[DocumentStatus]) -> Iterator[Metric]:
    """Yield families by kind of document: the number of series does not grow with the cluster."""
    labels = ["store", "document"]
    kinds: dict[tuple[str, str], list[DocumentStatus]] = {}
    for status in statuses:
        kinds.setdefault((status.store, _kind_of(status.document)), []).append(status)
    yield counter(
        "npu_vigil_publication_writes",
        "Attempts to write documents, by result.",
        [*labels, "result"],
        (
            ((*kind, result), sum(getattr(document, field) for document in documents))
            for kind, documents in kinds.items()
            for result, field in (("acknowledged", "writes"), ("conflict", "refused_writes"))
        ),
    )
    for make, name, about, value, combine in _OF_A_KIND:
        rows = ((kind, float(combine(map(value, documents)))) for kind, documents in kinds.items())
        yield make(f"npu_vigil_publication_{name}", about, labels, rows)
    writers = sorted(
        {
            (*kind, document.conflict_writer or "")
            for kind, documents in kinds.items()
            for document in documents
            if document.conflict
        }
    )
    yield gauge(
        "npu_vigil_foreign_writer",
        "Who writes a document during a conflict (1); empty where the store does not know.",
        [*labels, "writer"],
        ((values, 1.0) for values in writers),
    )


def _kind_of(document: str) -> str:
    """Return the name of a published document without its number."""
    kind, _, number = document.rpartition("-")
    return kind if number.isdecimal() else document


def _leader(status: AggregatorStatus) -> Iterator[Metric]:
    yield single_gauge(
        "npu_vigil_aggregator_leader",
        "1 while this aggregator writes, 0 while it follows another one.",
        status.leader.leader.leads,
    )
    yield single_counter(
        "npu_vigil_aggregator_transitions",
        "Times that this aggregator began to lead.",
        status.leader.leader.taken,
    )
    stateful_plugins = [
        plugin
        for plugin in status.leader.kept
        if plugin.documents or plugin.writes or plugin.problems
    ]
    for make, name, about in (
        (gauge, "documents", "Documents in which the state of an aggregator plugin is kept."),
        (gauge, "bytes", "Size of the state of an aggregator plugin."),
        (counter, "writes", "Acknowledged writes of state."),
    ):
        rows = (([plugin.name], float(getattr(plugin, name))) for plugin in stateful_plugins)
        yield make(f"npu_vigil_state_{name}", about, ["plugin"], rows)
    yield gauge(
        "npu_vigil_state_problems",
        "Documents of state that cannot be read or written.",
        ["plugin"],
        (([plugin.name], len(plugin.problems)) for plugin in stateful_plugins),
    )
