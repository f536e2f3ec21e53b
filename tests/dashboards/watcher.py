"""The dashboard of NPU Vigil itself: does it see, does it publish, and how quickly."""

from __future__ import annotations

from tests.dashboards.panel import (
    JOB,
    ORANGE,
    RED,
    UP,
    Dashboard,
    Kind,
    Panel,
    Query,
    agents,
    cluster,
    or_zero,
)

_FAILING = ((0, "works / 正常", "green"), (1, "fails / 失败", "red"))


def watcher() -> Dashboard:
    """Return the dashboard."""
    return Dashboard(
        "watcher",
        "NPU Vigil: itself / 自身",
        "Does NPU Vigil see and publish faults, and how quickly?",
        (*_figures(), *_stores(), *_publications(), *_tables()),
    )


def _count(metric: str) -> str:
    """Return on how many nodes a state of agents is 1."""
    selected = agents(metric)
    return or_zero(f"count(max by (node) ({selected}) == 1)", selected)


def _figures() -> tuple[Panel, ...]:
    return (
        Panel(
            "leaders",
            "Aggregators that lead",
            "担任主节点的聚合器",
            "Does exactly one aggregator lead?",
            Kind.STAT,
            (
                Query(
                    f"sum(max by (instance) (npu_vigil_aggregator_leader{{{JOB}}}))\n"
                    f"or on () 0 * count(up{{{JOB}}})"
                ),
            ),
            width=6,
            height=5,
            states=((0, "none / 无", "red"), (1, "1", "green")),
            thresholds=((2, RED),),
            alerts=("NpuVigilNoLeader",),
        ),
        Panel(
            "agents",
            "Agents without answer",
            "无应答的代理",
            "How many agents does Prometheus not reach?",
            Kind.STAT,
            (Query(or_zero(f"count({UP} == 0)", UP)),),
            width=6,
            height=5,
            alerts=("NpuVigilAgentDown",),
        ),
        Panel(
            "beats",
            "Agents without store",
            "无法访问存储的代理",
            "How many agents send no heartbeats, because their store accepts none?",
            Kind.STAT,
            (Query(_count("npu_vigil_heartbeat_failing")),),
            width=6,
            height=5,
            alerts=("NpuVigilAgentStoreAway", "NpuVigilStoreAway"),
        ),
        Panel(
            "journals",
            "Journals that fail",
            "写入失败的日志库",
            "How many agents cannot write their journal?",
            Kind.STAT,
            (Query(_count("npu_vigil_journal_failing")),),
            width=6,
            height=5,
            thresholds=((1, ORANGE),),
            alerts=("NpuVigilJournalFailing", "NpuVigilRowsDropped"),
        ),
    )


def _stores() -> tuple[Panel, ...]:
    return (
        Panel(
            "stores",
            "Stores of the aggregator",
            "聚合器的存储",
            "Do changes of each store arrive?",
            Kind.STATES,
            (Query(cluster("npu_vigil_store_connected", by="store", function="min"), "{{store}}"),),
            width=12,
            states=((0, "away / 断开", "red"), (1, "connected / 已连接", "green")),
            alerts=("NpuVigilStoreAway",),
        ),
        Panel(
            "failing",
            "Documents that cannot be written",
            "无法写入的文档",
            "Which documents cannot be written?",
            Kind.STATES,
            (
                Query(
                    f"max by (document) (npu_vigil_publication_failing{{{JOB}}})",
                    "{{document}}",
                ),
            ),
            width=12,
            states=_FAILING,
            alerts=("NpuVigilAggregatorNotPublishing", "NpuVigilNotPublished"),
        ),
    )


def _publications() -> tuple[Panel, ...]:
    lag = "npu_vigil_publication_lag_seconds"
    seconds = agents("npu_vigil_publication_seconds_bucket", 'document="device-info"')
    return (
        Panel(
            "cluster_lag",
            "Changes that wait, of the cluster",
            "等待确认的集群变更",
            "How old is the oldest change that a document of the cluster lacks?",
            Kind.TIME_SERIES,
            (Query(cluster(lag, by="document"), "{{document}}"),),
            width=12,
            unit="s",
            thresholds=((5, ORANGE), (60, RED)),
            alerts=("NpuVigilAggregatorNotPublishing",),
        ),
        Panel(
            "node_lag",
            "Changes that wait, of nodes",
            "等待确认的节点变更",
            "Which 10 documents of nodes wait longest?",
            Kind.TIME_SERIES,
            (Query(f"topk(10, max by (node, document) ({agents(lag)}))", "{{node}} {{document}}"),),
            width=12,
            unit="s",
            thresholds=((5, ORANGE), (60, RED)),
            alerts=("NpuVigilNotPublished",),
        ),
        Panel(
            "seconds",
            "Time from an event to its document",
            "从事件到文档的时间",
            "How quickly does a store acknowledge the document of an event?",
            Kind.HEATMAP,
            (Query(f"sum by (le) (increase({seconds}[$__rate_interval]))", "{{le}}"),),
            width=12,
            unit="s",
            thresholds=(),
            alerts=("NpuVigilNotPublished",),
        ),
        Panel(
            "writes",
            "Writes of agents, by result",
            "代理写入结果",
            "How many writes does the store acknowledge, and how many not?",
            Kind.TIME_SERIES,
            (
                Query(
                    "sum by (result) "
                    f"(rate({agents('npu_vigil_publication_writes_total')}[$__rate_interval]))",
                    "{{result}}",
                ),
            ),
            width=12,
            unit="wps",
            thresholds=(),
            alerts=("NpuVigilPublicationRefused", "NpuVigilNotPublished"),
        ),
    )


def _tables() -> tuple[Panel, ...]:
    return (
        Panel(
            "writers",
            "Documents that others write, too",
            "被其他程序写入的文档",
            "Which program writes which document of NPU Vigil?",
            Kind.TABLE,
            (Query(f"max by (node, document, writer) (npu_vigil_foreign_writer{{{JOB}}}) == 1"),),
            width=12,
            alerts=("NpuVigilTwoWriters", "NpuVigilAggregatorTwoWriters"),
        ),
        Panel(
            "configuration",
            "Fault configuration with problems",
            "有问题的故障配置",
            "On how many nodes has a document of the fault configuration problems?",
            Kind.TABLE,
            (
                Query(
                    "count by (document) (max by (node, document) "
                    f"({agents('npu_vigil_fault_configuration_problems')}) > 0)"
                ),
            ),
            width=12,
            value="nodes",
            thresholds=((1, ORANGE),),
            alerts=("NpuVigilFaultConfigurationRefused",),
        ),
        Panel(
            "stalls",
            "Tasks without progress",
            "无进展的后台任务",
            "Which task of which daemon makes no progress, and for how long?",
            Kind.TIME_SERIES,
            (
                Query(
                    f"max by (instance, node, task) (npu_vigil_stalled_seconds{{{JOB}}})",
                    "{{node}} {{instance}} {{task}}",
                ),
            ),
            width=12,
            unit="s",
            thresholds=((1, RED),),
            alerts=("NpuVigilTaskStalled",),
        ),
        Panel(
            "clocks",
            "Clocks that are off",
            "时钟偏差",
            "By how much is the clock of a node ahead of the aggregator's, or behind it?",
            Kind.TIME_SERIES,
            (
                Query(
                    cluster("npu_vigil_node_clock_skew_seconds", 'node=~"$node"', "node"),
                    "{{node}}",
                ),
            ),
            width=12,
            unit="s",
            thresholds=(),
            alerts=("NpuVigilClockOff",),
        ),
    )
