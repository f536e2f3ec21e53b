"""What the aggregator answers, and what of it is a reason to start nothing."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from elastic.aggregator_client import AggregatorReply, Aggregators
from tests.elastic.jobs import read, vcjob

_GOOD: dict[str, Any] = {
    "leads": True,
    "alarm": False,
    "silent": ["n1"],
    "ended": {"version": 9, "not_known": [], "jobs": [], "running": []},
}


async def _ask(*pages: dict[str, Any] | int) -> tuple[AggregatorReply, list[dict[str, str]]]:
    """Return what is made of these answers, one after the other, and what was asked."""
    left, asked = list(pages), []

    async def answer(request: web.Request) -> web.Response:
        asked.append(dict(request.query))
        page = left.pop(0) if len(left) > 1 else left[0]
        return web.Response(status=page) if isinstance(page, int) else web.json_response(page)

    application = web.Application()
    application.router.add_get("/api/v1/ended-jobs", answer)
    async with TestServer(application) as server:
        url = str(server.make_url("/"))
        reply = await Aggregators(url).request([read(vcjob())], [read(vcjob("k"))], running=True)
    return reply, asked


async def test_an_answer_of_the_one_that_leads() -> None:
    reply, asked = await _ask(_GOOD | {"leads": False}, _GOOD)
    assert (reply.troubles, reply.silent, reply.ended.version) == ((), frozenset({"n1"}), 9)
    assert asked == [{"sized": "default/j", "judged": "default/k", "running": "true"}] * 2


@pytest.mark.parametrize(
    ("page", "why", "silent"),
    [
        (_GOOD | {"leads": False}, "no aggregator that was asked leads", None),
        (_GOOD | {"alarm": True}, "silence alarm", frozenset({"n1"})),
        (_GOOD | {"ended": None}, "set advice.enabled there", None),
        (
            _GOOD | {"ended": {"not_known": ["ConfigMap x was not touched for more than 60 s"]}},
            "was not touched for more than 60 s",
            frozenset({"n1"}),
        ),
        ({"leads": 3}, "Expected `bool`", None),
        (500, "it answered 500", None),
    ],
)
async def test_nothing_is_started_and_the_reason_is_named(
    page: dict[str, Any] | int, why: str, silent: frozenset[str] | None
) -> None:
    reply, _ = await _ask(page)
    (trouble,) = reply.troubles
    assert why in trouble
    assert reply.silent == silent


async def test_more_jobs_than_one_question_holds_are_asked_for_in_several() -> None:
    """All of the first ones may wait for room that later ones do not need."""
    asked = []

    async def answer(request: web.Request) -> web.Response:
        names = [key.partition("/")[2] for key in request.query["sized"].split(",")]
        asked.append((len(names), "judged" in request.query, "running" in request.query))
        found = [{"namespace": "default", "name": name} for name in names]
        ended = {"version": 10 - len(asked), "not_known": [], "jobs": found, "running": []}
        return web.json_response(_GOOD | {"ended": ended})

    application = web.Application()
    application.router.add_get("/api/v1/ended-jobs", answer)
    jobs = [read(vcjob(f"j{number}")) for number in range(90)]
    async with TestServer(application) as server:
        aggregators = Aggregators(str(server.make_url("/")))
        reply = await aggregators.request(jobs, [jobs[0]], running=True)
    assert asked == [(40, True, True), (40, False, False), (10, False, False)]
    assert [one.name for one in reply.ended.jobs] == [job.name for job in jobs]
    assert (reply.ended.version, reply.troubles) == (7, ())


async def test_an_aggregator_that_is_away_is_named() -> None:
    async with TestServer(web.Application()) as server:
        url = str(server.make_url("/"))
    reply = await Aggregators(url).request([read(vcjob())], [])
    (trouble,) = reply.troubles
    assert f"the aggregator at {url.rstrip('/')} is away" in trouble
    assert reply.silent is None
