"""Health, metrics and the API over HTTP, on ``--listen`` and on a socket in the state directory.

All pages are read-only.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING

from aggregator.api import metrics
from aggregator.api.advice_pages import AdvicePages
from aggregator.api.operations import OPERATIONS
from aggregator.api.row_pages import SnapshotPages
from service.pages import daemon_pages, event_stream, operations
from service.pages.history_page import OPERATION as HISTORY
from service.pages.history_page import history_page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from aggregator.api.collect_status import StatusQueries


def application(queries: StatusQueries) -> web.Application:
    """Return the pages of an aggregator; what they show is read anew for each request."""
    probe = queries.readiness.health

    async def exposition() -> bytes:
        # Of ten thousand nodes it takes long, and must not delay other tasks.
        return await asyncio.to_thread(metrics.exposition, await queries.status())

    application = daemon_pages.application(
        stalled=lambda: probe().stalled,
        not_ready=lambda: probe().not_ready,
        exposition=exposition,
        warnings=lambda: probe().warnings,
        api={
            "/api/v1/liveness": queries.liveness_page,
            "/api/v1/public-faults": queries.public_faults_page,
            "/api/v1/separation": queries.separation_page,
            "/api/v1/cluster-state": queries.cluster_state_page,
            "/api/v1/services": queries.services_page,
            "/api/v1/leader": queries.leader_page,
            "/api/v1/documents": queries.documents_page,
        },
    )
    operations.serve(application, "NPU Vigil aggregator", version("npu-vigil"), OPERATIONS)
    one = application.router.add_get
    SnapshotPages(queries).add_to(application.router)
    one("/api/v1/nodes/{node}", _one(queries.explain, "node"))
    one("/api/v1/jobs/{job}", _one(queries.job, "job"))
    AdvicePages(queries).add_to(application.router)
    one("/api/v1/ended-jobs", _ended_jobs(queries))
    one(HISTORY.path, history_page(queries.notifier.history.page))
    one(event_stream.PATH, queries.stream.serve)
    return application


def _one(
    answer: Callable[[str], object | None], name: str
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the page of one object, whose name is the part ``name`` of the path."""

    async def show(request: web.Request) -> web.Response:
        found = answer(request.match_info[name])
        if found is None:
            return daemon_pages.json_response({"error": f"there is no {name} of this name"}, 404)
        return daemon_pages.json_response(found)

    return show


def _ended_jobs(queries: StatusQueries) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the page of ended vcjobs, which its parameters choose."""

    async def show(request: web.Request) -> web.Response:
        asked = []
        for name in ("sized", "judged"):
            jobs = [one.partition("/") for one in request.query.get(name, "").split(",") if one]
            if any(not namespace or not job or "/" in job for namespace, _, job in jobs):
                return daemon_pages.json_response({"error": f"{name} is no NAMESPACE/NAME"}, 400)
            asked.append([(namespace, job) for namespace, _, job in jobs])
        chosen = {}
        for name in ("running", "hit"):
            text = request.query.get(name, "false")
            if text not in ("true", "false"):
                error = f"{name} is neither true nor false"
                return daemon_pages.json_response({"error": error}, 400)
            chosen[name] = text == "true"
        found = await queries.ended_jobs(*asked, running=chosen["running"], hit=chosen["hit"])
        return daemon_pages.json_response(found)

    return show
