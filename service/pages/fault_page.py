"""What ``/api/v1/faults`` has at both daemons."""

from __future__ import annotations

from contract.pages.faults import FaultsPage, FaultStatus, key_of
from service.pages.operations import Operation
from service.pages.page_rows import PAGING, PageRows
from service.pages.parameters import Parameter

LEVEL = Parameter("level", "Only faults at this level", is_repeatable=True)
CODE = Parameter("code", "Only faults with this code", is_repeatable=True)
NODES = Parameter("node", "Only what is about this node", is_repeatable=True)

OPERATION = Operation(
    "/api/v1/faults", "Every fault that holds", FaultsPage, (NODES, LEVEL, CODE, *PAGING)
)


FAULT_ROWS: PageRows[FaultStatus] = PageRows(
    "faults",
    key_of,
    {
        "node": lambda fault: (fault.node,),
        "level": lambda fault: (fault.level,),
        "code": lambda fault: (fault.code,),
    },
)
