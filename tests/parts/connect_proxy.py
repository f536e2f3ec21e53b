"""An HTTP proxy that makes tunnels (CONNECT, RFC 9110) to ports of this host, whatever the name."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

_CHUNK_BYTES = 64 * 1024


class ConnectProxy:
    """Listens on ``port`` of 127.0.0.1; use with ``async with``.

    ``authorization`` is the ``Proxy-Authorization`` that it demands.
    """

    def __init__(self, authorization: str | None = None) -> None:
        self._authorization = authorization
        self.tunnels: list[str] = []
        """What was asked for, as ``host:port``, whether or not it was allowed."""
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def port(self) -> int:
        """Return the port of the proxy."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._tunnel(reader, writer)
        except asyncio.CancelledError:
            pass  # a task of the server's that ends as cancelled would be logged
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        request, *lines = head.split("\r\n")
        method, target, _ = request.split(" ")
        self.tunnels.append(target)
        headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in lines)}
        if method != "CONNECT":
            writer.write(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
        elif headers.get("proxy-authorization") != self._authorization:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        else:
            port = int(target.rpartition(":")[2])
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            try:
                await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))
            finally:
                other_writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
