"""A proxy in front of several aggregators, as a Service and an API server are one."""

from __future__ import annotations

import contextlib
from itertools import cycle
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

_TAKEN = (
    "Cache-Control",
    "Content-Type",
    "Content-Encoding",
    "ETag",
    "Vigil-Epoch",
    "Date",
    "Vary",
)
_GIVEN = ("Accept", "Accept-Encoding", "Accept-Language", "If-None-Match", "Last-Event-ID")
STREAM = "/api/v1/stream"


class Proxy:
    """Forwards each request below ``/prefix/`` to the next of its servers."""

    def __init__(self, urls: Sequence[str], *, ends_streams: bool = False) -> None:
        self.url = ""
        self.streams = 0
        self.requests: list[str] = []
        self.sent_bytes = 0
        """Of all bodies, as they were sent."""
        self._urls = cycle(urls)
        self._ends_streams = ends_streams

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve within the block."""
        application = web.Application()
        application.router.add_get("/prefix/{path:.*}", self._forward)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        host, port = site._server.sockets[0].getsockname()  # type: ignore[attr-defined]
        self.url = f"http://{host}:{port}/prefix/"
        async with aiohttp.ClientSession(auto_decompress=False) as self._session:
            yield
            await runner.cleanup()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        path = f"/{request.match_info['path']}"
        is_stream = path == STREAM
        self.streams += is_stream
        self.requests.append(path)
        headers = {name: request.headers[name] for name in _GIVEN if name in request.headers}
        url = f"{next(self._urls)}{path}"
        async with self._session.get(url, params=request.query, headers=headers) as answer:
            taken = {name: answer.headers[name] for name in _TAKEN if name in answer.headers}
            response = web.StreamResponse(status=answer.status, headers=taken)
            await response.prepare(request)
            if not (is_stream and self._ends_streams):
                async for part in answer.content.iter_any():
                    self.sent_bytes += len(part)
                    await response.write(part)
            await response.write_eof()
            return response
