"""Connections and streams of a real aggregator are limited as configured."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.aggregator.nodes import healthy, report
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from pathlib import Path

    from stores.base import Store
    from tests.aggregator.conftest import Make

_PLACES = 32
_STREAM = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def kind() -> str:
    return "directory"


async def test_neither_unfinished_requests_nor_silent_streams_keep_others_out(
    make: Make, address: tuple[str, Path | None], store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "aggregator.toml"
    file.write_text(f"[pages]\nmax_connections = {_PLACES}\n")
    await store.put(report("n1", healthy()))
    daemon = make(*address, "--config", str(file))
    await asyncio.to_thread(daemon.start)
    url = urlsplit(daemon.url)

    with ExitStack() as opened:

        def client(source: str, sent: bytes) -> socket.socket:
            connection = opened.enter_context(socket.socket())
            connection.settimeout(patience(30))
            connection.bind((source, 0))
            connection.connect((url.hostname, url.port))
            connection.send(sent)
            return connection

        for number in range(_PLACES):
            stream = client("127.0.0.2" if number % 2 else f"127.0.1.{number}", _STREAM)
            assert stream.recv(15) == b"HTTP/1.1 200 OK"
        assert daemon.metric("npu_vigil_stream_clients") == _PLACES / 2
        assert daemon.metric("npu_vigil_stream_displaced_total") == _PLACES / 2
        for number in range(3 * _PLACES):
            client(f"127.0.0.{2 + number % 10}", b"GET /metrics HTTP/1.1\r\n")
        assert daemon.ask("/readyz")[0] == 200
        scrape = client("127.0.2.1", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert scrape.recv(15) == b"HTTP/1.1 200 OK"
        # An exposition is good for a second.
        daemon.process.wait_until(
            lambda: daemon.metric("npu_vigil_http_closed_connections_total") >= 2 * _PLACES, 30
        )
        assert daemon.metric("npu_vigil_http_connections") <= _PLACES
