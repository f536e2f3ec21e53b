"""Link faults, which the driver and ``hccn_tool`` report: when one outlasts the driver's list.

A driver with link events that does not list the link does not end the fault while the tool may find
the link down: for a moment, or until a blind tool answers again. A driver without events knows of a
link by its list alone, and such chips have no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.policy.state import CHIP_SOURCE, LINK_SOURCE, ChipState, SubjectState
from contract.codes.chip_codes import UB_PORT_DOWN, is_network
from contract.observation import NODE

if TYPE_CHECKING:
    from agent.policy.state import PolicyState
    from contract.observation import Observation


def outlasts_list(known: SubjectState, item: Observation) -> bool:
    """Return whether a fault outlasts its last source, which does not list it any more."""
    if item.source != CHIP_SOURCE:
        return isinstance(known, ChipState) and known.silent
    has_events = not isinstance(known, ChipState) or known.listed is None
    return has_events and _is_of_links(item.code)


def is_tool_blind(known: SubjectState, state: PolicyState) -> bool:
    """Return whether ``hccn_tool`` gives no answer about a chip, or about the node."""
    return LINK_SOURCE in known.blind or LINK_SOURCE in state.of(NODE).blind


def waiting_for_tool(known: SubjectState, since_ms: int | None) -> SubjectState:
    """Return ``known`` with a new deadline for faults that wait for ``hccn_tool``.

    They are unconfirmed since it answered at ``since_ms``; ``None``: it is blind, so they stay.
    """
    changed = {
        code: replace(fault, unconfirmed_at_ms=since_ms)
        for code, fault in known.faults.items()
        if not fault.reported_by and not fault.once and _is_of_links(code)
    }
    return replace(known, faults=known.faults | changed) if changed else known


def _is_of_links(code: str) -> bool:
    return is_network(code) or code == UB_PORT_DOWN
