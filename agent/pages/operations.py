"""The pages of the agent: paths, parameters and types of their answers."""

from __future__ import annotations

import msgspec

from agent.pages.status import AgentStatus, HeldFaultStatus
from contract.pages.changes import BlindChange, FaultChange
from service import event_stream, history_page
from service.operations import Operation


class AgentFaultsPage(msgspec.Struct, frozen=True):
    """Every fault of the node that holds now. ``stream``: the newest event that it contains."""

    node: str
    at_ms: int
    stream: str
    faults: tuple[HeldFaultStatus, ...]


OPERATIONS: tuple[Operation, ...] = (
    Operation("/api/v1/status", "Everything that this agent knows of its node", AgentStatus),
    Operation("/api/v1/faults", "Every fault that holds", AgentFaultsPage),
    history_page.OPERATION,
    Operation(
        event_stream.PATH,
        "Changes as they happen: events change (of the faults of the node), blind (of which "
        "sources give the agent no answer), and gap where some are lost",
        FaultChange,
        event_stream.PARAMETERS,
        content="text/event-stream",
        or_else=(BlindChange,),
    ),
)
