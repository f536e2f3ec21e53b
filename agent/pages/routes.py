"""Health, metrics and the API, over HTTP on ``--listen`` and on a socket in the state directory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from agent.pages import metrics
from agent.pages.fault_rules import FaultRules
from agent.pages.operations import OPERATIONS
from agent.pages.status import fault_row, isolation_rows
from service.pages import daemon_pages, event_stream, fault_page, operations
from service.pages.history_page import OPERATION as HISTORY
from service.pages.history_page import history_page
from service.pages.page_rows import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from agent.pages.history import JournalHistory
    from agent.pages.npu_exporter import Cards
    from agent.pages.status import AgentStatus
    from agent.publishing.publication import Publication
    from contract.operator_rules.fault_configuration import Judged
    from service.pages.event_stream import Stream

SOCKET_NAME = "agent.sock"


def application(
    status: Callable[[], AgentStatus],
    records: Mapping[str, Publication],
    history: JournalHistory,
    stream: Stream,
    judged: Callable[[], Judged],
    cards: Callable[[], Cards] | None = None,
) -> web.Application:
    """Return the pages. ``status`` and ``cards`` are collected anew for each request.

    ``records`` are by document, ``judged`` is the fault configuration in force. Without ``cards``
    there are no metrics under NPU exporter's names.
    """
    rules = FaultRules(judged)

    async def faults(request: web.Request) -> web.Response:
        now = status()
        held = map(partial(fault_row, now.node, rules), now.faults)
        isolated = isolation_rows(now.node, now.chips, now.faults)
        rows = sorted([*held, *isolated], key=fault_page.key_of)
        return await snapshot(request, rows, fault_page.FAULT_ROWS, stream, now.at_ms)

    def status_page() -> AgentStatus:
        return msgspec.structs.replace(status(), stream=stream.last_id)

    application = daemon_pages.application(
        stalled=lambda: status().stalled,
        not_ready=lambda: status().not_ready,
        exposition=lambda: metrics.exposition(status(), records, cards and cards()),
        api={"/api/v1/status": status_page},
    )
    version = status().version
    operations.serve(application, "NPU Vigil agent", version, OPERATIONS)
    application.router.add_get(fault_page.OPERATION.path, faults)
    application.router.add_get(HISTORY.path, history_page(history.page))
    application.router.add_get(event_stream.PATH, stream.serve)
    return application
