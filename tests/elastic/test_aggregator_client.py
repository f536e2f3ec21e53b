"""What the aggregator answers, and what of it is a reason to start nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from contract.errors import ConfigurationError
from elastic.aggregator_client import AggregatorReply, Aggregators
from elastic.config import load_elastic
from service.login.client import LoginFiles
from tests.elastic.jobs import read, vcjob
from tests.parts.certificates import make_pki
from tests.service.tls.tls_site import private_copy, tls_site, user_line, write_users

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.server
async def test_a_login_over_tls_and_the_message_of_each_trouble(tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    pki.mkdir()
    make_pki(pki)
    users = write_users(tmp_path / "users", user_line("elastic", "secret"))
    for name, text in (("right", "elastic:secret"), ("wrong", "elastic:other")):
        (tmp_path / name).write_text(f"{text}\n")
        (tmp_path / name).chmod(0o600)
    authority, right, wrong = pki / "ca.crt", tmp_path / "right", tmp_path / "wrong"
    more = {"/api/v1/ended-jobs": lambda: _GOOD}
    async with tls_site(tmp_path, private_copy(pki, tmp_path), users=users, more=more) as site:
        url = f"https://127.0.0.1:{site.port}"

        async def troubles(login: LoginFiles) -> str:
            return "; ".join((await Aggregators(url, login).request([read(vcjob())], [])).troubles)

        assert await troubles(LoginFiles(ca_file=authority, password_file=right)) == ""
        needed = "it needs a login; give password_file, token_file or certificate_file"
        assert needed in await troubles(LoginFiles(ca_file=authority))
        refused = f"it does not accept the login of {wrong}"
        assert refused in await troubles(LoginFiles(ca_file=authority, password_file=wrong))
        unknown = "ca_file names the file of another authority"
        assert unknown in await troubles(LoginFiles(password_file=right))
        aggregators = Aggregators(url, LoginFiles(ca_file=authority, token_file=right))
        right.unlink()
        reply = await aggregators.request([read(vcjob())], [])
        assert f"token_file: {right} cannot be read" in reply.troubles[0]
        with pytest.raises(ConfigurationError, match=r"token_file: .* cannot be read"):
            Aggregators(url, LoginFiles(token_file=right))
    async with TestServer(web.Application()) as server:
        plain = f"https://127.0.0.1:{server.port}"
        reply = await Aggregators(plain, LoginFiles(ca_file=authority)).request([], [])
    assert "it does not use TLS; use http://" in reply.troubles[0]


def test_a_login_without_tls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="aggregator is without TLS"):
        load_elastic(None, {"VIGIL_TOKEN_FILE": str(tmp_path / "token")}, {})
    environment = {"VIGIL_TOKEN_FILE": "/a", "VIGIL_AGGREGATOR": "https://a:1"}
    assert load_elastic(None, environment, {}).login.token_file is not None
