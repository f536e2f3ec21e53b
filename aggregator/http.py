"""Health, metrics and the API over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator import history_page, metrics
from service import pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from aggregator.history import History
    from aggregator.status import Health, Status


def application(
    probe: Callable[[], Health], picture: Callable[[], Status], history: History | None
) -> web.Application:
    """The pages. ``probe`` and ``picture`` are taken anew for each request."""

    def showing(parts: Callable[[Status], dict[str, object]]) -> Callable[[], object]:
        """``parts`` of the picture, and when it was taken."""

        def show() -> object:
            now = picture()
            return {"at_ms": now.at_ms, **parts(now)}

        return show

    application = pages.application(
        stalled=lambda: probe().stalled,
        not_ready=lambda: probe().not_ready,
        exposition=lambda: metrics.exposition(picture()),
        api={
            "/api/v1/nodes": showing(lambda now: {"nodes": now.nodes}),
            "/api/v1/liveness": showing(lambda now: {"liveness": now.liveness}),
            "/api/v1/faults": showing(
                lambda now: {
                    "faults": now.faults,
                    "switch_faults": now.switch_faults,
                    "server_faults": now.server_faults,
                }
            ),
            "/api/v1/leader": showing(lambda now: {"leader": now.leader, "kept": now.kept}),
            "/api/v1/documents": showing(
                lambda now: {"stores": now.sources, "documents": now.documents}
            ),
        },
    )
    application.router.add_get(history_page.PATH, history_page.history_page(history))
    return application
