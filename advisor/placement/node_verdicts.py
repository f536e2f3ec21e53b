"""The verdict about each node that is reported (``consumers#1.8`` and 1.9, R1 to R3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.placement.placement import node_refusal
from advisor.report import Acceptance, NodeVerdict
from advisor.scheduler_view.nodes import NodeHealthState

if TYPE_CHECKING:
    from advisor.scheduler_view.nodes import NodeView


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
        reason = "NotReady" if not view.node.is_ready else "Dropped"
        reasons.append(f"{reason}: the plugin does not have the node, and its pods are at fault")
        if not view.node.is_ready and not view.node.taints:
            reasons.append("NoTaint: upstream, it still takes pods that ask for no chip")
    if not view.is_in_table:
        text = "it has chips and no label accelerator that names them, so its faults move no pod"
        reasons.append(f"NotInFaultTable: {text}")
    if view.card_sub_health:
        reasons.append("SubHealth: a card has fault_handling SubHealthFault")
    if view.switch_sub_health:
        reasons.append("SubHealth: its switch is SubHealthy")
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
