"""The pages of the agent: paths, parameters and types of their answers."""

from __future__ import annotations

from agent.pages.status import AgentStatus
from contract.pages.changes import BlindChange, FaultChange
from service.pages import event_stream, fault_page, history_page
from service.pages.operations import Operation

OPERATIONS: tuple[Operation, ...] = (
    Operation("/api/v1/status", "Everything that this agent knows of its node", AgentStatus),
    fault_page.OPERATION,
    history_page.OPERATION,
    Operation(
        event_stream.PATH,
        "Changes as they happen. Events are change (of the faults of the node), blind (sources "
        "that give the agent no answer), and gap where some are lost",
        FaultChange,
        event_stream.PARAMETERS,
        content="text/event-stream",
        or_else=(BlindChange,),
    ),
)
