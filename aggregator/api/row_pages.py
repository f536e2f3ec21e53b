"""The pages with a row for each node, fault or job: filtered and page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.pages.fault_page import FAULT_ROWS
from service.pages.page_rows import PageRows, snapshot

if TYPE_CHECKING:
    from aiohttp import web

    from aggregator.api.collect_status import StatusQueries
    from contract.pages.aggregator_status import HitJob, NodeStatus

_NODE_ROWS: PageRows[NodeStatus] = PageRows(
    "nodes",
    lambda node: (node.node,),
    {"node": lambda node: (node.node,), "state": lambda node: (node.state, node.heartbeat)},
    {"report_age_seconds": None, "heartbeat_age_seconds": None},
)
_JOB_ROWS: PageRows[HitJob] = PageRows(
    "jobs",
    lambda job: (job.job,),
    {"node": lambda job: tuple(one.node for one in job.nodes)},
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
