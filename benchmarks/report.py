"""Figures of a latency run, for people and for machines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.visibility import Change

BMC_PERIOD_SECONDS = 10.0
"""How often an agent asks its BMC."""

TARGETS = ("device-info", "cluster-info")
HOST_TARGETS = ("node-info", "cluster-info")
"""Where faults of the server are shown."""
TAINT_TARGETS = ("cluster-info", "taint")
"""Where faults are shown that taint the Node."""
# Design section 8: times the bare p50, and milliseconds.
_P50_BUDGET_RATIO = {"device-info": 3.0, "cluster-info": 6.0, "taint": 4.5}
_P99_BUDGET_MS = {"device-info": 60.0, "cluster-info": 150.0, "taint": 200.0}
_BUDGETED = ("single", "burst", "links", "switch", "taint")
_BMC_BUDGET_MS = BMC_PERIOD_SECONDS * 1000 + 100
_VERDICTS = {True: "held", False: "missed", None: ""}
_START_BUDGET_SECONDS = 2.0


def quantile_ms(seconds: Sequence[float], quantile: float) -> float:
    """Return the smallest value that ``quantile`` of all do not exceed, in milliseconds."""
    rank = max(math.ceil(quantile * len(seconds)), 1)
    return sorted(seconds)[rank - 1] * 1000


@dataclass(frozen=True)
class Row:
    """One kind of change in one pattern until one kind of document shows it."""

    pattern: str
    kind: str
    target: str
    count: int
    lost: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    p50_ratio: float

    @property
    def is_within_budget(self) -> bool | None:
        """Whether it holds what is demanded of it, if anything is."""
        if self.target == "node-info":
            return not self.lost and self.max_ms <= _BMC_BUDGET_MS
        if self.pattern not in _BUDGETED:
            return None
        return (
            not self.lost
            and self.p50_ratio <= _P50_BUDGET_RATIO[self.target]
            and self.p99_ms <= _P99_BUDGET_MS[self.target]
        )


@dataclass(frozen=True)
class Pattern:
    """The changes of one pattern, and what a bare write took meanwhile, in seconds."""

    name: str
    changes: Sequence[Change]
    bare: Sequence[float]
    targets: tuple[str, str] = TARGETS
    """The node's document and the cluster's, or other places where it is shown."""

    def row(self, occurs: bool, target: str) -> Row:
        """Return the figures for one kind of change and one kind of document."""
        changes = [change for change in self.changes if change.occurs == occurs]
        at = [_shown_at(change, target) for change in changes]
        seconds = [
            then - change.at for change, then in zip(changes, at, strict=True) if then is not None
        ]
        p50, p99, most = (
            (quantile_ms(seconds, q) if seconds else math.inf) for q in (0.5, 0.99, 1.0)
        )
        return Row(
            pattern=self.name,
            kind="occur" if occurs else "recover",
            target=target,
            count=len(changes),
            lost=len(changes) - len(seconds),
            p50_ms=p50,
            p99_ms=p99,
            max_ms=most,
            p50_ratio=p50 / quantile_ms(self.bare, 0.5),
        )


def _shown_at(change: Change, target: str) -> float | None:
    # Documents of a node have several names, and one time.
    others = {"cluster-info": change.cluster_info_at, "taint": change.taint_at}
    return others.get(target, change.device_info_at)


@dataclass(frozen=True)
class Report:
    """All that was measured. ``start``: seconds from each agent's start to its device-info."""

    start: Sequence[float]
    patterns: Sequence[Pattern]
    interruptions: Sequence[str]

    def lost(self) -> int:
        """Return how many changes never became visible in one of the documents."""
        return sum(not change.seen.is_set() for one in self.patterns for change in one.changes)

    def rows(self) -> list[Row]:
        """Return one row for each pattern, kind of change and kind of document."""
        return [
            pattern.row(occurs, target)
            for pattern in self.patterns
            for occurs in (True, False)
            for target in pattern.targets
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the figures for programs. Times are in milliseconds, but of the start in
        seconds.
        """
        return {
            "bare": [
                {
                    "pattern": pattern.name,
                    "count": len(pattern.bare),
                    "p50_ms": _rounded(quantile_ms(pattern.bare, 0.5)),
                    "p99_ms": _rounded(quantile_ms(pattern.bare, 0.99)),
                }
                for pattern in self.patterns
            ],
            "start_to_device_info_seconds": [round(one, 3) for one in self.start],
            "latency": [
                {
                    "pattern": row.pattern,
                    "kind": row.kind,
                    "target": row.target,
                    "count": row.count,
                    "lost": row.lost,
                    "p50_ms": _rounded(row.p50_ms),
                    "p99_ms": _rounded(row.p99_ms),
                    "max_ms": _rounded(row.max_ms),
                    "p50_times_bare": _rounded(row.p50_ratio),
                    "within_budget": row.is_within_budget,
                }
                for row in self.rows()
            ],
            "watch_interruptions": list(self.interruptions),
        }


def _rounded(value: float) -> float | None:
    # JSON knows no infinity, which stands for "never".
    return round(value, 2) if math.isfinite(value) else None


def print_table(report: Report) -> None:
    """Print the figures for people on standard output."""
    console = Console(width=100)
    table = Table(title="driver event to visible, ms")
    for heading in ("pattern", "change", "until"):
        table.add_column(heading)
    for heading in ("n", "p50", "p99", "max", "p50 / bare", "budget"):
        table.add_column(heading, justify="right")
    for pattern in report.patterns:
        bare = [f"{quantile_ms(pattern.bare, q):.1f}" for q in (0.5, 0.99, 1.0)]
        table.add_row(pattern.name, "bare write", "watch", str(len(pattern.bare)), *bare, "1.0", "")
        for occurs in (True, False):
            for target in pattern.targets:
                row = pattern.row(occurs, target)
                table.add_row(
                    "",
                    row.kind,
                    target,
                    str(row.count) + (f" ({row.lost} lost)" if row.lost else ""),
                    f"{row.p50_ms:.1f}",
                    f"{row.p99_ms:.1f}",
                    f"{row.max_ms:.1f}",
                    f"{row.p50_ratio:.1f}",
                    _VERDICTS[row.is_within_budget],
                )
        table.add_section()
    console.print(table)
    start = ", ".join(f"{one:.2f}" for one in report.start)
    verdict = _VERDICTS[max(report.start) <= _START_BUDGET_SECONDS]
    console.print(f"agent start to first device-info: {start} s (budget 2 s: {verdict})")
    for reason in report.interruptions:
        console.print(f"the watch was interrupted: {reason}")
