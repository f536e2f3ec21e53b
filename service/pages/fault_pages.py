"""The pages about faults that both daemons have: faults that hold, and their history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import JournalError, StoreError
from contract.pages.faults import FaultsPage, FaultStatus, key_of
from contract.pages.history import HistoryPage, HistoryRange
from service.pages.daemon_pages import json_response
from service.pages.operations import Operation
from service.pages.page_rows import PAGING, PageRows
from service.pages.parameters import Parameter, refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

LEVEL = Parameter("level", "Only faults at this level", is_repeatable=True)
CODE = Parameter("code", "Only faults with this code", is_repeatable=True)
NODES = Parameter("node", "Only what is about this node", is_repeatable=True)

FAULTS = Operation(
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

HISTORY = Operation(
    "/api/v1/history",
    "What happened to faults, newest last",
    HistoryPage,
    (
        Parameter("node", "Only what is about this node"),
        Parameter("since_ms", "Received since this time, epoch milliseconds", is_number=True),
        Parameter("after", "Behind this number: next of the answer before", is_number=True),
        Parameter("limit", "At most so many entries", is_number=True, least=1, most=10_000),
    ),
    (503,),
)


def history_page(
    read: Callable[[HistoryRange], Awaitable[HistoryPage]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the handler of ``HISTORY``, which asks ``read`` for each part."""

    async def show(request: web.Request) -> web.Response:
        query = request.query
        numbers = {
            name: int(query[name]) for name in ("since_ms", "after", "limit") if name in query
        }
        try:
            page = await read(HistoryRange(node=query.get("node") or None, **numbers))
        except (JournalError, StoreError) as error:
            return refused(str(error), 503)
        return json_response(page)

    return show
