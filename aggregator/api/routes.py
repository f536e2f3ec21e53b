"""Health, metrics and the API over HTTP, on ``--listen`` and on a socket in the state directory.

All pages are read-only. Pages with a row for each node, fault or job are filtered and sent page by
page.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING

from aggregator.api.fleet import FleetPages
from aggregator.api.metrics import AggregatorMetrics
from aggregator.api.operations import (
    ADVICE_JOB_PATH,
    ADVICE_OUTCOMES_PATH,
    ADVICE_PATH,
    ADVICE_WHAT_IF_PATH,
    FLEET_PATH,
    OPERATIONS,
    PUBLISHED_PATH,
    SIGNALS_PATH,
)
from contract.errors import StoreError
from service.pages import daemon_pages, event_stream, operations
from service.pages.browser_page import BrowserPage
from service.pages.daemon_pages import json_response
from service.pages.fault_pages import FAULT_ROWS, HISTORY, history_page
from service.pages.page_rows import PageRows, snapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from aggregator.api.collect_status import StatusQueries
    from contract.pages.aggregator_status import HitJob, NodeStatus
    from service.pages.exposition import Encode

_NODE_ROWS: PageRows[NodeStatus] = PageRows(
    "nodes",
    lambda node: (node.node,),
    {"node": lambda node: (node.node,), "state": lambda node: (node.state, node.heartbeat)},
    {"report_age_seconds": None, "heartbeat_age_seconds": None},
)
_JOB_ROWS: PageRows[HitJob] = PageRows(
    "jobs",
    lambda job: (job.job,),
    {"node": lambda job: tuple(node.node for node in job.nodes)},
)


class SnapshotPages:
    """The handlers of these pages."""

    def __init__(self, queries: StatusQueries) -> None:
        self._queries = queries

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the pages to ``router``."""
        router.add_get("/api/v1/nodes", self._nodes)
        router.add_get("/api/v1/faults", self._faults)
        router.add_get("/api/v1/jobs", self._jobs)

    async def _nodes(self, request: web.Request) -> web.Response:
        nodes = _named(request)
        if request.query.keys() & {"level", "code"}:
            nodes = await self._faulty(request, nodes)
        rows = self._queries.node_rows(nodes)
        return await snapshot(request, rows, _NODE_ROWS, self._queries.stream, self._queries.at_ms)

    async def _faulty(self, request: web.Request, nodes: set[str] | None) -> set[str]:
        """Return the nodes, of ``nodes``, with a fault that is asked for."""
        rows = self._queries.fault_rows(nodes)
        return {fault.node async for fault in FAULT_ROWS.chosen(rows, request)}

    async def _faults(self, request: web.Request) -> web.Response:
        rows = self._queries.fault_rows(_named(request))
        return await snapshot(request, rows, FAULT_ROWS, self._queries.stream, self._queries.at_ms)

    async def _jobs(self, request: web.Request) -> web.Response:
        rows = self._queries.job_rows()
        return await snapshot(request, rows, _JOB_ROWS, self._queries.stream, self._queries.at_ms)


def _named(request: web.Request) -> set[str] | None:
    """Return the nodes that are asked for; ``None`` for all."""
    return set(request.query.getall("node")) if "node" in request.query else None


_NOT_WANTED = "nothing is advised here: set advice.enabled"


class AdvicePages:
    """The handlers of these pages."""

    def __init__(self, queries: StatusQueries) -> None:
        self._queries = queries

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the pages to ``router``."""
        router.add_get(ADVICE_PATH, self._all)
        router.add_get(ADVICE_OUTCOMES_PATH, self._outcomes)
        router.add_get(ADVICE_WHAT_IF_PATH, self._what_if)
        router.add_get(ADVICE_JOB_PATH, self._job)

    async def _all(self, request: web.Request) -> web.Response:
        page = self._queries.advice(request.query.get("node"))
        return _unknown("node") if page is None else json_response(page)

    async def _outcomes(self, _: web.Request) -> web.Response:
        return json_response(self._queries.advice_outcomes())

    async def _job(self, request: web.Request) -> web.Response:
        place, advising = request.match_info, self._queries.advising
        if advising is None:
            return _refused(_NOT_WANTED, 404)
        node = request.query.get("node")
        advice = advising.answers.of_job(place["namespace"], place["podgroup"], node)
        return _unknown("podgroup") if advice is None else json_response(advice)

    async def _what_if(self, request: web.Request) -> web.Response:
        advising, query = self._queries.advising, request.query
        if advising is None:
            return _refused(_NOT_WANTED, 404)
        # Loads the advisor, which an aggregator without advice does not need.
        from aggregator.advising.what_if import Busy, UnknownObject, WrongAssumption

        try:
            answer = await advising.what_if.answer(
                query.getall("what_if", ()), query.get("job"), query.get("node")
            )
        except WrongAssumption as error:
            return _refused(str(error), 400)
        except UnknownObject as error:
            return _unknown(str(error))
        except Busy as error:
            return _refused(str(error), 503)
        return json_response(answer)


def _refused(reason: str, status: int) -> web.Response:
    return json_response({"error": reason}, status)


def _unknown(kind: str) -> web.Response:
    return _refused(f"there is no {kind} of this name", 404)


def application(queries: StatusQueries, agent_url: str = "") -> web.Application:
    """Return the pages of an aggregator; what they show is read anew for each request.

    ``agent_url`` is the address of agents' pages with ``{node}``; empty where it is not known.
    """
    probe = queries.readiness.health

    async def exposition(encode: Encode) -> bytes:
        # Of ten thousand nodes it takes long, and must not delay other tasks.
        return await asyncio.to_thread(encode, AggregatorMetrics(await queries.status()))

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
            SIGNALS_PATH: queries.signals_page,
        },
    )
    release = version("npu-vigil")
    browser = BrowserPage("aggregator", release, queries.stream.epoch, agent_url)
    operations.serve(application, "NPU Vigil aggregator", release, OPERATIONS, browser)
    add_get = application.router.add_get
    SnapshotPages(queries).add_to(application.router)
    fleet = FleetPages(queries)
    queries.stream.serve_rows(fleet.changed_rows)
    add_get(FLEET_PATH, fleet.show)
    add_get("/api/v1/nodes/{node}", _one(queries.explain, "node"))
    add_get("/api/v1/jobs/{job}", _one(queries.job, "job"))
    AdvicePages(queries).add_to(application.router)
    add_get("/api/v1/ended-jobs", _ended_jobs(queries))
    add_get(HISTORY.path, history_page(queries.notifier.history.page))
    add_get(PUBLISHED_PATH, _published(queries))
    add_get(event_stream.PATH, queries.stream.serve)
    return application


def _one(
    answer: Callable[[str], object | None], name: str
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the page of one object, whose name is the part ``name`` of the path."""

    async def show(request: web.Request) -> web.Response:
        page = answer(request.match_info[name])
        if page is None:
            return daemon_pages.json_response({"error": f"there is no {name} of this name"}, 404)
        return daemon_pages.json_response(page)

    return show


def _published(queries: StatusQueries) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the page of what was published at a time."""

    async def show(request: web.Request) -> web.Response:
        at_ms = int(request.query.get("at_ms", queries.at_ms))
        try:
            node = request.query.get("node")
            page = await queries.notifier.history.published_at(at_ms, node)
        except StoreError as error:
            return _refused(str(error), 503)
        return json_response(page)

    return show


def _ended_jobs(queries: StatusQueries) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the page of ended vcjobs, which its parameters choose."""

    async def show(request: web.Request) -> web.Response:
        parameters = []
        for name in ("sized", "judged"):
            jobs = [text.partition("/") for text in request.query.get(name, "").split(",") if text]
            if any(not namespace or not job or "/" in job for namespace, _, job in jobs):
                return daemon_pages.json_response(
                    {"error": f"{name} is not a valid NAMESPACE/NAME"}, 400
                )
            parameters.append([(namespace, job) for namespace, _, job in jobs])
        chosen = {}
        for name in ("running", "hit"):
            text = request.query.get(name, "false")
            if text not in ("true", "false"):
                error = f"{name} is neither true nor false"
                return daemon_pages.json_response({"error": error}, 400)
            chosen[name] = text == "true"
        page = await queries.ended_jobs(*parameters, running=chosen["running"], hit=chosen["hit"])
        return daemon_pages.json_response(page)

    return show
