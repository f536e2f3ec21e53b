"""Health, metrics and the API over HTTP. Nothing can be changed through it."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec

from aggregator import history_page, metrics, openapi, stream
from aggregator.openapi import Documents, Faults, Leader, Liveness, Nodes
from service import pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from aggregator.explanation import Explanation
    from aggregator.history import History
    from aggregator.status import Health, Status
    from aggregator.stream import Stream


def application(
    probe: Callable[[], Health],
    picture: Callable[[], Status],
    explain: Callable[[str], Explanation | None],
    history: History,
    changes: Stream,
) -> web.Application:
    """The pages. ``probe``, ``picture`` and ``explain`` are taken anew for each request."""

    def showing(answer: Callable[[Status], object]) -> Callable[[], object]:
        return lambda: answer(picture())

    async def one_node(request: web.Request) -> web.Response:
        node = request.match_info["node"]
        explanation = explain(node)
        if explanation is None:
            return pages.json_response({"error": f"nobody knows of a node {node}"}, 404)
        return pages.json_response(explanation)

    described = msgspec.Raw(msgspec.json.encode(openapi.description(version("npu-vigil"))))
    application = pages.application(
        stalled=lambda: probe().stalled,
        not_ready=lambda: probe().not_ready,
        exposition=lambda: metrics.exposition(picture()),
        api={
            "/api/v1/nodes": showing(lambda now: Nodes(now.at_ms, now.nodes)),
            "/api/v1/liveness": showing(lambda now: Liveness(now.at_ms, now.liveness)),
            "/api/v1/faults": showing(
                lambda now: Faults(now.at_ms, now.faults, now.switch_faults, now.server_faults)
            ),
            "/api/v1/leader": showing(lambda now: Leader(now.at_ms, now.leader, now.kept)),
            "/api/v1/documents": showing(
                lambda now: Documents(now.at_ms, now.sources, now.documents)
            ),
            openapi.PATH: lambda: described,
        },
    )
    application.router.add_get("/api/v1/nodes/{node}", one_node)
    application.router.add_get(history_page.PATH, history_page.history_page(history))
    application.router.add_get(stream.PATH, changes.serve)
    return application
