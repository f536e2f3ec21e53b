"""The server of a daemon: its listeners, their connections, and the rate of all requests."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING

from service.http.connection import HttpConnection
from service.http.connections import Connections
from service.http.limits import RateLimits
from service.http.listener import Listener
from service.http.rate import RequestRate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from service.http.counts import Counts
    from service.http.limits import ListenerLimits


class HttpServer:
    """Serves what ``runner``, which is set up, has."""

    def __init__(self, runner: web.AppRunner, counts: Counts) -> None:
        assert runner.server is not None, "the runner is set up"
        self.counts = counts
        self._handlers = runner.server
        self._rate = RequestRate(RateLimits())
        self._listeners: list[Listener] = []
        self._connections: list[Connections] = []

    def serve(self, listening: Sequence[socket.socket], limits: ListenerLimits) -> None:
        """Serve on listening sockets, which belong to the server from now on and share limits."""
        connections = Connections(limits, self._rate, self.counts)
        self._connections.append(connections)
        for one in listening:
            if one.family != socket.AF_UNIX:
                # The kernel ends what its client does not acknowledge or does not take.
                unsent_ms = round(limits.unsent_seconds * 1000)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unsent_ms)
            new = partial(HttpConnection, connections, self._handlers)
            self._listeners.append(Listener(one, new, self.counts, limits.connections))

    def close(self) -> None:
        """Accept and begin nothing more; requests that are being answered are finished."""
        for listener in self._listeners:
            listener.close()
        self._rate.close()
        for connections in self._connections:
            connections.close()
