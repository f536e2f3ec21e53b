"""Connections to an API server, of which each request takes one, and new ones where that is asked.

``aiohttp`` chooses a connection of its pool by itself. Here each connection has a session of its
own, so that it is known which one a request took, and a new one can be demanded.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import aiohttp

from contract.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.kubernetes_api.client.configuration import ClientConfiguration

_KEPT_SECONDS = 90.0


class PooledConnection:
    """At most one connection, and the request that it carries."""

    def __init__(self, configuration: ClientConfiguration) -> None:
        self.opened_at = _now()
        self.idle_since = math.inf
        self.is_watch = False
        self.end: Callable[[], None] | None = None
        """Breaks what it carries: closing a session leaves its reader waiting."""
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=configuration.tls or True, keepalive_timeout=_KEPT_SECONDS
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=True,
        )


class ConnectionPool:
    """Connections to one endpoint. Those to the one before end with what they carry."""

    def __init__(self) -> None:
        self.dead_before = -math.inf
        """Connections from before this are dead, as far as is known."""
        self._endpoint: object = None
        self._idle: list[PooledConnection] = []
        self._used: set[PooledConnection] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def take(self, configuration: ClientConfiguration, *, is_new: bool = False) -> PooledConnection:
        """Return a connection that is not in use, the one that was used last if there is any.

        Raises ``StoreUnavailable`` once the pool is closed.
        """
        if self._is_closed:
            raise StoreUnavailable("the store has been closed")
        if configuration.endpoint != self._endpoint:
            self._endpoint = configuration.endpoint
            for pooled in (*self._idle, *self._used):
                self._close(pooled)
            self._idle.clear()
        self._forget_old()
        pooled = PooledConnection(configuration) if is_new or not self._idle else self._idle.pop()
        pooled.idle_since = math.inf
        self._used.add(pooled)
        return pooled

    def give_back(self, pooled: PooledConnection) -> None:
        """Keep a connection whose request was answered to its end."""
        self._used.discard(pooled)
        pooled.end = None
        if pooled.session.closed:
            return  # another endpoint is used by now, or none
        pooled.idle_since = _now()
        self._idle.append(pooled)

    def discard(self, pooled: PooledConnection) -> None:
        """Close a connection whose request was not answered to its end, without a goodbye."""
        self._used.discard(pooled)
        pooled.end = None
        self._close(pooled)

    def renew(self, before: float) -> None:
        """Drop connections that were opened before: idle ones are closed, watches end."""
        self.dead_before = max(self.dead_before, before)
        self.drop_idle(before)
        for pooled in self._used:
            # Requests are repeated by ``Attempts``; a watch would wait for its 90 s of silence.
            if pooled.is_watch and pooled.end is not None and pooled.opened_at < before:
                pooled.end()

    def drop_idle(self, before: float) -> None:
        """Close the idle connections that were opened before."""
        for pooled in self._idle:
            if pooled.opened_at < before:
                self._close(pooled)
        self._idle = [pooled for pooled in self._idle if pooled.opened_at >= before]

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        for pooled in (*self._idle, *self._used):
            self._close(pooled)
        self._idle.clear()
        self._used.clear()
        await asyncio.gather(*self._closing)

    def _forget_old(self) -> None:
        """Close what was idle for longer than its connection is kept."""
        until = _now() - _KEPT_SECONDS
        # Given back at the end and taken from there: the first ones are idle the longest.
        while self._idle and self._idle[0].idle_since < until:
            self._close(self._idle.pop(0))

    def _close(self, pooled: PooledConnection) -> None:
        if pooled.session.closed:
            return
        if pooled.end is not None:
            pooled.end()
        task = asyncio.create_task(pooled.session.close(), name="close a connection")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _now() -> float:
    return asyncio.get_running_loop().time()
