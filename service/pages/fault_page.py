"""What ``/api/v1/faults`` has at both daemons."""

from __future__ import annotations

from contract.pages.faults import FaultsPage, FaultStatus
from service.pages.operations import Operation, Parameter
from service.pages.page_rows import PAGING, PageRows

LEVEL = Parameter("level", "Only faults at this level", is_repeatable=True)
CODE = Parameter("code", "Only faults with this code", is_repeatable=True)
NODES = Parameter("node", "Only what is about this node", is_repeatable=True)

OPERATION = Operation(
    "/api/v1/faults", "Every fault that holds", FaultsPage, (NODES, LEVEL, CODE, *PAGING)
)


def key_of(fault: FaultStatus) -> tuple[str, ...]:
    """Return what orders faults."""
    return fault.node, fault.subject, fault.code, fault.fault_type


FAULT_ROWS: PageRows[FaultStatus] = PageRows(
    "faults",
    key_of,
    {
        "node": lambda fault: (fault.node,),
        "level": lambda fault: (fault.level,),
        "code": lambda fault: (fault.code,),
    },
)
