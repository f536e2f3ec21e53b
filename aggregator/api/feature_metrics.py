"""Prometheus metrics of features beside the documents: jobs, advice, public faults, services."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aggregator.cluster_documents.published_node import ACCOMPANIES, FILTER, UNDECIDED
from aggregator.dpu_faults.plugin import LEVELS
from contract.codes.dpu_codes import DPU_CODES
from service.metric_families import counter, gauge, single_counter, single_gauge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client.core import Metric

    from aggregator.advising.status import AdviceStatus
    from aggregator.api.collect_status import AggregatorStatus
    from aggregator.api.separation_status import SeparationStatus
    from aggregator.grpc.interfaces import GrpcStatus
    from aggregator.notify.history import HistoryStatus
    from aggregator.public_faults.status import PublicFaultStatus
    from aggregator.rank_tables.plugin import RankTablesStatus
    from contract.pages.aggregator_status import ClusterStateStatus
    from contract.pages.scheduler_signals import SignalStatus

HEALTHY = "Healthy"
HEALTHS = (HEALTHY, "SubHealthy", "UnHealthy")
OTHER = "other"
REASONS = (FILTER, ACCOMPANIES, UNDECIDED)


def metrics_of_parts(status: AggregatorStatus) -> Iterator[Metric]:
    """Yield the metrics of all features."""
    yield from _faults(status)
    healths = Counter(job.health for job in status.jobs)
    yield gauge(
        "npu_vigil_jobs_with_faults",
        "Jobs on whose nodes or chips there is a fault, by how ill that makes them.",
        ["health"],
        # A dashboard shows how many are not healthy, so these are 0 rather than absent.
        (([h], healths[h]) for h in HEALTHS if h != HEALTHY or healths[h]),
    )
    if status.advice is not None:
        yield from _advice(status.advice)
    if status.signals:
        yield from _signals(status.signals)
    yield from _public_faults(status.public_faults)
    yield from _dpu_faults(status)
    yield from _separation(status.separation)
    yield from _cluster_state(status.cluster_state)
    services = status.services
    if services.grpc is not None:
        yield from _grpc(services.grpc)
    if services.rank_tables.tables or services.rank_tables.problems:
        yield from _rank_tables(services.rank_tables)
    for make, name, about in (
        (single_gauge, "clients", "Who listens to changes over HTTP now."),
        (single_counter, "events", "Changes that were sent to them."),
        (single_counter, "gaps", "Times that one of them was sent a gap."),
        (
            single_counter,
            "displaced",
            "Clients that lost their place to another one, because all were taken.",
        ),
    ):
        yield make(f"npu_vigil_stream_{name}", about, float(getattr(services.stream, name)))
    yield from _history(services.history)


def _rank_tables(rank_tables: RankTablesStatus) -> Iterator[Metric]:
    for name, about, value in (
        ("tables", "Rank tables of jobs that are read.", rank_tables.tables),
        ("services", "MindIE services whose rank table is whole.", rank_tables.services),
        ("problems", "Rank tables that cannot be read.", len(rank_tables.problems)),
        (
            "shared_jobs",
            "jobIDs that rank tables of several namespaces have: none of them is served.",
            len(rank_tables.shared),
        ),
    ):
        yield single_gauge(f"npu_vigil_rank_table_{name}", about, value)


def _advice(advice: AdviceStatus) -> Iterator[Metric]:
    # The namespaces of users are not labels.
    unknown = Counter(kind.partition(" ")[0] for kind in advice.not_known)
    jobs = Counter(
        (report.profile.value, decision.action.value, decision.row)
        for report in advice.reports
        for decision in report.decisions
    )
    yield gauge(
        "npu_vigil_advice_jobs",
        "Jobs by what the scheduler will do with them and by which row of the decision table.",
        ["profile", "action", "reason"],
        ((labels, count) for labels, count in sorted(jobs.items())),
    )
    yield gauge(
        "npu_vigil_advice_deletions",
        "Pods that the scheduler will delete in its next session.",
        ["profile"],
        (([report.profile.value], len(report.deletions)) for report in advice.reports),
    )
    yield gauge(
        "npu_vigil_advice_waiting_gangs",
        "PodGroups with waiting pods, by whether these fit together.",
        ["profile", "fits"],
        (
            ([report.profile.value, str(fits).lower()], sum(g.fits is fits for g in report.gangs))
            for report in advice.reports
            for fits in (True, False)
        ),
    )
    yield gauge(
        "npu_vigil_advice_unreadable",
        "1 for a kind of object that cannot be read for advice; namespaces of scaling rules.",
        ["kind"],
        (([kind], float(places)) for kind, places in sorted(unknown.items())),
    )
    yield counter(
        "npu_vigil_advice_outcomes",
        "Deletions of pods of jobs by what became of them: as foretold, or not.",
        ["outcome"],
        (([outcome], count) for outcome, count in advice.outcomes.items()),
    )
    yield single_gauge(
        "npu_vigil_advice_cpu_seconds",
        "CPU time of the newest computation of advice.",
        advice.seconds,
    )


def _signals(signals: Sequence[SignalStatus]) -> Iterator[Metric]:
    yield counter(
        "npu_vigil_scheduler_signal_writes",
        "Writes of conditions and taints by what became of them.",
        ["option", "outcome"],
        (([s.option, outcome], n) for s in signals for outcome, n in s.outcomes.items()),
    )
    yield gauge(
        "npu_vigil_scheduler_signals_pending",
        "Objects that wait for their turn to be written.",
        ["option"],
        (([signal.option], signal.pending) for signal in signals),
    )
    yield gauge(
        "npu_vigil_scheduler_signals_oldest_seconds",
        "How long the object waits that waits longest for its turn.",
        ["option"],
        (([signal.option], signal.oldest_seconds or 0.0) for signal in signals),
    )
    yield gauge(
        "npu_vigil_scheduler_signals_waiting",
        "Objects whose conditions or taints are not written, by reason.",
        ["option", "reason"],
        (([s.option, reason], n) for s in signals for reason, n in s.waiting_total.items()),
    )
    yield gauge(
        "npu_vigil_scheduler_signals_failing",
        "1 while writes are refused, such as by a missing right.",
        ["option"],
        (([signal.option], float(signal.problem is not None)) for signal in signals),
    )


def _faults(status: AggregatorStatus) -> Iterator[Metric]:
    by_reason = Counter(fault.hidden for fault in status.faults)
    yield gauge(
        "npu_vigil_withheld_faults",
        "Faults of chips and switches that are withheld from readers now, by reason.",
        ["reason"],
        (([reason], by_reason[reason]) for reason in REASONS),
    )
    for name, kind, about in (
        ("switch", "switch", "Faults of on-board switches."),
        ("server", "host", "Faults of parts of servers."),
    ):
        levels = Counter(fault.level for fault in status.faults if fault.kind == kind)
        yield gauge(
            f"npu_vigil_cluster_{name}_faults",
            about,
            ["level"],
            (([level], count) for level, count in sorted(levels.items())),
        )


def _public_faults(public: PublicFaultStatus) -> Iterator[Metric]:
    for name, about, value in (
        ("active", "Public faults that hold.", public.standing),
        ("nodes", "Nodes with a public fault.", public.nodes),
        ("unplaced", "Public faults on chips that no node has reported yet.", public.unplaced),
        ("waiting", "Messages about public faults that wait.", public.waiting),
        ("deleted_nodes", "Deleted nodes with a public fault.", len(public.away)),
        ("origins_refused", "Origins whose newest message was refused.", len(public.troubles)),
        (
            "table_problems",
            "What is wrong with tables of codes and resources.",
            len(public.table_problems),
        ),
    ):
        yield single_gauge(f"npu_vigil_public_faults_{name}", about, value)
    yield single_counter(
        "npu_vigil_public_faults_dropped",
        "Messages that were dropped because too many waited.",
        public.dropped,
    )
    yield counter(
        "npu_vigil_public_faults_outcomes",
        "Messages about public faults, and faults in them, by outcome.",
        ["resource", "outcome"],
        (([count.resource, count.verdict], count.number) for count in public.counts),
    )


def _dpu_faults(status: AggregatorStatus) -> Iterator[Metric]:
    dpus = status.dpu_faults
    # Codes and levels come from documents, so unknown ones are not labels.
    levels = Counter(
        (
            fault.code if fault.code in DPU_CODES else OTHER,
            fault.level if fault.level in LEVELS else OTHER,
        )
        for fault in status.faults
        if fault.kind == "dpu"
    )
    yield gauge(
        "npu_vigil_cluster_dpu_faults",
        "Faults of RDMA NICs and DPUs.",
        ["code", "level"],
        ((labels, count) for labels, count in sorted(levels.items())),
    )
    if dpus.documents:
        current = dpus.documents - dpus.blind - dpus.unreadable - dpus.without_node
        yield gauge(
            "npu_vigil_dpu_documents",
            "Documents of RDMA plugins by state: blind is too old, unreadable malformed, and "
            "without_node names a node that does not exist.",
            ["state"],
            [
                (["current"], current),
                (["blind"], dpus.blind),
                (["unreadable"], dpus.unreadable),
                (["without_node"], dpus.without_node),
            ],
        )
        yield single_gauge(
            "npu_vigil_dpu_devices", "RDMA NICs and DPUs that their plugins report.", dpus.devices
        )
    yield single_gauge(
        "npu_vigil_dpu_watch_connected",
        "1 while changes of their documents arrive from all API servers.",
        float(dpus.listed and not dpus.interrupted),
    )


def _separation(separation: SeparationStatus) -> Iterator[Metric]:
    for name, about, value in (
        ("enabled", "1 while a policy separates chips.", float(separation.policy.enabled)),
        ("left_out_nodes", "Nodes not in what the next leader finds.", separation.left_out),
        ("problems", "Documents that cannot be read.", len(separation.problems)),
    ):
        yield single_gauge(f"npu_vigil_separation_{name}", about, value)
    counts = len(separation.chips), separation.waiting, separation.lost
    # Most clusters have no policy; a scrape at rest may have 140 series.
    if not separation.policy.enabled and not any(counts):
        return
    chips, waiting, lost = counts
    yield single_gauge("npu_vigil_separation_chips", "Chips in manual separation.", chips)
    yield single_gauge(
        "npu_vigil_separation_waiting",
        "New faults that wait until it is known if they count.",
        waiting,
    )
    yield single_counter(
        "npu_vigil_separation_dropped",
        "New faults that did not count because too many waited.",
        lost,
    )


def _cluster_state(cluster_state: ClusterStateStatus) -> Iterator[Metric]:
    followed = [
        ([status.store, status.kind], status) for status in cluster_state.objects if status.followed
    ]
    labels = ["store", "kind"]
    yield gauge(
        "npu_vigil_objects",
        "Nodes, pods and PodGroups that the store lists.",
        labels,
        ((values, status.objects) for values, status in followed),
    )
    yield gauge(
        "npu_vigil_objects_watch_connected",
        "1 while changes of them arrive; also where the store has no such kind.",
        labels,
        (
            (values, float(status.known and status.interrupted is None))
            for values, status in followed
        ),
    )
    yield single_gauge("npu_vigil_jobs", "Jobs that have a pod or a PodGroup.", cluster_state.jobs)
    yield single_gauge(
        "npu_vigil_shared_serial_numbers",
        "Serial numbers that several Nodes have, so that they name none.",
        len(cluster_state.shared_serial_numbers),
    )


def _grpc(grpc: GrpcStatus) -> Iterator[Metric]:
    for name, about, value in (
        ("serving", "1 while ClusterD's services are served.", float(grpc.address is not None)),
        ("registered", "Clients that are registered.", grpc.registered),
        ("subscribers", "Clients that hold a stream.", grpc.subscribers),
        (
            "tls_reload_failing",
            "1 while new TLS files cannot be used.",
            float(bool(grpc.tls_problem)),
        ),
    ):
        yield single_gauge(f"npu_vigil_grpc_{name}", about, value)
    yield single_counter("npu_vigil_grpc_sent", "Messages that went to streams.", grpc.sent)


def _history(history: HistoryStatus) -> Iterator[Metric]:
    for name, about, value in (
        ("events", "Changes of episodes that were written to the history.", history.events),
        ("lost_rows", "Rows of journals that were deleted before nodes sent them.", history.lost),
        ("out_of_order_batches", "Batches that were not the next ones.", history.refused),
        ("deferred_batches", "Batches that came while the queue was full.", history.left),
        ("published", "Changes of what is published that were kept.", history.published),
        (
            "dropped",
            "Published changes that were dropped because the queue was full.",
            history.dropped,
        ),
    ):
        yield single_counter(f"npu_vigil_history_{name}", about, value)
    yield single_gauge(
        "npu_vigil_history_failing",
        "1 while the history cannot be written: batches are not acknowledged.",
        history.trouble is not None,
    )
