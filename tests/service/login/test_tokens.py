"""Tokens of Kubernetes on pages over TLS, reviewed by a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from typing import TYPE_CHECKING

import pytest

from agent.config import check_agent
from aggregator.config import AggregatorPagesSection, load_aggregator
from contract.errors import ConfigurationError
from service.http.counts import LoginResult
from service.login import check as login_module
from service.login import tokens as tokens_module
from service.login.tokens import TokenChecks
from service.pages.event_stream import PATH as STREAM_PATH
from stores.kubernetes_api.access import TokenReviews
from tests.parts.api_proxy import ApiProxy
from tests.parts.deadlines import patience, stays
from tests.parts.rights import RBAC
from tests.service.tls.tls_site import (
    basic,
    client_context,
    private_copy,
    tls_site,
    user_line,
    write_users,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

_AUDIENCE = "npu-vigil"
_ACCOUNT = "system:serviceaccount:default:scraper"
_HELLO = (200, b'"hello"\n')
_SCRAPER = "/api/v1/namespaces/default/serviceaccounts"


@pytest.fixture(autouse=True)
def _core_limit() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    yield
    resource.setrlimit(resource.RLIMIT_CORE, limits)


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server with the account ``scraper``, which may get ``/hello`` and the stream."""
    plane, name = control_plane, "pages-of-tests"
    rule = {"nonResourceURLs": ["/hello", "/readyz", STREAM_PATH], "verbs": ["get"]}
    binding = {
        "metadata": {"name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "scraper"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
    }
    plane.request("POST", _SCRAPER, {"metadata": {"name": "scraper"}})
    plane.request("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    plane.request("POST", f"{RBAC}/clusterrolebindings", binding)
    yield plane
    plane.request("DELETE", f"{RBAC}/clusterrolebindings/{name}")
    plane.request("DELETE", f"{RBAC}/clusterroles/{name}")
    plane.ask("DELETE", f"{_SCRAPER}/scraper")


@contextlib.asynccontextmanager
async def _checks(kubeconfig: Path) -> AsyncIterator[TokenChecks]:
    reviews = TokenReviews(str(kubeconfig))
    try:
        yield TokenChecks(reviews, _AUDIENCE)
    finally:
        await reviews.close()


def _bearer(token: str) -> str:
    return f"Authorization: Bearer {token}\r\n"


async def test_a_token_reads_the_pages_that_its_user_may_get(
    tmp_path: Path, pki: Path, plane: ControlPlane
) -> None:
    token = plane.token_for("default", "scraper", _AUDIENCE)
    context = client_context(pki)
    users = write_users(tmp_path / "users", user_line("ops", "secret"))
    async with (
        _checks(plane.kubeconfig) as tokens,
        tls_site(tmp_path, private_copy(pki, tmp_path), tokens=tokens, users=users) as site,
    ):
        assert await site.get("/hello", context, _bearer(token)) == _HELLO
        status, body = await site.get("/large", context, _bearer(token))
        assert (status, f"{_ACCOUNT} may not get the path /large".encode() in body) == (403, True)
        status, body = await site.get("/readyz", context, _bearer(token))
        assert (status, b"the store is away" in body) == (503, True)
        assert await site.get("/hello", context, basic("ops", "secret")) == _HELLO
        other = plane.token_for("default", "scraper", "https://kubernetes.default.svc")
        # A token of a static file is for the API server alone.
        for wrong in (other, "stranger-token", f"{token[:-4]}AAAA", "?", ""):
            status, body = await site.get("/hello", context, _bearer(wrong))
            text = b"the token is not valid, or not for the audience npu-vigil; this page needs"
            assert (status, text in body) == (401, True)
            assert await site.get("/readyz", context, _bearer(wrong)) == (
                503,
                b'{"ready":false}\n',
            )
        status, body = await site.get("/hello", context)
        assert (status, b"a token of a user who may get its path" in body) == (401, True)
        metrics = (await site.get("/metrics", context, basic("ops", "secret")))[1].decode()
        for result, count in (("right", 4), ("forbidden", 1), ("wrong", 10)):
            assert f'npu_vigil_http_logins_total{{result="{result}"}} {count}.0' in metrics
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=context)
        writer.write(b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert "WWW-Authenticate: Basic" in head
        assert "WWW-Authenticate: Bearer" in head
        writer.close()
        assert resource.getrlimit(resource.RLIMIT_CORE)[0] == 0


async def test_answers_are_remembered_and_end_while_the_api_server_is_away(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    token = plane.token_for("default", "scraper", _AUDIENCE)
    with ApiProxy(plane) as proxy:
        async with _checks(proxy.kubeconfig) as tokens:
            for _ in range(3):
                assert (await tokens.check(token, "/hello", "")).result is LoginResult.RIGHT
            assert (await tokens.check("other", "/hello", "")).result is LoginResult.WRONG
            proxy.refuse_connections()
            assert len(proxy.requests()) == 3
            loop = asyncio.get_running_loop()
            now = loop.time()
            remembered = tokens.remembered(token, "/hello")
            assert remembered is not None
            assert remembered.result is LoginResult.RIGHT
            assert tokens.remembered("other", "/hello") is not None
            result, reason = await tokens.check(token, "/large", "")
            assert result is LoginResult.UNREVIEWED
            assert reason.startswith("the token cannot be reviewed: https://127.0.0.1")
            assert "tokens of clients of the pages cannot be reviewed" in caplog.text
            with monkeypatch.context() as patch:
                patch.setattr(loop, "time", lambda: now + 11)
                assert tokens.remembered("other", "/hello") is None
                assert tokens.remembered(token, "/hello") is not None
            with monkeypatch.context() as patch:
                patch.setattr(loop, "time", lambda: now + 61)
                assert tokens.remembered(token, "/hello") is None


async def test_missing_rights_of_the_aggregator_are_named(
    tmp_path: Path, pki: Path, plane: ControlPlane
) -> None:
    async with (
        _checks(plane.kubeconfig_of("stranger-token")) as tokens,
        tls_site(tmp_path, private_copy(pki, tmp_path), tokens=tokens) as site,
    ):
        status, body = await site.get("/hello", client_context(pki), _bearer("any"))
        assert (status, b'cannot create resource \\"tokenreviews\\"' in body) == (503, True)


async def test_five_reviews_a_second_begin_and_eight_wait(plane: ControlPlane) -> None:
    async with _checks(plane.kubeconfig) as tokens:
        loop = asyncio.get_running_loop()
        began = loop.time()
        results = await asyncio.gather(
            *(tokens.check(f"token-{number}", "/hello", "192.0.2.1") for number in range(12))
        )
        assert [result.result for result in results].count(LoginResult.BUSY) == 3
        assert loop.time() - began >= 8 / 5 - 0.01


async def test_a_stream_ends_with_the_right_of_its_token(
    tmp_path: Path, pki: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "_GRANTED_SECONDS", 0.2)
    monkeypatch.setattr(login_module, "_TOKEN_PERIOD_SECONDS", 0.1)
    token = plane.token_for("default", "scraper", _AUDIENCE)
    async with (
        _checks(plane.kubeconfig) as tokens,
        tls_site(tmp_path, private_copy(pki, tmp_path), tokens=tokens) as site,
    ):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", site.port, ssl=client_context(pki)
        )
        head = f"GET {STREAM_PATH} HTTP/1.1\r\nHost: localhost\r\n{_bearer(token)}\r\n"
        writer.write(head.encode())
        await reader.readuntil(b"retry: 1000\n\n")
        await stays(0.6, because="the token is reviewed again, and is right")
        assert site.stream.clients == 1
        plane.request("DELETE", f"{_SCRAPER}/scraper")
        async with asyncio.timeout(patience(15.0)):
            with contextlib.suppress(ConnectionError):
                await reader.read(-1)
        assert site.stream.clients == 0
        writer.close()


def test_tokens_need_tls_and_an_api_server() -> None:
    with pytest.raises(ValueError, match="tokens needs TLS on the pages"):
        AggregatorPagesSection(tokens=True)
    environment = {
        "VIGIL_PAGES_TOKENS": "true",
        "VIGIL_PAGES_CERTIFICATE_FILE": "/a",
        "VIGIL_PAGES_KEY_FILE": "/b",
        "VIGIL_STORE": "directory:/tmp/a",
    }
    with pytest.raises(ConfigurationError, match=r"only the store kubernetes: reviews tokens"):
        load_aggregator(None, environment, {})
    assert load_aggregator(None, environment | {"VIGIL_STORE": "kubernetes:"}, {}).pages.tokens


def test_agents_have_no_tokens() -> None:
    with pytest.raises(ConfigurationError, match=r"pages\.tokens"):
        check_agent({"pages": {"tokens": True}}, "agent.toml")
