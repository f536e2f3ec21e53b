"""A proxy before a real broker that plays what other brokers do, for MQTT 3.1.1 and 5.

    async with MqttProxy(broker.port, Plays(largest=20_000)) as proxy:
        store = open_store(proxy.url)

What it plays may be replaced at any time. It counts what goes through it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.parts.deadlines import stand_in_waits

if TYPE_CHECKING:
    from typing import Self

_CONNECT, _PUBLISH, _PUBACK, _SUBSCRIBE, _SUBACK = 1, 3, 4, 8, 9
_RETAIN = 1


@dataclass
class Plays:
    """What a broker does. Sizes are those of whole packets.

    ``under_way``: it ends a connection with more unacknowledged publications, without a reason.
    ``largest``: it ends a connection over a larger packet, without a reason.
    ``retained_bytes``: it keeps no larger message, and acknowledges it (EMQX: the retainer's
    ``max_payload_size``). ``wildcards``: retained messages are sent for filters with wildcards
    (RabbitMQ 3.10 sends none). ``cuts``: so many publications to a topic with ``cut`` reach
    the broker, and the connection ends before they are acknowledged.
    ``answers_after_seconds``: acknowledgements wait for so long, ``grants_after_seconds``: answers
    to subscriptions do. ``retained_after_seconds``: so do retained messages, and what comes behind
    passes them (HiveMQ CE).
    """

    under_way: int = 65_535
    largest: int = 1 << 28
    retained_bytes: int = 1 << 28
    wildcards: bool = True
    cut: str = ""
    cuts: int = 0
    answers_after_seconds: float = 0.0
    grants_after_seconds: float = 0.0
    retained_after_seconds: float = 0.0


@dataclass
class _Packet:
    first: int
    length: bytes
    rest: bytes

    @property
    def kind(self) -> int:
        return self.first >> 4

    @property
    def qos(self) -> int:
        return self.first >> 1 & 3

    @property
    def topic(self) -> str:
        """Return the topic of a PUBLISH."""
        return self.rest[2 : 2 + int.from_bytes(self.rest[:2])].decode()

    @property
    def whole(self) -> bytes:
        return bytes([self.first]) + self.length + self.rest

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Self:
        first = await reader.readexactly(1)
        length = await reader.readexactly(1)
        while length[-1] & 128:
            length += await reader.readexactly(1)
        rest = sum((byte & 127) << 7 * place for place, byte in enumerate(length))
        return cls(first[0], length, await reader.readexactly(rest))


@dataclass
class _Connection:
    """One client's. ``by_wildcard``: its last subscription has a wildcard."""

    is_v5: bool = False
    is_cut: bool = False
    under_way: int = 0
    unretained: set[str] = field(default_factory=set)
    by_wildcard: bool = False


class MqttProxy:
    """Listens on ``port`` of 127.0.0.1 before the broker at ``target``; use with ``async with``."""

    def __init__(self, target: int, plays: Plays | None = None) -> None:
        self._target = target
        self.plays = Plays() if plays is None else plays
        self.most_under_way = 0
        """The most publications that one connection had unacknowledged."""
        self.ended: list[str] = []
        """The topics of the publications over which it ended connections."""
        self.sent: Counter[str] = Counter()
        """Bytes from clients (``up``) and to clients (``down``), and ``packets`` of both."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self.drop()

    async def drop(self) -> None:
        """Break all connections; new ones are taken."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        """Return the port of the proxy."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Return the URL of the proxy."""
        return f"mqtt://127.0.0.1:{self.port}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass  # a task of the server's that ends as cancelled would be logged
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._target)
        connection = _Connection()
        ways = (
            asyncio.ensure_future(self._up(connection, reader, broker_writer)),
            asyncio.ensure_future(self._down(connection, broker_reader, writer)),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            # First: ``drop`` may cancel what waits here.
            broker_writer.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _up(
        self, connection: _Connection, reader: asyncio.StreamReader, broker: asyncio.StreamWriter
    ) -> None:
        while True:
            packet = await _Packet.read(reader)
            self._count("up", packet)
            if packet.kind == _CONNECT:
                connection.is_v5 = packet.rest[6] == 5
            elif packet.kind == _SUBSCRIBE:
                self._subscribe(connection, packet)
            elif packet.kind == _PUBLISH and packet.qos:
                if self._ends_over(connection, packet):
                    self.ended.append(packet.topic)
                    return
                if packet.first & _RETAIN and len(packet.whole) > self.plays.retained_bytes:
                    connection.unretained.add(packet.topic)
                    packet.first &= ~_RETAIN
                connection.is_cut = self.plays.cuts > 0 and self.plays.cut in packet.topic
            broker.write(packet.whole)
            await broker.drain()
            if connection.is_cut:
                self.plays.cuts -= 1
                self.ended.append(packet.topic)
                await stand_in_waits(0.1)  # the broker has it before the connection ends
                return

    def _subscribe(self, connection: _Connection, packet: _Packet) -> None:
        """Note the filter of a SUBSCRIBE, which is its only one in our clients."""
        at = 3 + packet.rest[2] if connection.is_v5 else 2
        topics = packet.rest[at + 2 : -1].decode()
        connection.by_wildcard = "+" in topics or "#" in topics
        if connection.by_wildcard and connection.is_v5 and not self.plays.wildcards:
            # Retain Handling 2: nothing that is retained is sent (MQTT 5, 3.8.3.1).
            packet.rest = packet.rest[:-1] + bytes([packet.rest[-1] | 0x20])

    def _ends_over(self, connection: _Connection, packet: _Packet) -> bool:
        connection.under_way += 1
        self.most_under_way = max(self.most_under_way, connection.under_way)
        return connection.under_way > self.plays.under_way or len(packet.whole) > self.plays.largest

    async def _down(
        self, connection: _Connection, broker: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            packet = await _Packet.read(broker)
            if connection.is_cut:
                continue
            if packet.kind == _PUBACK:
                await stand_in_waits(self.plays.answers_after_seconds)
                connection.under_way -= 1
            elif packet.kind == _SUBACK:
                await stand_in_waits(self.plays.grants_after_seconds)
            if packet.kind == _PUBLISH:
                # With 3.1.1 only what follows a subscription has the flag.
                is_hidden = connection.by_wildcard and not connection.is_v5
                if is_hidden and not self.plays.wildcards and packet.first & _RETAIN:
                    continue
                if packet.topic in connection.unretained:
                    packet.first |= _RETAIN  # as published, while this connection lasts
                if packet.first & _RETAIN and self.plays.retained_after_seconds:
                    later = asyncio.get_running_loop().call_later
                    later(self.plays.retained_after_seconds, writer.write, packet.whole)
                    continue
            self._count("down", packet)
            writer.write(packet.whole)
            await writer.drain()

    def _count(self, way: str, packet: _Packet) -> None:
        self.sent[way] += len(packet.whole)
        self.sent["packets"] += 1
