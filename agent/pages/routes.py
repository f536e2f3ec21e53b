"""Health, metrics and the API, over HTTP on ``--listen`` and on a socket in the state directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.pages import metrics
from service import pages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from agent.pages.npu_exporter import Cards
    from agent.pages.status import AgentStatus
    from agent.publishing.publication import Publication

SOCKET_NAME = "agent.sock"


def application(
    picture: Callable[[], AgentStatus],
    records: Mapping[str, Publication],
    cards: Callable[[], Cards] | None = None,
) -> web.Application:
    """The pages. ``picture`` and ``cards`` are taken anew for each request.

    ``records`` are by document. Without ``cards`` there are no metrics under NPU exporter's names.
    """

    def faults() -> object:
        now = picture()
        return {"node": now.node, "at_ms": now.at_ms, "faults": now.faults}

    return pages.application(
        stalled=lambda: picture().stalled,
        not_ready=lambda: picture().not_ready,
        exposition=lambda: metrics.exposition(picture(), records, cards and cards()),
        api={"/api/v1/status": picture, "/api/v1/faults": faults},
    )
