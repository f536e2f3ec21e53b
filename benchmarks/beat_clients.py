"""Many connections that beat, cheaply: MQTT 3.1.1 by hand, in one process.

An agent's connection carries more than its beats, but nothing else all the time. Each client here
connects with a last will, beats at QoS 1 in turn, and keeps its connection up when it is silent.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from contract.topics import beat_topic
from stores.mqtt.beats import HeartbeatMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

# Types and flags of MQTT 3.1.1, chapter 3, in the first byte of a packet.
_CONNECT, _CONNACK, _PUBLISH, _PUBACK, _PINGREQ = 0x10, 0x20, 0x33, 0x40, b"\xc0\x00"
"""The publication is at QoS 1 and retained."""
_CONNECT_FLAGS = 0x2E
"""A clean session; a will at QoS 1 that is retained."""
# The broker ends a connection after one and a half times that (MQTT 3.1.1, 3.1.2.10).
_KEEPALIVE_SECONDS = 10
_TICK_SECONDS = 0.02
# All at once would fill the broker's backlog of the listening socket.
_CONNECTING_AT_ONCE = 100
_CONNECT_SECONDS = 20.0


def _field(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def _packet(kind: int, body: bytes) -> bytes:
    length, digits = len(body), bytearray()
    while True:
        length, digit = divmod(length, 128)
        # The remaining length: seven bits a byte, the eighth means that more follow (MQTT 3.1.1,
        # 2.2.3).
        digits.append(digit | (0x80 if length else 0))
        if not length:
            return bytes([kind]) + digits + body


class BeatingClient(asyncio.Protocol):
    """One node. ``beaten_at`` is when it beat last (``time.monotonic``)."""

    def __init__(self, node: str, interval_seconds: float) -> None:
        self.node = node
        self.beaten_at = 0.0
        self.is_silent = False
        self.acknowledged = 0
        self.connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: str | None = None
        self.interval_seconds = interval_seconds
        self._connection = f"{node}-1"
        self._topic = _field(beat_topic(node).encode())
        self._transport: asyncio.Transport | None = None
        self._waiting = b""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        will = self._payload(is_broken=True)
        # Protocol level 4 is MQTT 3.1.1.
        head = _field(b"MQTT") + bytes([4, _CONNECT_FLAGS]) + _KEEPALIVE_SECONDS.to_bytes(2, "big")
        transport.write(
            _packet(_CONNECT, head + _field(self.node.encode()) + self._topic + _field(will))
        )

    @override
    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``. Everything that comes is shorter than 128 bytes."""
        data = self._waiting + data
        while len(data) >= 2 and len(data) >= 2 + data[1]:
            kind, body, data = data[0], data[2 : 2 + data[1]], data[2 + data[1] :]
            if kind == _CONNACK and not self.connected.done():
                if body[1] == 0:
                    self.connected.set_result(None)
                else:
                    self.connected.set_exception(ConnectionError(f"refused: {body[1]}"))
            elif kind == _PUBACK:
                self.acknowledged += 1
        self._waiting = data

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = str(exc or "closed")
        if not self.connected.done():
            self.connected.set_exception(ConnectionError(self.ended))

    def turn(self) -> None:
        """Its turn has come: a beat, or where it is silent the ping of its connection."""
        if self.ended is not None or self._transport is None:
            return
        if self.is_silent:
            self._transport.write(_PINGREQ)
            return
        self.beaten_at = time.monotonic()
        # One packet identifier for all: a beat is acknowledged before the next one is due.
        body = self._topic + b"\x00\x01" + self._payload(is_broken=False)
        self._transport.write(_packet(_PUBLISH, body))

    def break_off(self) -> None:
        """Break the connection without a DISCONNECT."""
        assert self._transport is not None
        self._transport.abort()

    def _payload(self, *, is_broken: bool) -> bytes:
        return msgspec.json.encode(
            HeartbeatMessage(
                self.node,
                self._connection,
                "benchmark",
                self.interval_seconds,
                time.time_ns() // 1_000_000,
                is_broken,
            )
        )


async def connect(nodes: Sequence[str], port: int, interval_seconds: float) -> list[BeatingClient]:
    """Return a connection for each node, which has beaten once."""
    gate = asyncio.Semaphore(_CONNECTING_AT_ONCE)
    loop = asyncio.get_running_loop()

    async def one(node: str) -> BeatingClient:
        async with gate, asyncio.timeout(_CONNECT_SECONDS):
            _, client = await loop.create_connection(
                lambda: BeatingClient(node, interval_seconds), "127.0.0.1", port
            )
            await client.connected
            return client

    return list(await asyncio.gather(*(one(node) for node in nodes)))


async def keep_beating(clients: Sequence[BeatingClient], interval_seconds: float) -> None:
    """Give every client its turn once per interval, evenly, until cancelled."""
    done, began = 0, time.monotonic()
    while True:
        # Counted from the start, so that slow turns do not add up to a slower interval.
        due = int((time.monotonic() - began) / interval_seconds * len(clients))
        for number in range(done, due):
            clients[number % len(clients)].turn()
        done = due
        await asyncio.sleep(_TICK_SECONDS)
