"""The dashboard of the fleet: is something wrong, where, since when, and whose jobs are hit."""

from __future__ import annotations

from tests.dashboards.panel import (
    CHIP_ALERTS,
    ORANGE,
    RED,
    SINCE,
    Dashboard,
    Kind,
    Panel,
    Query,
    agents,
    cluster,
    episodes,
    or_zero,
    with_names,
)

_SEPARATED = agents(
    "",
    '__name__=~"npu_vigil_faults|npu_vigil_upgrades",chip!="",level=~".*SeparateNPU"',
)


def fleet() -> Dashboard:
    """Return the dashboard."""
    return Dashboard(
        "fleet",
        "NPU Vigil: fleet / 集群",
        "Is something wrong in the fleet, where, since when, and whose jobs are hit?",
        (*_figures(), _alerts(), *_faults(), *_nodes()),
    )


def _figures() -> tuple[Panel, ...]:
    return (
        Panel(
            "alive",
            "Nodes with heartbeats",
            "有心跳的节点",
            "How many nodes send heartbeats?",
            Kind.STAT,
            (Query(cluster("npu_vigil_heartbeats", 'state="alive"', function="sum")),),
            width=4,
            height=5,
            thresholds=(),
            alerts=("NpuVigilManyNodesSilent",),
        ),
        Panel(
            "lost",
            "Lost nodes",
            "失联的节点",
            "How many nodes were silent for more than 3 intervals?",
            Kind.STAT,
            (Query(cluster("npu_vigil_heartbeats", 'state="lost"', function="sum")),),
            width=4,
            height=5,
            alerts=("NpuVigilNodeLost", "NpuVigilManyNodesSilent"),
        ),
        Panel(
            "blind",
            "Blind nodes",
            "数据源无应答的节点",
            "On how many nodes does a source give no answer?",
            Kind.STAT,
            (Query(cluster("npu_vigil_blind_nodes", 'state="blind"', function="sum")),),
            width=4,
            height=5,
            thresholds=((1, ORANGE),),
            alerts=("NpuVigilNodeBlind", "NpuVigilChipBlind"),
        ),
        Panel(
            "separated",
            "Separated chips",
            "已隔离的芯片",
            "How many chips get no new pods because of a fault, a rule or an operator?",
            Kind.STAT,
            (
                Query(
                    or_zero(
                        f"count(count by (node, chip) ({_SEPARATED}))", agents("npu_vigil_chips")
                    )
                ),
            ),
            width=4,
            height=5,
            alerts=(*CHIP_ALERTS, "NpuVigilChipIsolated"),
        ),
        Panel(
            "jobs",
            "Jobs with faults",
            "受故障影响的任务",
            "How many jobs have a fault on their nodes or chips?",
            Kind.STAT,
            (Query(cluster("npu_vigil_jobs_with_faults", 'health!="Healthy"', function="sum")),),
            width=4,
            height=5,
            page="#/jobs",
            alerts=("NpuVigilChipSeparated", "NpuVigilChipToRestart"),
        ),
        Panel(
            "stores",
            "Stores without answer",
            "无应答的存储",
            "How many stores give the aggregator no changes, so that all the rest is old?",
            Kind.STAT,
            (
                Query(
                    f"count({cluster('npu_vigil_store_connected', by='store')} == 0)\n"
                    f"or on () 0 * {cluster('npu_vigil_ready')}"
                ),
            ),
            width=4,
            height=5,
            alerts=("NpuVigilStoreAway",),
        ),
    )


def _alerts() -> Panel:
    return Panel(
        "alerts",
        "Alerts that fire",
        "正在触发的告警",
        "Which alerts of NPU Vigil fire, and since when? It needs the rules.",
        Kind.STATES,
        (
            Query(
                'count by (alertname) (ALERTS{alertname=~"NpuVigil.+",alertstate="firing"})',
                "{{alertname}}",
            ),
        ),
        width=24,
        height=6,
        alerts=("NpuVigilNodeLost", "NpuVigilStoreAway", "NpuVigilNoLeader"),
    )


def _faults() -> tuple[Panel, ...]:
    since = with_names(agents(SINCE), "node, subject, part, code, level")
    return (
        Panel(
            "faults",
            "Newest faults",
            "最新的故障",
            "Which 100 faults began last, where, and since when?",
            Kind.TABLE,
            (Query(f"topk(100, {since}) * 1000"),),
            width=24,
            height=10,
            unit="dateTimeAsIso",
            value="since",
            thresholds=(),
            alerts=CHIP_ALERTS,
        ),
        Panel(
            "levels",
            "Chips with faults, by level",
            "各级别故障的芯片",
            "How many chips have a fault of each level?",
            Kind.TIME_SERIES,
            (Query(cluster("npu_vigil_cluster_faults", by="level", function="sum"), "{{level}}"),),
            width=12,
            thresholds=(),
            alerts=CHIP_ALERTS,
        ),
        episodes(),
        Panel(
            "parts",
            "Faults of servers, switches and other programs",
            "服务器、交换机及其他程序的故障",
            "How many faults have parts of servers and on-board switches, and how many are public?",
            Kind.TIME_SERIES,
            (
                Query(
                    cluster("npu_vigil_cluster_server_faults", by="level", function="sum"),
                    "server: {{level}}",
                ),
                Query(
                    cluster("npu_vigil_cluster_switch_faults", by="level", function="sum"),
                    "switch: {{level}}",
                ),
                Query(cluster("npu_vigil_public_faults_active"), "public"),
            ),
            width=8,
            thresholds=(),
            alerts=("NpuVigilHostFault", "NpuVigilSwitchFault", "NpuVigilPublicFault"),
        ),
    )


def _nodes() -> tuple[Panel, ...]:
    return (
        Panel(
            "heartbeats",
            "Oldest heartbeats",
            "最久未更新的心跳",
            "Which nodes have been silent longest?",
            Kind.TABLE,
            (Query(cluster("npu_vigil_heartbeat_age_seconds", 'node=~"$node"', "node")),),
            width=8,
            unit="s",
            value="age",
            thresholds=((10, ORANGE), (60, RED)),
            alerts=("NpuVigilNodeLost", "NpuVigilAgentDown"),
        ),
        Panel(
            "sources",
            "Sources without answer",
            "无应答的数据源",
            "Which source gives no answer about which node or chip, and since when?",
            Kind.TABLE,
            (
                Query(
                    cluster(
                        "npu_vigil_cluster_blind_since_timestamp_seconds",
                        'node=~"$node"',
                        "node, chip, source",
                    )
                    + " * 1000"
                ),
            ),
            width=8,
            unit="dateTimeAsIso",
            value="since",
            thresholds=(),
            alerts=("NpuVigilChipBlind", "NpuVigilNodeBlind"),
        ),
    )
