"""One HTTP connection: hands each whole request to aiohttp when its turn comes.

An unfinished request costs a socket and its bytes; aiohttp's parser and task come with the first
whole one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web

from service.http.counts import RequestResult

if TYPE_CHECKING:
    from service.http.connections import Connections

MAX_HEAD_BYTES = 16 << 10
"""Requests of the pages are a line and a few headers; no page takes a body (decision 11)."""
_HEAD_END = b"\r\n\r\n"
_BARE_END = b"\n\n"
# Not all of 127.0.0.0/8: the other addresses do not count as the host (decision 11).
_LOOPBACK = frozenset(("127.0.0.1", "::1"))
_BAD = (b"400 Bad Request", b"this is not a valid HTTP request\n")
_TOO_LARGE = (b"431 Request Header Fields Too Large", b"the request is too large\n")

SENT_WITH_ALL = {"X-Content-Type-Options": "nosniff"}
"""Headers of every answer: a browser must not treat an answer as a script or a page."""


class HttpConnection(asyncio.Protocol):
    """A protocol between a transport and aiohttp's handler.

    The request line and the headers are one request. No page takes a body: a request that has one
    is answered without it, and its connection is closed.
    """

    def __init__(self, connections: Connections, server: web.Server) -> None:
        self._connections = connections
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._handler: _RequestHandler | None = None
        self._received = bytearray()
        self._head = b""
        self._holds_place = False
        self.address = ""
        self.is_loopback = False
        self.is_of_host = False
        self.has_request = False
        self.is_in_turn = False
        self.unfinished_since: float | None = None
        self.unsent_since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to await a request."""
        self._transport = cast("asyncio.Transport", transport)
        peer, here = (transport.get_extra_info(name) for name in ("peername", "sockname"))
        if isinstance(peer, tuple):
            self.address = str(peer[0])
            self.is_loopback = self.address in _LOOPBACK
            # The kernel connects an address of the host to itself, unless asked to do otherwise.
            self.is_of_host = self.is_loopback or self.address == here[0]
        else:
            self.is_loopback = self.is_of_host = isinstance(here, str | bytes)
        # Writing is paused for as long as anything is unsent.
        self._transport.set_write_buffer_limits(high=0)
        self.unfinished_since = self._loop.time()
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Collect a request."""
        self._received += data
        if not self.has_request:
            # Three bytes earlier: the end of the head, four bytes, may be split over two reads.
            self._look(max(0, len(self._received) - len(data) - 3))
        # A client that sends ahead is not read any more; the kernel's window then stops it.
        elif len(self._received) > MAX_HEAD_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def proceed(self) -> None:
        """Have the request answered."""
        self.is_in_turn = self._holds_place = True
        assert self._transport is not None, "a connection that ended has left the queue"
        # Only now: aiohttp's parser and task cost 14 KB for each connection (decision 11).
        if self._handler is None:
            self._handler = _RequestHandler(self, self._server, self._connections)
            self._handler.connection_made(self._transport)
        self._handler.data_received(self._head)

    def free_place(self) -> None:
        """Let another request be computed from now on; again does nothing."""
        if self._holds_place:
            self._holds_place = False
            self._connections.rate.done()

    def answered(self) -> None:
        """Await the next request."""
        self.free_place()
        self.has_request = self.is_in_turn = False
        # The answer may have ended the connection, such as one with ``Connection: close``.
        if self._transport is None or self._transport.is_closing():
            return
        self._connections.waits(self)
        self._transport.resume_reading()
        # A next request may have been received behind this one.
        self._look(0)

    def pause_writing(self) -> None:
        """Record that something is unsent."""
        self.unsent_since = self._loop.time()
        if self._handler is not None:
            self._handler.pause_writing()

    def resume_writing(self) -> None:
        """Record that everything was sent."""
        self.unsent_since = None
        if self._handler is not None:
            self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything."""
        self._connections.discard(self)
        self._transport = None
        if self._handler is not None:
            self._handler.connection_lost(exc)
        self.free_place()

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        assert self._transport is not None, "it is forgotten when it is lost"
        return int(self._transport.get_extra_info("socket").fileno())

    def abort(self) -> None:
        """Close at once; what is unsent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def _look(self, begin: int) -> None:
        """Look for the end of a request behind ``begin``."""
        # RFC 9112, 2.2, allows a server to ignore empty lines before a request line.
        if self._received.startswith((b"\r", b"\n")):
            self._received = self._received.lstrip(b"\r\n")
            begin = 0
        if not self._received:
            return
        # The time runs from the first byte, so that an idle connection is not taken for a slow one.
        if self.unfinished_since is None:
            self.unfinished_since = self._loop.time()
        end = self._received.find(_HEAD_END, begin)
        if end >= 0:
            self._ask(end + len(_HEAD_END))
        # No method begins otherwise: a TLS client is refused at its first byte, not after 10 s.
        elif not self._received[:1].isalpha() or self._received.find(_BARE_END, begin) >= 0:
            self._refuse(_BAD)
        elif len(self._received) > MAX_HEAD_BYTES:
            self._refuse(_TOO_LARGE)

    def _refuse(self, answer: tuple[bytes, bytes]) -> None:
        """Answer what is not a request, without aiohttp, which would wait for its end.

        The status and the text of ``answer`` repeat nothing of it.
        """
        status, text = answer
        assert self._transport is not None, "it has just received something"
        self._connections.counts.requests[RequestResult.BAD] += 1
        self._received.clear()
        self._transport.write(
            b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Type: text/plain\r\n"
            b"X-Content-Type-Options: nosniff\r\nContent-Length: %d\r\n\r\n%b"
            % (status, len(text), text)
        )
        self._transport.close()

    def _ask(self, length: int) -> None:
        # Exactly one request: what follows waits until this one was answered.
        self._head = bytes(self._received[:length])
        del self._received[:length]
        self.unfinished_since = None
        self.has_request = True
        self._connections.add_request(self)


class _RequestHandler(web.RequestHandler):
    """Aiohttp's side of a connection; errors are counted, and logged once a minute at most."""

    def __init__(self, connection: HttpConnection, server: web.Server, of: Connections) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=of.limits.idle_seconds,
            # A body is never waited for, so one that a client announces costs no time.
            lingering_time=0,
            # No line for each request: the counts are metrics.
            access_log=cast("Any", None),
        )
        self.connection = connection
        self._counts = of.counts
        self._result = RequestResult.ANSWERED

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._counts.requests[self._result] += 1
            self._result = RequestResult.ANSWERED
            # In ``finally``: a client that left must free its place as well.
            self.connection.answered()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= web.HTTPInternalServerError.status_code:
            self._result = RequestResult.FAILED
            response = super().handle_error(request, status, exc, message)
            response.headers.update(SENT_WITH_ALL)
            return response
        self._result = RequestResult.BAD
        # aiohttp's own message repeats the request.
        response = web.Response(status=status, body=_BAD[1], headers=SENT_WITH_ALL)
        response.content_type = "text/plain"
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        if self._counts.wants_traceback():
            super().log_exception(*args, **kwargs)


def free_place(request: web.BaseRequest) -> None:
    """Let another request be computed from now on, because this one only waits or sends."""
    handler = request.protocol
    if isinstance(handler, _RequestHandler):
        handler.connection.free_place()
