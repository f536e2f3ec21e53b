"""Health, metrics and the API over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from aggregator import metrics
from service.pages import health_answer, json_answer, metrics_answer, ready_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from aggregator.status import Health, Status


def application(probe: Callable[[], Health], picture: Callable[[], Status]) -> web.Application:
    """The pages. ``probe`` and ``picture`` are taken anew for each request."""

    async def health(_: web.Request) -> web.Response:
        return health_answer(probe().stalled)

    async def ready(_: web.Request) -> web.Response:
        return ready_answer(probe().not_ready)

    async def scrape(_: web.Request) -> web.Response:
        return metrics_answer(metrics.exposition(picture()))

    async def nodes(_: web.Request) -> web.Response:
        now = picture()
        return json_answer({"at_ms": now.at_ms, "nodes": now.nodes})

    async def liveness(_: web.Request) -> web.Response:
        now = picture()
        return json_answer({"at_ms": now.at_ms, "liveness": now.liveness})

    async def faults(_: web.Request) -> web.Response:
        now = picture()
        return json_answer({"at_ms": now.at_ms, "faults": now.faults})

    async def documents(_: web.Request) -> web.Response:
        now = picture()
        return json_answer({"at_ms": now.at_ms, "stores": now.sources, "documents": now.documents})

    pages = web.Application()
    pages.router.add_get("/healthz", health)
    pages.router.add_get("/readyz", ready)
    pages.router.add_get("/metrics", scrape)
    pages.router.add_get("/api/v1/nodes", nodes)
    pages.router.add_get("/api/v1/liveness", liveness)
    pages.router.add_get("/api/v1/faults", faults)
    pages.router.add_get("/api/v1/documents", documents)
    return pages
