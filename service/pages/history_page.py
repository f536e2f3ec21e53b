"""``GET /api/v1/history``: what happened to faults, newest last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import JournalError, StoreError
from contract.pages.history import HistoryPage, HistoryRange
from service.pages.daemon_pages import json_response
from service.pages.operations import Operation, Parameter, refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

OPERATION = Operation(
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
    """Return the handler of the page, which asks ``read`` for each part."""

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
