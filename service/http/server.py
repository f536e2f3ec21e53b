"""The server of a daemon: its listeners, their connections, and the rate of all requests.

A listener accepts a few connections at a time, and none with a descriptor that is reserved.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from service.http.connection import HttpConnection
from service.http.connections import Connections, RateLimits, RequestRate
from service.http.counts import ConnectionEnd
from service.open_file_limit import is_reserved

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from aiohttp import web

    from service.http.connections import ListenerLimits
    from service.http.counts import Counts

    OverTls: TypeAlias = Callable[[HttpConnection], asyncio.Protocol]


log = logging.getLogger("service.http")

BACKLOG = 1024
"""A client that finds the queue full tries again after a second; a longer queue takes as long."""
# At most 16 in an iteration of the loop (decision 11).
_MAX_CONCURRENT = 16
# The socket stays readable while accepting fails, so without a pause the loop would be busy with
# it.
_PAUSE_SECONDS = 0.2
# A failure that comes and goes is one failure in the log.
_QUIET_SECONDS = 60.0


class Listener:
    """Accepts connections on a listening socket, which it owns, until it is closed.

    ``connections`` is how many places they have.
    """

    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        counts: Counts,
        connections: int,
    ) -> None:
        self._socket = listening
        # It takes three iterations of the loop until the first bytes of a connection are read. New
        # ones whose bytes are unread must never be all there are.
        self._at_once = min(_MAX_CONCURRENT, connections // 4)
        self._protocol = protocol
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._failed_at: float | None = None
        listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept nothing more."""
        self._loop.remove_reader(self._socket)
        if self._timer is not None:
            self._timer.cancel()
        for task in self._opening:
            task.cancel()
        self._socket.close()

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(self._at_once):
            try:
                accepted, _ = self._socket.accept()
            # Nothing is left to accept, or the client has gone (ECONNABORTED of accept(2)).
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            # Mostly EMFILE or ENFILE: no descriptor is free.
            except OSError as error:
                self._pause(str(error.strerror))
                return
            # The kernel gives out the lowest descriptor, so a reserved one shows that all others
            # are taken.
            if is_reserved(accepted.fileno()):
                accepted.close()
                self._counts.closed[ConnectionEnd.DESCRIPTORS] += 1
                self._pause("only reserved descriptors are left")
                return
            self._recovered()
            accepted.setblocking(False)
            opening = self._loop.connect_accepted_socket(self._protocol, accepted)
            task = self._loop.create_task(opening)
            self._opening.add(task)
            task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[object]) -> None:
        self._opening.discard(task)
        if not task.cancelled():
            # One that is gone already is of no interest.
            task.exception()

    def _pause(self, reason: str) -> None:
        self._counts.accept_failures += 1
        if self._failed_at is None:
            log.warning("HTTP connections are not accepted: %s; this is tried again", reason)
        self._failed_at = self._loop.time()
        self._loop.remove_reader(self._socket)
        self._timer = self._loop.call_later(_PAUSE_SECONDS, self._resume)

    def _recovered(self) -> None:
        if self._failed_at is not None and self._loop.time() - self._failed_at >= _QUIET_SECONDS:
            self._failed_at = None
            log.info("HTTP connections have been accepted again for a minute")


class HttpServer:
    """Serves what ``runner``, which is set up, has."""

    def __init__(self, runner: web.AppRunner, counts: Counts) -> None:
        assert runner.server is not None, "the runner is set up"
        self.counts = counts
        self._handlers = runner.server
        self._rate = RequestRate(RateLimits())
        self._listeners: list[Listener] = []
        self._connections: list[Connections] = []

    def serve(
        self,
        listening: Sequence[socket.socket],
        limits: ListenerLimits,
        over_tls: OverTls | None = None,
    ) -> None:
        """Serve on listening sockets, which belong to the server from now on and share limits.

        With ``over_tls`` all their connections use TLS: it returns the protocol that lies between
        a transport and a connection.
        """
        connections = Connections(limits, self._rate, self.counts)
        self._connections.append(connections)

        def protocol() -> asyncio.Protocol:
            http = HttpConnection(connections, self._handlers)
            return http if over_tls is None else over_tls(http)

        for listener in listening:
            # A Unix socket has no TCP options; its client is on the host.
            if listener.family != socket.AF_UNIX:
                # The kernel ends what its client does not acknowledge or does not take.
                unsent_ms = round(limits.unsent_seconds * 1000)
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unsent_ms)
            self._listeners.append(Listener(listener, protocol, self.counts, limits.connections))

    def close(self) -> None:
        """Accept and begin nothing more; requests that are being answered are finished."""
        for listener in self._listeners:
            listener.close()
        self._rate.close()
        for connections in self._connections:
            connections.close()
