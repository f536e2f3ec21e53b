"""Describe dashboards and panels, and build the expressions that several panels share."""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from tests.alerts.rule import CHOSEN, RECORDED

JOB = 'job=~"$job"'
AGENT = f'{JOB},node=~"$node"'
"""Matchers of agents: only their targets have the label ``node``."""
GREEN, ORANGE, RED = "green", "orange", "red"
UP = f"up{{{AGENT}}}"
SINCE = "npu_vigil_fault_since_timestamp_seconds"
CHIP_ALERTS = ("NpuVigilChipSeparated", "NpuVigilChipToRestart", "NpuVigilChipPreSeparated")

# Rules record this series, but dashboards must work where nobody has loaded the rules.
_LEADER = re.sub(r"(npu_vigil_\w+)", rf"\1{{{JOB}}}", RECORDED[CHOSEN])


class Kind(enum.Enum):
    """A panel of Grafana's core."""

    STAT = "stat"
    TIME_SERIES = "timeseries"
    TABLE = "table"
    STATES = "state-timeline"
    HEATMAP = "heatmap"


class Query(NamedTuple):
    """An expression, and the legend of its series."""

    expression: str
    legend: str = ""


class Panel(NamedTuple):
    """A panel with its title in two languages; ``answers`` is its question, in the document too.

    ``thresholds`` are values from which a colour holds; below the first it is green. ``states`` are
    texts of values. ``value`` is the heading of the values of a table, which shows none without it.
    ``alerts`` have the runbooks to which the panel links, and ``page`` is a view of our own page.
    """

    key: str
    english: str
    chinese: str
    answers: str
    kind: Kind
    queries: tuple[Query, ...]
    width: int
    height: int = 8
    unit: str = "short"
    thresholds: tuple[tuple[float, str], ...] = ((1, RED),)
    states: tuple[tuple[int, str, str], ...] = ()
    value: str = ""
    alerts: tuple[str, ...] = ()
    page: str = "#/fleet"


class Dashboard(NamedTuple):
    """A dashboard; ``name`` is the last part of its file, uid and ConfigMap."""

    name: str
    title: str
    question: str
    panels: tuple[Panel, ...]
    is_of_one_node: bool = False


def agents(metric: str, matchers: str = "") -> str:
    """Return samples of the chosen agents."""
    return f"{metric}{{{','.join(filter(None, (AGENT, matchers)))}}}"


def cluster(metric: str, matchers: str = "", by: str = "", function: str = "max") -> str:
    """Return samples of the aggregator that leads; without a leader, of the one that read last."""
    grouped = f" by ({by}) " if by else ""
    selected = f"{metric}{{{','.join(filter(None, (JOB, matchers)))}}}"
    return f"{function}{grouped}({selected} and on (instance) ({_LEADER}))"


def or_zero(expression: str, base: str) -> str:
    """Return 0 in place of no series, but only while ``base`` has series: blind is not 0."""
    return f"{expression}\nor on () 0 * count({base})"


def with_names(selector: str, by: str) -> str:
    """Return active codes with the labels ``by`` and the name of each code in one language.

    The join stays within a target, as in the rules. A code without a name stays, too.
    """
    return (
        f"max by ({by}, name_$lang) (\n"
        f"  {selector} * on (instance, code) group_left (name_$lang) npu_vigil_fault_info\n"
        f"  or ignoring (name_$lang) {selector}\n"
        ")"
    )


def episodes() -> Panel:
    """Return the panel that also shows a fault between two scrapes, of the chosen agents."""
    return Panel(
        "episodes",
        "Faults that began",
        "新发生的故障",
        "How many faults began, those included that were over before a scrape?",
        Kind.TIME_SERIES,
        (
            Query(
                "sum by (level) "
                f"(increase({agents('npu_vigil_fault_episodes_total')}[$__rate_interval])) > 0",
                "{{level}}",
            ),
        ),
        width=12,
        thresholds=(),
        alerts=("NpuVigilShortFault",),
    )
