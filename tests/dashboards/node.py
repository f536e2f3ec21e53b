"""The dashboard of one node: its faults, its chips, what gives no answer, and what is not out."""

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
    episodes,
    or_zero,
    with_names,
)

_VIEW = "#/node/${node}"
_HEALTH = (
    (0, "healthy / 健康", "green"),
    (1, "minor / 次要", "yellow"),
    (2, "major / 重要", "orange"),
    (3, "critical / 紧急", "red"),
)


def node() -> Dashboard:
    """Return the dashboard."""
    panels = (*_figures(), _faults(), *_chips(), *_agent())
    return Dashboard(
        "node",
        "NPU Vigil: node / 节点",
        "What does a node suffer from, and does its agent see and publish it?",
        tuple(panel._replace(page=_VIEW) for panel in panels),
        is_of_one_node=True,
    )


def _figures() -> tuple[Panel, ...]:
    chips = agents("npu_vigil_chips")
    return (
        Panel(
            "beat",
            "Last heartbeat",
            "最近一次心跳",
            "How long ago did the store accept a heartbeat?",
            Kind.STAT,
            (
                Query(
                    f"time() - max({agents('npu_vigil_heartbeat_last_success_timestamp_seconds')})"
                ),
            ),
            width=6,
            height=5,
            unit="s",
            thresholds=((10, ORANGE), (60, RED)),
            alerts=("NpuVigilAgentStoreAway", "NpuVigilNodeLost"),
        ),
        Panel(
            "active",
            "Active faults",
            "当前故障",
            "How many faults are active?",
            Kind.STAT,
            (Query(or_zero(f"count({agents('npu_vigil_faults')})", chips)),),
            width=6,
            height=5,
            alerts=CHIP_ALERTS,
        ),
        Panel(
            "silent",
            "Chips without answer",
            "无应答的芯片",
            "How many known chips give no answer?",
            Kind.STAT,
            (Query(f"sum({agents('npu_vigil_chips_unknown')})"),),
            width=6,
            height=5,
            alerts=("NpuVigilChipBlind", "NpuVigilNodeBlind"),
        ),
        Panel(
            "used",
            "Chips that pods use",
            "正被 Pod 使用的芯片",
            "How many chips do pods use?",
            Kind.STAT,
            (Query(f"sum({agents('npu_vigil_chips_in_use')})"),),
            width=6,
            height=5,
            thresholds=(),
        ),
    )


def _faults() -> Panel:
    since = with_names(agents(SINCE), "subject, part, code, level, severity")
    return Panel(
        "faults",
        "Faults",
        "故障列表",
        "Which faults are active, on which part, and since when?",
        Kind.TABLE,
        (Query(f"{since} * 1000"),),
        width=24,
        height=9,
        unit="dateTimeAsIso",
        value="since",
        thresholds=(),
        alerts=(*CHIP_ALERTS, "NpuVigilChipSubHealthy", "NpuVigilHostFault"),
    )


def _chips() -> tuple[Panel, ...]:
    return (
        Panel(
            "health",
            "Health of chips",
            "芯片健康状态",
            "What does the driver report of each chip?",
            Kind.STATES,
            (Query(f"max by (chip) ({agents('npu_vigil_chip_health')})", "{{chip}}"),),
            width=12,
            states=_HEALTH,
            alerts=CHIP_ALERTS,
        ),
        Panel(
            "links",
            "Links of chips",
            "芯片网络链路",
            "Which links are down?",
            Kind.STATES,
            (Query(f"min by (chip) ({agents('npu_vigil_link_up')})", "{{chip}}"),),
            width=12,
            states=((0, "down / 断开", "red"), (1, "up / 连通", "green")),
            alerts=("NpuVigilLinkDown",),
        ),
        Panel(
            "sources",
            "Sources without answer",
            "无应答的数据源",
            "Which source gives no answer, about which chip?",
            Kind.STATES,
            (Query(f"max by (source, chip) ({agents('npu_vigil_blind')})", "{{source}} {{chip}}"),),
            width=12,
            alerts=("NpuVigilChipBlind", "NpuVigilNodeBlind"),
        ),
        Panel(
            "calls",
            "Driver calls that do not return",
            "未返回的驱动调用",
            "Which driver calls does the agent skip, because they do not return?",
            Kind.STATES,
            (Query(f"max by (call) ({agents('npu_vigil_driver_stuck_calls')})", "{{call}}"),),
            width=12,
            alerts=("NpuVigilDriverCallStuck",),
        ),
        Panel(
            "rules",
            "Levels that rules raise",
            "被规则提升的级别",
            "Which rule raises which code of which chip, and to which level?",
            Kind.TABLE,
            (Query(f"max by (chip, code, level, rule) ({agents('npu_vigil_upgrades')})"),),
            width=12,
            thresholds=(),
            alerts=("NpuVigilChipIsolated",),
        ),
        episodes(),
    )


def _agent() -> tuple[Panel, ...]:
    return (
        Panel(
            "lag",
            "Changes that wait for the store",
            "等待存储确认的变更",
            "How old is the oldest change that no store has acknowledged?",
            Kind.TIME_SERIES,
            (
                Query(
                    f"max by (document) ({agents('npu_vigil_publication_lag_seconds')})",
                    "{{document}}",
                ),
            ),
            width=12,
            unit="s",
            thresholds=((5, ORANGE), (60, RED)),
            alerts=("NpuVigilNotPublished", "NpuVigilPublicationRefused"),
        ),
        Panel(
            "gaps",
            "Times that events may be lost",
            "可能丢失事件的次数",
            "How often did the driver process restart, or was its queue full? An audit follows.",
            Kind.TIME_SERIES,
            (
                Query(
                    f"sum(increase({agents('npu_vigil_driver_gaps_total')}[$__rate_interval]))",
                    "driver",
                ),
            ),
            width=12,
            alerts=("NpuVigilDriverCallStuck",),
        ),
    )
