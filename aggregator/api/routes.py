"""Health, metrics and the API, over HTTP on ``--listen`` and on a socket in the state directory.

Nothing can be changed through it.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING

from aggregator.api import metrics
from aggregator.api.advice_pages import AdvicePages
from aggregator.api.operations import OPERATIONS
from aggregator.api.row_pages import SnapshotPages
from service import event_stream, operations, pages
from service.history_page import OPERATION as HISTORY
from service.history_page import history_page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from aggregator.api.collect_status import Picture
    from aggregator.api.status import ProbeStatus
    from aggregator.notify.history import ClusterHistory
    from service.event_stream import Stream


def application(
    probe: Callable[[], ProbeStatus], picture: Picture, history: ClusterHistory, changes: Stream
) -> web.Application:
    """Return the pages. ``probe`` and ``picture`` are asked anew for each request."""

    async def exposition() -> bytes:
        # It takes as long as ten thousand nodes take to be written down; others go on meanwhile.
        return await asyncio.to_thread(metrics.exposition, await picture.status())

    application = pages.application(
        stalled=lambda: probe().stalled,
        not_ready=lambda: probe().not_ready,
        exposition=exposition,
        warnings=lambda: probe().warnings,
        api={
            "/api/v1/liveness": picture.liveness,
            "/api/v1/public-faults": picture.public_faults,
            "/api/v1/separation": picture.separation,
            "/api/v1/cluster-state": picture.cluster_state,
            "/api/v1/services": picture.services,
            "/api/v1/leader": picture.leader,
            "/api/v1/documents": picture.documents,
        },
    )
    operations.serve(application, "NPU Vigil aggregator", version("npu-vigil"), OPERATIONS)
    one = application.router.add_get
    SnapshotPages(picture, changes).add_to(application.router)
    one("/api/v1/nodes/{node}", _one(picture.explain, "node"))
    one("/api/v1/jobs/{job}", _one(picture.job, "job"))
    AdvicePages(picture).add_to(application.router)
    one("/api/v1/ended-jobs", _ended_jobs(picture))
    one(HISTORY.path, history_page(history.page))
    one(event_stream.PATH, changes.serve)
    return application


def _one(
    answer: Callable[[str], object | None], name: str
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the page of one of many, which the part of its path with this name chooses."""

    async def show(request: web.Request) -> web.Response:
        found = answer(request.match_info[name])
        if found is None:
            return pages.json_response({"error": f"there is no {name} of this name"}, 404)
        return pages.json_response(found)

    return show


def _ended_jobs(picture: Picture) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the page of ended vcjobs, which its parameters choose."""

    async def show(request: web.Request) -> web.Response:
        asked = []
        for name in ("sized", "judged"):
            jobs = [one.partition("/") for one in request.query.get(name, "").split(",") if one]
            if any(not namespace or not job or "/" in job for namespace, _, job in jobs):
                return pages.json_response({"error": f"{name} is no NAMESPACE/NAME"}, 400)
            asked.append([(namespace, job) for namespace, _, job in jobs])
        running = request.query.get("running", "false")
        if running not in ("true", "false"):
            return pages.json_response({"error": "running is neither true nor false"}, 400)
        found = await picture.ended_jobs(*asked, running=running == "true")
        return pages.json_response(found)

    return show
