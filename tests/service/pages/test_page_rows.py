"""Pages of rows: what is asked for, in parts that join, compressed, and not sent twice."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from service.pages.browser_page import BrowserPage
from service.pages.compression import accepts_gzip
from service.pages.event_stream import Stream
from service.pages.operations import Operation, serve
from service.pages.page_rows import PAGING, PageRows, snapshot
from service.pages.parameters import Parameter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Row(msgspec.Struct, frozen=True):
    name: str
    color: str
    age_seconds: float


class RowsPage(msgspec.Struct, frozen=True):
    rows: tuple[Row, ...]


COLOR = Parameter("color", "Only these", is_repeatable=True, values=("red", "green"))
OPERATION = Operation("/rows", "Rows", RowsPage, (COLOR, *PAGING))
ABOUT: PageRows[Row] = PageRows(
    "rows", lambda row: (row.name,), {"color": lambda row: (row.color,)}, {"age_seconds": None}
)


class Site:
    """A page with rows, and a client of it."""

    def __init__(self) -> None:
        self.rows = [Row(f"n{n:03}", "red" if n % 2 else "green", 1.5) for n in range(500)]
        self.stream = Stream("run")
        self.at_ms = 7
        self.pages = web.Application()

        async def page(request: web.Request) -> web.Response:
            return await snapshot(request, self.rows, ABOUT, self.stream, self.at_ms, head="x")

        self.pages.router.add_get(OPERATION.path, page)
        serve(self.pages, "test", "1", [OPERATION], BrowserPage("agent", "1", "run"))
        self.client: TestClient[web.Request, web.Application] | None = None

    async def ask(
        self, headers: dict[str, str] | None = None, **query: Any
    ) -> tuple[int, Any, Any]:
        """Return status, body and headers of the answer."""
        assert self.client is not None
        answer = await self.client.get(OPERATION.path, params=query, headers=headers)
        body = await answer.read()
        return answer.status, msgspec.json.decode(body) if body else None, answer.headers


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    async with TestClient(TestServer(site.pages), auto_decompress=True) as client:
        site.client = client
        yield site


async def test_pages_join_to_all_rows_while_rows_come_and_go(site: Site) -> None:
    names, query = [], {"limit": 120}
    while True:
        _, page, _ = await site.ask(None, **query)
        names += [row["name"] for row in page["rows"]]
        assert (page["at_ms"], page["head"], page["stream"]) == (7, "x", "run-0")
        if page["continue"] is None:
            break
        assert len(page["rows"]) == 120
        query["continue"] = page["continue"]
        gone = site.rows.pop(0)
        site.rows.append(Row(f"x{gone.name}", "red", 0.0))
    assert names[:500] == [f"n{n:03}" for n in range(500)], "none is lost or twice"
    assert len(names) == len(set(names))


async def test_rows_with_one_key_stay_together(site: Site) -> None:
    site.rows = [Row("a", "red", 0), Row("b", "red", 1), Row("b", "green", 2), Row("c", "red", 3)]
    _, first, _ = await site.ask(limit=2)
    assert [row["name"] for row in first["rows"]] == ["a", "b", "b"]
    _, rest, _ = await site.ask(**{"limit": 2, "continue": first["continue"]})
    assert [row["name"] for row in rest["rows"]] == ["c"]
    assert rest["continue"] is None


async def test_filters_choose_rows(site: Site) -> None:
    _, page, _ = await site.ask(color="red")
    assert len(page["rows"]) == 250
    assert {row["color"] for row in page["rows"]} == {"red"}
    assert site.client is not None
    both = await site.client.get(OPERATION.path, params=[("color", "red"), ("color", "green")])
    assert len((await both.json())["rows"]) == 500


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"colour": "red"}, "that is not a valid parameter; known are color, continue, limit"),
        ({"color": "blue"}, "color has no such value; known are red, green"),
        ({"limit": "0"}, "limit is not a valid number from 1 to 10000"),
        ({"continue": "n001"}, "continue is not that of an answer"),
        ({"continue": "bnVsbA=="}, "continue is not that of an answer"),
        ({"continue": "\u0663"}, "continue is not that of an answer"),
    ],
)
async def test_malformed_continue_is_refused(site: Site, query: dict[str, str], why: str) -> None:
    status, answer, _ = await site.ask(None, **query)
    assert (status, answer) == (400, {"error": why})


async def test_a_client_that_has_it_is_not_sent_it_again(site: Site) -> None:
    _, _, headers = await site.ask()
    tag = {"If-None-Match": headers["ETag"]}
    site.at_ms = 99
    site.rows = [msgspec.structs.replace(row, age_seconds=9.0) for row in site.rows]
    site.stream.send("change", site.rows[0])
    status, answer, again = await site.ask(tag)
    assert (status, answer, again["ETag"]) == (304, None, headers["ETag"]), "only time has passed"
    site.rows[3] = msgspec.structs.replace(site.rows[3], color="green")
    status, answer, again = await site.ask(tag)
    assert (status, answer["stream"]) == (200, "run-1")
    assert again["ETag"] != headers["ETag"]
    assert (await site.ask(tag, limit=3))[0] == 200, "a part is not the whole"


async def test_large_answers_are_compressed_for_those_who_accept_it(site: Site) -> None:
    async with TestClient(TestServer(site.pages), auto_decompress=False) as raw:
        packed = await raw.get(OPERATION.path, headers={"Accept-Encoding": "br, gzip"})
        assert packed.headers["Content-Encoding"] == "gzip"
        assert packed.headers["Vary"] == "Accept-Encoding"
        plain = await raw.get(OPERATION.path, headers={"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in plain.headers
        assert plain.headers["Vary"] == "Accept-Encoding"
        body = await packed.read()
        assert zlib.decompress(body, 31) == await plain.read()
        assert len(body) < len(await plain.read()) / 5
        small = await raw.get(OPERATION.path, params={"limit": "1"})
        assert "Content-Encoding" not in small.headers


@pytest.mark.parametrize(
    ("header", "accepts"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("*", True),
        ("gzip;q=0", False),
        ("*, gzip; q=0.000", False),
        ("", False),
        ("identity", False),
        ("gzipped", False),
    ],
)
def test_gzip_is_used_if_the_client_accepts_it(header: str, accepts: bool) -> None:
    assert accepts_gzip(header) is accepts
