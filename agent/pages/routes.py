"""Health, metrics and the API, over HTTP on ``--listen`` and on a socket in the state directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.pages import metrics
from agent.pages.operations import OPERATIONS, AgentFaultsPage
from service import event_stream, operations, pages
from service.history_page import OPERATION as HISTORY
from service.history_page import history_page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from agent.pages.history import JournalHistory
    from agent.pages.npu_exporter import Cards
    from agent.pages.status import AgentStatus
    from agent.publishing.publication import Publication
    from service.event_stream import Stream

SOCKET_NAME = "agent.sock"


def application(
    picture: Callable[[], AgentStatus],
    records: Mapping[str, Publication],
    history: JournalHistory,
    stream: Stream,
    cards: Callable[[], Cards] | None = None,
) -> web.Application:
    """The pages. ``picture`` and ``cards`` are taken anew for each request.

    ``records`` are by document. Without ``cards`` there are no metrics under NPU exporter's names.
    """

    def faults() -> object:
        now = picture()
        return AgentFaultsPage(now.node, now.at_ms, stream.last_id, now.faults)

    application = pages.application(
        stalled=lambda: picture().stalled,
        not_ready=lambda: picture().not_ready,
        exposition=lambda: metrics.exposition(picture(), records, cards and cards()),
        api={"/api/v1/status": picture, "/api/v1/faults": faults},
    )
    version = picture().version
    operations.serve(application, "NPU Vigil agent", version, OPERATIONS)
    application.router.add_get(HISTORY.path, history_page(history.page))
    application.router.add_get(event_stream.PATH, stream.serve)
    return application
