"""What is reported of each node, updated from session to session of one profile.

The verdict about a node is that of ``consumers#1.8`` and 1.9, R1 to R3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.checks.cluster import is_ahead, node_findings
from advisor.layered_dict import ChunkedRows
from advisor.placement.placement import node_refusal
from advisor.report import Acceptance, Finding, NodeVerdict
from advisor.scheduler_view.nodes import NodeHealthState
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from advisor.scheduler_view.cluster_cache import ClusterCache
    from advisor.scheduler_view.nodes import NodeView

# Many nodes have the same reasons, so each sentence is made once.
_NOT_READY = sentence("NotReady: the plugin does not have the node, and its pods are at fault")
_DROPPED = sentence("Dropped: the plugin does not have the node, and its pods are at fault")
_NO_TAINT = sentence("NoTaint: upstream, it still takes pods that ask for no chip")
_NOT_IN_TABLE = sentence(
    "NotInFaultTable: it has chips and no label accelerator that names them, so its faults move "
    "no pod"
)
_SUB_HEALTHY_CARD = sentence("SubHealth: a card has fault_handling SubHealthFault")
_SUB_HEALTHY_SWITCH = sentence("SubHealth: its switch is SubHealthy")


class NodeReports:
    """Verdicts of all nodes, and findings about some."""

    def __init__(self) -> None:
        self.verdicts: ChunkedRows[NodeVerdict] = ChunkedRows()
        """By name."""
        self.findings: dict[str, tuple[Finding, ...]] = {}
        self.divergences: dict[str, tuple[tuple[int, str], ...]] = {}
        """By node, the sections of consumers#8 with the difference from the real programs."""
        self._names: tuple[str, ...] = ()
        self._places: dict[str, int] = {}
        self._ahead: set[str] = set()

    def update(
        self,
        names: tuple[str, ...],
        views: Mapping[str, NodeView],
        looked_at: Iterable[str],
        cache: ClusterCache,
        now: int,
    ) -> None:
        """Update to a session with the nodes ``names``, in order; some were looked at."""
        # Time alone changes whether a stamp is ahead, so these nodes are looked at again.
        again = {*looked_at, *self._ahead}
        others: dict[int, NodeVerdict] = {}
        # By identity: the index keeps the tuple as long as no node comes or goes.
        if names is not self._names:
            self._names = names
            self._places = {name: place for place, name in enumerate(names)}
            before = {node_verdict.node: node_verdict for node_verdict in self.verdicts}
            self.verdicts = ChunkedRows(before.get(name) or verdict(views[name]) for name in names)
        for name in again:
            self.findings.pop(name, None)
            self.divergences.pop(name, None)
            self._ahead.discard(name)
            view = views.get(name)
            if view is None:
                continue
            node_verdict, place = verdict(view), self._places[name]
            if node_verdict != self.verdicts[place]:
                others[place] = node_verdict
            if view.divergences:
                self.divergences[name] = view.divergences
            if findings := tuple(node_findings(view, cache, now)):
                self.findings[name] = findings
            if is_ahead(name, cache, now):
                self._ahead.add(name)
        if others:
            self.verdicts = self.verdicts.replaced(others)

    def diverging(self, further: Iterable[tuple[int, str, str]]) -> Iterable[Finding]:
        """Return the differences from the real programs about nodes, as findings (consumers#8)."""
        names = set(further)
        for name, divergences in self.divergences.items():
            names.update((section, name, text) for section, text in divergences)
        for section, node, text in sorted(names):
            yield Finding.divergence(f"Node {node}", text, section)


def acceptance(view: NodeView) -> Acceptance:
    """Return which new pods a node accepts (R3)."""
    if node_refusal(view) or not view.node.is_ready or not view.is_in_table:
        return Acceptance.NONE
    if view.card_sub_health or view.switch_sub_health:
        return Acceptance.ONLY_IGNORE_STRATEGY
    return Acceptance.ALL


def verdict(view: NodeView) -> NodeVerdict:
    """Return the verdict about a node."""
    reasons = []
    if reason := node_refusal(view):
        reasons.append(reason)
    if not view.is_in_map:
        reasons.append(_NOT_READY if not view.node.is_ready else _DROPPED)
        if not view.node.is_ready and not view.node.taints:
            reasons.append(_NO_TAINT)
    if not view.is_in_table:
        reasons.append(_NOT_IN_TABLE)
    if view.card_sub_health:
        reasons.append(_SUB_HEALTHY_CARD)
    if view.switch_sub_health:
        reasons.append(_SUB_HEALTHY_SWITCH)
    return NodeVerdict(
        node=view.name,
        state=view.state if view.is_in_map else NodeHealthState.NODE,
        accept_new=acceptance(view),
        switch_sub_health=view.switch_sub_health,
        card_sub_health=view.card_sub_health,
        unhealthy=view.unhealthy,
        network_unhealthy=view.network_unhealthy or (),
        reasons=tuple(reasons),
    )
