"""The page of an aggregator whose state is given as values: real HTTP server, page, rows, stream.

It stands for an aggregator where the state of a real one would take minutes to make, such as 16,000
nodes, or must change at a moment. What it answers is made by the product's own code.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

from aggregator.api.fleet import FleetPages
from contract.pages.changes import FaultChange
from service.pages import event_stream
from service.pages.browser_page import BrowserPage
from service.pages.daemon_pages import application, json_response, serving
from service.pages.operations import serve
from service.pages.settings import PagesTlsSection, pages_tls, pages_users
from tests.aggregator.api.given_queries import GivenQueries, device_record, fault_row, status_row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from aiohttp import web
    from playwright.async_api import Locator, Page

    from contract.pages.aggregator_status import NodeStatus
    from contract.pages.faults import FaultStatus
    from service.pages.event_stream import Stream

VERSION = "1"
CODE = "80E18402"
WITHOUT_WORKER = "delete window.SharedWorker"
"""A script of a browser that has no such workers."""
WAIT_MS = 20_000


class PageSite:
    """Serves the page at ``url`` within ``serving``. ``answers`` are those of other paths."""

    def __init__(self, nodes: Iterable[NodeStatus] = (), faults: Iterable[FaultStatus] = ()):
        self.fleet = GivenQueries(list(nodes), list(faults))
        self.fleet.queries.pipeline.sources = ()
        self.answers: dict[str, object] = {}
        self.url = ""
        self.version = VERSION
        self.agent_url = ""

    @property
    def stream(self) -> Stream:
        """The stream of this process."""
        return self.fleet.stream

    def place(self, node: str, **members: int) -> None:
        """Place a node in a super pod or a rack."""
        entry = MagicMock(record=device_record(**members))
        self.fleet.queries.pipeline.device.entries[node] = entry

    def set_faults(self, node: str, *levels: str) -> None:
        """Let a node have a fault of each level, and send that to all pages."""
        others = [row for row in self.fleet.faults if row.node != node]
        own = [fault_row(node, f"Ascend910-{chip}", level) for chip, level in enumerate(levels)]
        self.fleet.faults = sorted([*others, *own], key=lambda row: row.node)
        self.changed(node)

    def changed(self, node: str) -> None:
        """Send that something about a node changed."""
        change = FaultChange(node, self.fleet.queries.at_ms, "Ascend910-0", "80E18402")
        self.stream.send("change", change, (node,))

    @contextlib.asynccontextmanager
    async def serving(
        self,
        directory: Path,
        listen: str = "127.0.0.1:0",
        login: PagesTlsSection = PagesTlsSection(),  # noqa: B008
    ) -> AsyncIterator[None]:
        """Serve within the block, with the TLS and the users of ``login``."""
        pages = application(dict, tuple, lambda _: b"up 1\n", {})
        page = BrowserPage("aggregator", VERSION, self.stream.epoch, self.agent_url)
        serve(pages, "Site", VERSION, (), page)
        fleet = FleetPages(self.fleet.queries)
        self.stream.serve_rows(fleet.changed_rows)

        async def rows(request: web.Request) -> web.StreamResponse:
            fleet._version = self.version
            return await fleet.show(request)

        async def answer(request: web.Request) -> web.StreamResponse:
            value = self.answers.get(request.path)
            return json_response({} if value is None else value, 404 if value is None else 200)

        pages.router.add_get("/api/v1/fleet", rows)
        pages.router.add_get(event_stream.PATH, self.stream.serve)
        pages.router.add_get("/api/v1/{path:.*}", answer)
        tls, users = pages_tls(login), pages_users(login)
        async with serving(pages, listen, directory, tls=tls, users=users):
            self.url = (directory / "listen").read_text().strip()
            yield


def nodes_named(*names: str, **members: Any) -> list[NodeStatus]:
    """Return healthy nodes."""
    return [status_row(name, **members) for name in names]


def cells(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Map of all nodes").get_by_role("option")


async def names_in_map(page: Page) -> list[str]:
    return [str(await cell.get_attribute("data-node")) for cell in await cells(page).all()]
