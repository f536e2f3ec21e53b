"""Pages over real connections, of clients that mean well and of others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import time
from typing import TYPE_CHECKING

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.http import address
from service.http.address import is_of_this_host
from service.http.connections import ListenerLimits
from service.pages import shared_rendering
from service.pages.daemon_pages import application, serving
from tests.parts.deadlines import patience, stand_in_waits, stays, until
from tests.parts.exposition import OPEN_METRICS, OneGauge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from aiohttp import web

    from service.pages.exposition import Encode

HELLO = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"
QUICK = ListenerLimits(whole_seconds=0.3, idle_seconds=0.6, unsent_seconds=0.3)
PATIENCE_SECONDS = 30.0
LARGE = "x" * (16 << 20)
NO_REQUEST = {400: b"this is not a valid HTTP request\n", 431: b"the request is too large\n"}


class Client:
    """A client with its own address."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.headers = ""
        """Those of the last answer."""

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def stands_still(self) -> None:
        """Read nothing more."""
        self._transport().pause_reading()

    def goes_on(self) -> None:
        """Read again."""
        self._transport().resume_reading()

    def _transport(self) -> asyncio.Transport:
        assert isinstance(self.writer.transport, asyncio.Transport)
        return self.writer.transport

    async def answer(self) -> tuple[int, bytes]:
        """Return the status and the body of the next answer."""
        async with asyncio.timeout(patience(PATIENCE_SECONDS)):
            head = await self.reader.readuntil(b"\r\n\r\n")
            self.headers = head.decode()
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            return int(head.split()[1]), await self.reader.readexactly(int(length))

    async def ended(self) -> bytes:
        """Return the bytes that come until the server closes the connection."""
        async with asyncio.timeout(patience(PATIENCE_SECONDS)):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
            return b""


class Site:
    """Pages that are served, and their clients."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._clients: list[Client] = []

    @property
    def url(self) -> str:
        return (self._state_dir / "listen").read_text().strip()

    async def client(self, address: str = "127.0.0.1") -> Client:
        host, port = self.url.removeprefix("http://").split(":")
        opened = await asyncio.open_connection(host, int(port), local_addr=(address, 0))
        self._clients.append(Client(*opened))
        return self._clients[-1]

    async def metrics(self) -> dict[tuple[str, ...], float]:
        client = await self.client()
        client.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        status, body = await client.answer()
        assert status == 200
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }

    async def close(self) -> None:
        for client in self._clients:
            client.writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await client.writer.wait_closed()


def some_pages() -> web.Application:
    def broken() -> object:
        raise RuntimeError("no page")

    api = {"/hello": lambda: "hello", "/large": lambda: LARGE, "/broken": broken}
    return application(dict, tuple, lambda encode: encode(OneGauge()), api)


@contextlib.asynccontextmanager
async def site(state_dir: Path, limits: ListenerLimits) -> AsyncIterator[Site]:
    opened = Site(state_dir)
    names = ("npu.example.com",)
    async with serving(some_pages(), "127.0.0.1:0", state_dir, limits=limits, host_names=names):
        try:
            yield opened
        finally:
            await opened.close()


@pytest.mark.slow
async def test_a_connection_serves_request_after_request(tmp_path: Path) -> None:
    async with site(tmp_path, ListenerLimits()) as served:
        client = await served.client()
        for begin in range(0, len(HELLO), 7):
            client.send(HELLO[begin : begin + 7])
            await asyncio.sleep(0)
        assert await client.answer() == (200, b'"hello"\n')
        client.send(HELLO * 40 + HELLO[:-2])
        for _ in range(40):
            assert (await client.answer())[0] == 200
        client.send(HELLO[-2:] + b"\r\n" + HELLO.replace(b"GET", b"HEAD"))
        assert await client.answer() == (200, b'"hello"\n')
        assert b"200 OK" in await client.reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost", 200),
        (b"LocalHost:9820", 200),
        (b"localhost.:9820", 200),
        (b"127.0.0.1:9820", 200),
        (b"192.0.2.7", 200),
        (b"[::1]:9820", 200),
        (b"[2001:db8::7]", 200),
        (b"NPU.Example.com:9820", 200),
        (b"evil.example.com", 421),
        (b"npu.example.com.evil.example", 421),
        (b"127.0.0.1.evil.example:9820", 421),
        (b"localhost@evil.example", 421),
        (b"[localhost]", 421),
        (b"::1", 421),
        (b"", 421),
        (b"localhost:port", 421),
        (b"\xff\xfe", 421),
        (b"localhost\r\nHost: evil.example.com", 421),
    ],
)
async def test_a_name_that_others_can_point_here_is_answered_with_nothing(
    host: bytes, status: int, tmp_path: Path
) -> None:
    async with site(tmp_path, ListenerLimits()) as served:
        for path in (b"/hello", b"/metrics", b"/missing"):
            client = await served.client()
            client.send(b"GET %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (path, host))
            found, body = await client.answer()
            if status == 200:
                assert found == (404 if path == b"/missing" else 200)
            else:
                # Two names are no request for aiohttp already.
                assert found in (400, 421)
                assert b"hello" not in body
                assert b"evil" not in body
            assert "X-Content-Type-Options: nosniff" in client.headers


async def test_only_connections_over_loopback_are_asked_for_a_name() -> None:
    assert is_of_this_host("evil.example.com", "192.0.2.7", ())
    assert not is_of_this_host("evil.example.com", "127.0.0.9", ())
    assert not is_of_this_host("evil.example.com", "::1", ())


async def test_an_error_does_not_repeat_its_request(tmp_path: Path) -> None:
    async with site(tmp_path, ListenerLimits()) as served:
        for sent in (
            b"GET /<script>secret HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"secret /hello HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /hello HTTP/1.1\r\nHost: localhost\r\nsecret\r\n\r\n",
            b"GET /hello secret HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: secret\r\n\r\n",
        ):
            client = await served.client()
            client.send(sent)
            status, body = await client.answer()
            assert status >= 400
            assert b"secret" not in body
            assert "secret" not in client.headers
            assert "nosniff" in client.headers


async def test_no_page_waits_for_a_body(tmp_path: Path) -> None:
    async with site(tmp_path, ListenerLimits()) as served:
        client = await served.client()
        client.send(b"POST /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
        assert (await client.answer())[0] == 405
        assert await client.ended() == b""


async def test_unfinished_requests_keep_no_other_out(tmp_path: Path) -> None:
    limits = ListenerLimits(connections=20, unfinished_per_address=4)
    async with site(tmp_path, limits) as served:
        flood = []
        for number in range(50):
            client = await served.client(f"127.0.0.{2 + number % 10}")
            client.send(HELLO[:-2])
            flood.append(client)
        probe = await served.client()
        probe.send(HELLO)
        other = await served.client("127.0.0.99")
        other.send(HELLO)
        assert [await one.answer() for one in (probe, other)] == [(200, b'"hello"\n')] * 2
        shown = await served.metrics()
        assert shown["npu_vigil_http_connections",] <= 20
        reasons = (("npu_vigil_http_closed_connections_total", r) for r in ("crowded", "address"))
        assert sum(shown.get(reason, 0) for reason in reasons) >= 50 - 12


@pytest.mark.slow
async def test_slow_client_is_disconnected(tmp_path: Path) -> None:
    async with site(tmp_path, QUICK) as served:
        silent, half, idle, greedy = [await served.client() for _ in range(4)]
        half.send(HELLO[:-2])
        idle.send(HELLO)
        assert (await idle.answer())[0] == 200
        greedy.stands_still()
        greedy.send(HELLO.replace(b"/hello", b"/large"))
        assert await silent.ended() == b""
        assert await half.ended() == b""
        assert await idle.ended() == b""

        async def is_alone() -> bool:
            return (await served.metrics())["npu_vigil_http_connections",] == 1

        await until(is_alone, "the server has only the connection that asks")
        greedy.goes_on()
        assert len(await greedy.ended()) < len(LARGE)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET /hello HTTP/1.1\nHost: localhost\n\n", 400),
        (b"GET /hello\x00 HTTP/9.1\r\nX: secret\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 9000 + b"\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nX: " + b"y" * 20_000, 431),
    ],
)
async def test_malformed_request_is_counted_and_not_logged(
    sent: bytes, status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(tmp_path, ListenerLimits()) as served:
        client = await served.client()
        caplog.clear()
        client.send(sent)
        assert await client.answer() == (status, NO_REQUEST[status])
        assert "nosniff" in client.headers
        await client.ended()
        assert (await served.metrics())["npu_vigil_http_requests_total", "bad"] == 1
    assert caplog.records == []


async def test_a_page_that_cannot_be_made_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(tmp_path, ListenerLimits()) as served:
        for _ in range(3):
            client = await served.client()
            client.send(HELLO.replace(b"/hello", b"/broken"))
            assert (await client.answer())[0] == 500
        shown = await served.metrics()
    assert shown["npu_vigil_http_requests_total", "failed"] == 3
    (logged,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert logged.exc_info is not None


@pytest.mark.slow
async def test_each_form_is_rendered_once_for_all_requests_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine all these requests take more than a second.
    monkeypatch.setattr(shared_rendering, "_FRESH_SECONDS", patience(1.0))
    rendered = 0

    async def render(encode: Encode) -> bytes:
        nonlocal rendered
        rendered += 1
        shown = OneGauge(rendered)
        await stand_in_waits(0.05)
        return encode(shown)

    pages = application(dict, tuple, render, {})
    async with serving(pages, "127.0.0.1:0", tmp_path), aiohttp.ClientSession() as session:
        url = (tmp_path / "listen").read_text().strip()

        async def ask(accept: str) -> str:
            async with session.get(f"{url}/metrics", headers={"Accept": accept}) as answer:
                up = next(line for line in (await answer.text()).splitlines() if line[:3] == "up ")
                return f"{answer.content_type} {up}"

        # A version that a client makes up is no form of its own.
        open_forms = (OPEN_METRICS, *(OPEN_METRICS.replace("1.0.0", f"1.{n}.0") for n in range(9)))
        asked = await asyncio.gather(*map(ask, ("", "text/plain", *open_forms) * 3))
        renderings = {text.rpartition(" ")[2] for text in asked}
        assert renderings == {"1.0", "2.0"}
        assert len(set(asked)) == 2
        begun = time.monotonic()
        while (await ask("")).rpartition(" ")[2] in renderings:
            assert time.monotonic() - begun < patience(PATIENCE_SECONDS)
        assert rendered == 3


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """Leave only twelve free descriptors to this process; yield the limit before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as opened:
        free = [opened.enter_context(socket.socket()).fileno() for _ in range(12)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free) + 1, hard))
    yield soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
async def test_without_descriptors_it_is_logged_once_and_goes_on_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, few_descriptors: int
) -> None:
    async with site(tmp_path, ListenerLimits()) as served:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with contextlib.ExitStack() as taken:
            client = await served.client()
            with contextlib.suppress(OSError):
                while True:
                    taken.enter_context(socket.socket())
            client.send(HELLO)
            # Longer than a pause, so that it is tried more than once.
            await stays(0.5, because="longer than a pause, so that it is tried more than once")
            refused = [record for record in caplog.records if "not accepted" in record.message]
            assert len(refused) == 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (few_descriptors, hard))
        async with asyncio.timeout(patience(PATIENCE_SECONDS)):
            assert (await served.metrics())["npu_vigil_http_accept_failures_total",] >= 1
    assert sum("not accepted" in record.message for record in caplog.records) == 1


@pytest.mark.slow
async def test_an_address_that_is_taken_is_served_when_it_is_free(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "_RETRY_SECONDS", 0.05)
    caplog.set_level(logging.INFO)
    (tmp_path / "listen").write_text("http://127.0.0.1:1\n")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        place = f"127.0.0.1:{other.getsockname()[1]}"
        async with serving(some_pages(), place, tmp_path, socket_name="some.sock"):
            assert not (tmp_path / "listen").exists()
            connector = aiohttp.UnixConnector(str(tmp_path / "some.sock"))
            async with aiohttp.ClientSession(connector=connector) as session:
                answer = await session.get("http://daemon/metrics")
                assert "npu_vigil_http_listening 0.0" in await answer.text()
            await stays(0.3, because="longer than a pause, so that it is tried more than once")
            other.close()
            await until((tmp_path / "listen").exists, seconds=PATIENCE_SECONDS)
            served = Site(tmp_path)

            async def listens() -> bool:
                return (await served.metrics())["npu_vigil_http_listening",] == 1

            await until(listens, "it listens", PATIENCE_SECONDS, 0.1)
            await served.close()
    logged = [record.message for record in caplog.records if place in record.message]
    assert [line.partition(":")[0] for line in logged] == [
        "no pages on --listen 127.0.0.1",
        "listening on http",
    ]
