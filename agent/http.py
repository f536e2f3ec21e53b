"""Health, metrics and the API, over HTTP on ``--listen`` and on a socket in the state directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from agent import metrics
from service.pages import health_answer, json_answer, metrics_answer, ready_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.npu_exporter import Cards
    from agent.publication import Publication
    from agent.status import Status

SOCKET_NAME = "agent.sock"


def application(
    picture: Callable[[], Status],
    records: Mapping[str, Publication],
    cards: Callable[[], Cards] | None = None,
) -> web.Application:
    """The pages. ``picture`` and ``cards`` are taken anew for each request.

    ``records`` are by document. Without ``cards`` there are no metrics under NPU exporter's names.
    """

    async def health(_: web.Request) -> web.Response:
        return health_answer(picture().stalled)

    async def ready(_: web.Request) -> web.Response:
        return ready_answer(picture().not_ready)

    async def scrape(_: web.Request) -> web.Response:
        return metrics_answer(metrics.exposition(picture(), records, cards and cards()))

    async def status(_: web.Request) -> web.Response:
        return json_answer(picture())

    async def faults(_: web.Request) -> web.Response:
        now = picture()
        return json_answer({"node": now.node, "at_ms": now.at_ms, "faults": now.faults})

    pages = web.Application()
    pages.router.add_get("/healthz", health)
    pages.router.add_get("/readyz", ready)
    pages.router.add_get("/metrics", scrape)
    pages.router.add_get("/api/v1/status", status)
    pages.router.add_get("/api/v1/faults", faults)
    return pages
