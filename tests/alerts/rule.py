"""Describe an alert rule, and build the expressions that several rules share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.codes.reference import CodeKind, LevelText

AGENT = 'job="npu-vigil-agent"'
AGGREGATOR = 'job="npu-vigil-aggregator"'
CRITICAL, WARNING = "critical", "warning"

CHOSEN = "npu_vigil:aggregator:chosen"
"""The aggregator whose view of the cluster counts."""
LIMIT = "npu_vigil:nodes:limit"
"""With more nodes than these, one alert replaces an alert for each node."""
STORE_AWAY = "npu_vigil:store:away"
NODE_LOST = "npu_vigil:node:lost"
MANY_SILENT = "npu_vigil:nodes:many_silent"


class Rule(NamedTuple):
    """An alert; ``lasts`` is its ``for``, and ``severity`` may be a template.

    ``levels`` has the texts of each level of ``kind`` that a rule about faults covers. Other rules
    have ``when``, ``effect`` and ``remedy``. ``commands`` are for the runbook.
    """

    name: str
    component: str
    severity: str
    lasts: str
    expression: str
    summary: str
    when: str
    commands: tuple[str, ...]
    effect: str = ""
    remedy: str = ""
    kind: CodeKind | None = None
    levels: Mapping[str, LevelText] = {}

    @property
    def description(self) -> str:
        """Return the effect on jobs and what to do, as a template where it depends on the level."""
        if not self.levels:
            return f"{self.effect} {self.remedy}"
        return "".join(
            f'{{{{ if eq $labels.level "{level}" }}}}{text.effect} {text.remedy}{{{{ end }}}}'
            for level, text in self.levels.items()
        )

    @property
    def runbook(self) -> str:
        """Return the path of the runbook in the source of NPU Vigil, with its heading."""
        return f"docs/runbooks.md#{self.name.lower()}"


def with_names(selector: str, by: str, function: str = "max") -> str:
    """Return active codes with the labels ``by`` and the names of their codes.

    The join stays within a target: agents of two releases may have two names for a code, and a
    join over both would fail. A code without a name stays, too.
    """
    return (
        f"{function} by ({by}, name_en, name_zh) (\n"
        f"  {selector} * on (instance, code) group_left (name_en, name_zh) npu_vigil_fault_info\n"
        f"  or ignoring (name_en, name_zh) {selector}\n"
        ")"
    )


def of_cluster(selector: str, by: str = "", function: str = "max") -> str:
    """Return samples of the chosen aggregator only; replicas do not add to the labels ``by``."""
    grouped = f" by ({by}) " if by else ""
    return f"{function}{grouped}({selector} and on (instance) {CHOSEN})"


def single_or_many(expression: str) -> str:
    """Return an alert for each node, or a single one without ``node`` beyond the limit."""
    many = f"count(count by (node) ({expression})) > {LIMIT}"
    return f"({expression}) unless on () {many}\nor {many}"


def summary_of_nodes(single: str, many: str) -> str:
    """Return the summary of ``single_or_many``; ``many`` follows the number of nodes."""
    return (
        f"{{{{ if $labels.node }}}}{single}{{{{ else }}}}{{{{ $value }}}} nodes {many}{{{{ end }}}}"
    )


RECORDED = {
    # The leader; where no aggregator leads, the one that read heartbeats last.
    CHOSEN: (
        "max by (instance) (npu_vigil_aggregator_leader == 1)\n"
        "or on () topk(1, -max by (instance) (npu_vigil_heartbeats_last_read_age_seconds))"
    ),
    # As the brake of the aggregator: more than 3 nodes and more than a fifth of all.
    LIMIT: (
        f"clamp_min(max({of_cluster('npu_vigil_heartbeats', 'instance', 'sum')}) / 5, 3)\n"
        f"or on () clamp_min(count(up{{{AGENT}}}) / 5, 3)"
    ),
    STORE_AWAY: (
        f"{of_cluster('npu_vigil_store_connected == 0', 'store', 'count')}\n"
        f"or on () count(max by (node) (npu_vigil_heartbeat_failing == 1)) > {LIMIT}"
    ),
    NODE_LOST: of_cluster("npu_vigil_node_lost == 1", "node"),
    MANY_SILENT: (
        f"(\n  {of_cluster('npu_vigil_node_lost_brake == 1')}\n"
        f"  or on () count({NODE_LOST}) > {LIMIT}\n"
        f"  or on () count(max by (node) (up{{{AGENT}}} == 0)) > {LIMIT}\n"
        f") unless on () {STORE_AWAY}"
    ),
}
"""Recorded series by name; each may use those before it."""
