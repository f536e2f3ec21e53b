"""A page refuses a parameter that it does not have, and a wrong value of one, before it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from contract.pages.changes import FaultChange
from service.pages import event_stream, operations
from service.pages.browser_page import BrowserPage
from service.pages.operations import Operation
from service.pages.parameters import Parameter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_LIST = Operation(
    "/api/v1/rows",
    "Rows",
    FaultChange,
    (
        Parameter("limit", "How many", is_number=True, least=1, most=9),
        Parameter("level", "Which", values=("high", "low"), is_repeatable=True),
    ),
)
_STREAM = Operation(
    event_stream.PATH,
    "Changes",
    FaultChange,
    event_stream.PARAMETERS,
    content="text/event-stream",
)


@pytest.fixture
async def client() -> AsyncIterator[TestClient[web.Request, web.Application]]:
    async def rows(_: web.Request) -> web.Response:
        return web.json_response([])

    pages = web.Application()
    operations.serve(pages, "Test", "1", (_LIST, _STREAM), BrowserPage("agent", "1", "run"))
    pages.router.add_get(_LIST.path, rows)
    pages.router.add_get(_STREAM.path, event_stream.Stream("run").serve)
    async with TestClient(TestServer(pages)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("/api/v1/rows?nonsense=1", "that is not a valid parameter; known are level, limit"),
        ("/api/v1/rows?limit=10", "limit is not a valid number from 1 to 9"),
        ("/api/v1/rows?limit=%C2%B2", "limit is not a valid number from 1 to 9"),
        ("/api/v1/rows?limit=1&limit=2", "limit is given more than once"),
        ("/api/v1/rows?level=low&level=none", "level has no such value; known are high, low"),
        ("/api/v1/stream?nod=n1", "that is not a valid parameter; known are node"),
        ("/api/v1/openapi.json?node=n1", "that is not a valid parameter; this page takes none"),
    ],
)
async def test_wrong_or_unknown_parameter_is_refused_with_400_and_not_repeated(
    client: TestClient[web.Request, web.Application], question: str, why: str
) -> None:
    answer = await client.get(question)
    assert (answer.status, await answer.json()) == (400, {"error": why})


async def test_known_parameters_are_accepted(
    client: TestClient[web.Request, web.Application],
) -> None:
    assert (await client.get("/api/v1/rows?limit=9&level=low&level=high")).status == 200
    async with client.get("/api/v1/stream?node=n1") as answer:
        assert answer.status == 200
