"""A TCP relay that can be cut or frozen, to stand between a client and a real server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

_CHUNK_BYTES = 64 * 1024


class Relay:
    """Relays connections to ``127.0.0.1:target`` from ``port``; use with ``async with``."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._asking = asyncio.Event()
        self._asking.set()
        self.held_bytes = 0
        """What clients have sent and ``hold_requests`` holds back."""
        self._refusing = False
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self.cut()

    @property
    def port(self) -> int:
        """Return the port of the relay."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def freeze(self) -> None:
        """Pass nothing on any more; connections stay open and new ones are taken."""
        self._flowing.clear()

    def hold_requests(self) -> None:
        """Pass nothing on to the server, until ``restore``; its answers still arrive.

        What a client sent before it went is passed on all the same.
        """
        self._asking.clear()

    async def cut(self) -> None:
        """Break all connections and those that come."""
        self._refusing = True
        await self.drop()

    async def drop(self) -> None:
        """Break all connections; new ones are taken."""
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def restore(self) -> None:
        """Pass everything on again."""
        self._refusing = False
        self._flowing.set()
        self._asking.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if not self._refusing:
                await self._relay(reader, writer)
        except asyncio.CancelledError:
            pass  # cut; a task of the server's that ends as cancelled would be logged
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, other_writer, asks=True))
                both.create_task(self._copy(other_reader, writer))
        finally:
            other_writer.transport.abort()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, asks: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                await self._flowing.wait()
                if asks and not self._asking.is_set():
                    self.held_bytes += len(chunk)
                    await self._asking.wait()
                    self.held_bytes -= len(chunk)
                writer.write(chunk)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()
