"""Serving pages on an address and on a socket."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import pytest

from contract.pages.messages import PageMessage
from contract.sentences import sentence
from service.pages.daemon_pages import application, json_response, serving
from service.pages.settings import pages_tls
from tests.parts.exposition import OPEN_METRICS, OneGauge, series_of
from tests.parts.page_messages import messages_of
from tests.service.tls.tls_site import private_copy, tls_section

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web


def one_page() -> web.Application:
    return application(
        dict, tuple, lambda encode: encode(OneGauge()), {"/hello": lambda: {"hello": [1]}}
    )


async def test_the_address_is_noted_and_answers(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    async with serving(one_page(), "127.0.0.1:0", deep):
        url = (deep / "listen").read_text().strip()
        async with aiohttp.ClientSession() as session, session.get(f"{url}/hello") as response:
            assert response.content_type == "application/json"
            assert await response.text() == '{"hello":[1]}\n'
    assert [path.name for path in deep.iterdir()] == ["listen"]


async def test_the_socket_is_for_this_user_and_replaces_an_old_one(tmp_path: Path) -> None:
    path = tmp_path / "some.sock"
    for _ in range(2):
        async with serving(one_page(), None, tmp_path, socket_name="some.sock"):
            connector = aiohttp.UnixConnector(str(path))
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.get("http://daemon/hello") as response,
            ):
                assert response.status == 200
            assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.server
async def test_without_an_address_nothing_of_tls_connections_is_loaded(
    pki: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "service.tls.connection", raising=False)
    tls = pages_tls(tls_section(private_copy(pki, tmp_path)))
    assert tls is not None
    async with serving(one_page(), None, tmp_path, socket_name="some.sock", tls=tls):
        assert "service.tls.connection" not in sys.modules


async def test_a_socket_path_that_is_too_long_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deep = tmp_path / ("d" * 120)
    async with serving(one_page(), "127.0.0.1:0", deep, socket_name="some.sock"):
        assert (deep / "listen").exists()
    bytes_of_path = len(os.fsencode(deep / "some.sock"))
    assert f"no API on {deep / 'some.sock'}: the path has {bytes_of_path} bytes" in caplog.text
    assert "choose a shorter --state-dir" in caplog.text


async def test_a_note_that_cannot_be_written_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    async with serving(one_page(), "127.0.0.1:0", tmp_path / "file"):
        pass
    assert "is not written" in caplog.text


@pytest.mark.parametrize(
    "listen", ["192.0.2.1:1", "no-such-host.invalid:1", f"{'x' * 70}.invalid:1"]
)
async def test_an_address_that_cannot_be_had_ends_nothing(
    listen: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(one_page(), listen, tmp_path):
        assert f"no pages on --listen {listen}" in caplog.text
    assert not (tmp_path / "listen").exists()


async def test_probes_report_what_is_wrong(tmp_path: Path) -> None:
    stalled: dict[str, float] = {}
    reasons: list[str] = []
    pages = application(lambda: stalled, lambda: reasons, lambda encode: encode(OneGauge()), {})
    async with serving(pages, "127.0.0.1:0", tmp_path), aiohttp.ClientSession() as session:
        url = (tmp_path / "listen").read_text().strip()

        async def ask(path: str) -> tuple[int, str]:
            async with session.get(url + path) as response:
                return response.status, await response.text()

        assert await ask("/healthz") == (200, '{"healthy":true,"stalled":{}}\n')
        assert await ask("/readyz") == (200, '{"ready":true,"reasons":[]}\n')
        stalled["driver"] = 61.5
        reasons.append("no store")
        assert await ask("/healthz") == (503, '{"healthy":false,"stalled":{"driver":61.5}}\n')
        assert await ask("/readyz") == (503, '{"ready":false,"reasons":["no store"]}\n')
        status, metrics = await ask("/metrics")
        assert status == 200
        assert "\nup 1.0\n" in metrics
        assert "npu_vigil_http_listening 1.0" in metrics


async def test_open_metrics_has_the_samples_of_the_text_and_one_end(tmp_path: Path) -> None:
    async with serving(one_page(), "127.0.0.1:0", tmp_path), aiohttp.ClientSession() as session:
        url = (tmp_path / "listen").read_text().strip()

        async def ask(accept: str) -> tuple[str, str]:
            async with session.get(f"{url}/metrics", headers={"Accept": accept}) as response:
                assert response.status == 200
                return response.headers["Content-Type"], await response.text()

        content_type, text = await ask("text/plain")
        open_content_type, open_text = await ask(OPEN_METRICS)
        for unclear in ("", "*/*", "application/openmetrics-text;version=new", "text/html"):
            assert (await ask(unclear))[0] == content_type
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert open_content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert open_text.count("# EOF") == 1
    assert open_text.endswith("\n# EOF\n")
    assert "_created" not in open_text
    assert series_of(open_text) == series_of(text)


class _Page(msgspec.Struct, omit_defaults=True):
    because: tuple[str, ...]
    messages: dict[str, PageMessage] = {}


def test_a_page_gets_the_messages_of_its_sentences_while_it_is_encoded() -> None:
    held = sentence("held back: {reason}", reason=sentence("{count} jobs", count=2))
    pages = [_Page((held, "as it is", held)), _Page(("as it is",))]
    bodies = []
    for page in pages:
        body = json_response(page).body
        assert isinstance(body, bytes)
        bodies.append(msgspec.json.decode(body, type=_Page))
    assert bodies[0].because == (str(held), "as it is", str(held))
    assert bodies[0].messages == messages_of(pages[0])
    assert bodies[0].messages == {
        "held back: 2 jobs": PageMessage(
            "held back: {reason}", {"reason": PageMessage("{count} jobs", {"count": 2})}
        )
    }
    assert bodies[1].messages == {}, "those of another page do not count"
