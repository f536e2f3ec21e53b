"""The budgets of one aggregator, what the Go program was measured to need, and our figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CHIPS = 8
"""Budgets and the Go program's figures are for nodes of so many chips."""


@dataclass(frozen=True)
class Line:
    """One figure: its key in the results, what it is called, its unit and decimals.

    ``go`` is the Go program's figure and ``budget`` the most allowed, by number of nodes.
    """

    key: str
    name: str
    unit: str
    decimals: int = 0
    go: Mapping[int, str] | None = None
    budget: Mapping[int, float] | None = None

    @property
    def is_time(self) -> bool:
        """Return whether it is a time of the clock or a quotient of two, not processor time."""
        is_duration = self.unit in ("s", "ms") and "cpu" not in self.key
        return is_duration or self.key.endswith("_times")


def _both(small: Any, large: Any) -> dict[int, Any]:
    return {1000: small, 10_000: large}


_OF_LARGE_P50 = {10_000: 1.5, 50_000: 1.5}
_OF_LARGE_P99 = {10_000: 2.0, 50_000: 2.0}

LINES = (
    Line("fill_s", "(generator: all device-infos created)", "s", 1),
    Line(
        "complete_s",
        "process start → all nodes in cluster-info",
        "s",
        2,
        {10_000: "6.3"},
        {10_000: 5.0, 50_000: 10.0, 100_000: 30.0},
    ),
    Line("start_cpu_s", "CPU until then", "s", 2),
    Line("start_peak_mb", "RSS, peak until then", "MB"),
    Line("server_cpu_s", "(API server: CPU until then)", "s", 2),
    Line("server_mb", "(API server: RSS then)", "MB"),
    Line("rss_mb", "RSS at rest", "MB", 0, _both("78", "262"), _both(110, 262)),
    Line("pss_mb", "PSS at rest", "MB", 0, None, {10_000: 110, 50_000: 300}),
    Line("peak_mb", "RSS, peak", "MB", 0, {10_000: "292"}, {10_000: 350, 100_000: 600}),
    Line(
        "rest_cpu_s",
        "CPU at rest, per minute",
        "s",
        2,
        _both("1", "13"),
        _both(0.5, 1.5) | {50_000: 1.5, 100_000: 3.0},
    ),
    Line("leases_cpu_s", "the same with Leases every 15 s", "s", 2, None, {10_000: 3.0}),
    Line("leases_late_s", "(generator: latest behind its schedule)", "s", 2),
    Line(
        "rest_data_writes",
        "data rewritten at rest, documents",
        "",
        0,
        {10_000: "50 MB"},
        _both(0, 0),
    ),
    Line("rest_touches", "touches at rest, per minute", ""),
    Line("bare_p50_ms", "one small ConfigMap → a watch shows it, p50", "ms", 1),
    Line("bare_p99_ms", "p99", "ms", 1),
    Line("large_p50_ms", "one as large as a cluster document, p50", "ms", 1),
    Line("large_p99_ms", "p99", "ms", 1),
    Line(
        "change_p50_ms",
        "one change → visible, p50",
        "ms",
        1,
        _both("340–610", "1000–1300"),
        _both(30, 100),
    ),
    Line("change_p99_ms", "p99", "ms", 1, _both("1000", "1650"), _both(100, 250)),
    Line("change_p50_times", "times the large ConfigMap, p50", "", 2, None, _OF_LARGE_P50),
    Line("change_p99_times", "p99", "", 2, None, _OF_LARGE_P99),
    Line("change_kb", "sent per change", "KB", 0, {10_000: "2600"}, {10_000: 300}),
    Line("change_kept", "documents of kept state written per change", "", 2),
    Line("change_cpu_ms", "CPU per change", "ms", 1),
    Line("documents", "device documents", ""),
    Line("storm_written_s", "(generator: storm of 5 % of the nodes written)", "s", 2),
    Line("storm_s", "the storm absorbed, from its first write", "s", 2, None, {10_000: 5.0}),
    Line("storm_writes_s", "writes in the busiest second of it", "", 0, None, {10_000: 20}),
    Line("storm_writes", "writes in all", ""),
    Line("storm_kept", "of them kept state", ""),
    Line("gap_term_s", "leader terminated: longest change", "s", 2, None, {10_000: 1.0}),
    Line("gap_kill_s", "leader killed (its Lease is for 10 s)", "s", 2, None, {10_000: 12.0}),
    Line("gap_pause_s", "leader paused", "s", 2, None, {10_000: 12.0}),
    Line("full_again_s", "real cluster: process start → ready again", "s", 2),
    Line("full_rss_mb", "RSS at rest", "MB"),
    Line("full_peak_mb", "RSS, peak", "MB"),
    Line("full_cpu_s", "CPU per minute", "s", 2),
    Line("full_data_writes", "data rewritten, documents", ""),
    Line("full_bare_p50_ms", "one small ConfigMap → a watch shows it, p50", "ms", 1),
    Line("full_change_p50_ms", "one change → visible, p50", "ms", 1),
    Line("full_change_p99_ms", "p99", "ms", 1),
    Line("follower_rss_mb", "second replica: RSS at rest", "MB"),
    Line("follower_peak_mb", "second replica: RSS, peak", "MB"),
    Line("follower_cpu_s", "second replica: CPU per minute", "s", 2),
    Line("advice_rss_mb", "with advice: RSS at rest", "MB", 0, None, {10_000: 262}),
    Line("advice_end_rss_mb", "RSS after the changes", "MB", 0, None, {10_000: 262}),
    Line("advice_peak_mb", "RSS, peak", "MB", 0, None, {10_000: 350}),
    Line("advice_cpu_s", "CPU at rest, per minute", "s", 2, None, {10_000: 1.5}),
    Line("advice_bare_p50_ms", "one small ConfigMap → a watch shows it, p50", "ms", 1),
    Line("advice_change_p50_ms", "one change → visible, p50", "ms", 1, None, {10_000: 100}),
    Line("advice_change_p99_ms", "p99", "ms", 1, None, {10_000: 250}),
    Line("advice_change_kb", "sent per change", "KB", 0, None, {10_000: 300}),
    Line("advice_change_cpu_ms", "CPU per change", "ms", 1),
    Line("no_dpus_rss_mb", "started without documents of RDMA plugins: RSS at rest", "MB", 1),
    Line("no_dpus_cpu_s", "CPU per minute", "s", 2),
    Line("dpus_rss_mb", "with one for each node: RSS at rest", "MB", 1),
    Line("dpus_cpu_s", "CPU per minute", "s", 2),
    Line("dpus_more_rss_mb", "RSS, difference", "MB", 1, None, {10_000: 6}),
    Line("dpus_more_cpu_s", "CPU per minute, difference", "s", 2, None, {10_000: 0.3}),
    Line("dpus_shown", "faults that are shown", ""),
    Line("doubled", "nodes in two documents at the end", "", 0, None, _both(0, 0)),
)


def without_times(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result without its times, which a played API server does not show."""
    times = {line.key for line in LINES if line.is_time}
    return {key: figure for key, figure in result.items() if key not in times}


def held(line: Line, result: Mapping[str, Any]) -> bool | None:
    """Return whether a figure is within its budget, if it has one and was measured."""
    budget = None if line.budget is None else line.budget.get(result["nodes"])
    if budget is None or result["chips"] != _CHIPS or line.key not in result:
        return None
    return bool(result[line.key] <= budget)


def missed(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return which budgets were missed, in words."""
    return [
        f"{one['nodes']} nodes: {line.name} ({line.key}) is {one[line.key]}"
        for one in results
        for line in LINES
        if held(line, one) is False
    ]


def print_table(result: Mapping[str, Any]) -> None:
    """Print the figures of one size of cluster for people."""
    table = Table(title=f"{result['nodes']} nodes × {result['chips']} chips")
    table.add_column("")
    for heading in ("Go, measured", "ours", "budget", ""):
        table.add_column(heading, justify="right")
    compared = result["chips"] == _CHIPS
    for line in LINES:
        if line.key not in result:
            continue
        go = (line.go or {}).get(result["nodes"], "") if compared else ""
        budget = (line.budget or {}).get(result["nodes"]) if compared else None
        table.add_row(
            line.name,
            go,
            f"{result[line.key]:.{line.decimals}f} {line.unit}".strip(),
            "" if budget is None else f"≤ {budget:g}",
            {True: "held", False: "MISSED", None: ""}[held(line, result)],
        )
    console = Console(width=110)
    console.print(table)
    load = ", ".join(f"{one:.1f}" for one in result["load"])
    console.print(f"load of the machine (1 min) at the beginning and the end: {load}")
