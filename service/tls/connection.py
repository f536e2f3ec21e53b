"""One TLS connection: its handshake begins in its turn and computes in a thread.

asyncio's own TLS computes signatures in the thread of the loop, and has a buffer of 256 KiB for
each connection. A client that never finishes its handshake costs a signature, so handshakes begin
evenly in time, one address after the other, and only two are computed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

from service.http.connections import RateLimits, RequestRate
from service.http.counts import ConnectionEnd

if TYPE_CHECKING:
    from service.http.connection import HttpConnection
    from service.http.counts import Counts
    from service.tls.files import PagesTls

_MAX_CONCURRENT = 2
_LIMITS = RateLimits(per_second=20.0, burst=1, at_once=_MAX_CONCURRENT)
_HANDSHAKE_SECONDS = 5.0
# A ClientHello and a chain of certificates have a few KB.
_MAX_HANDSHAKE_BYTES = 64 << 10
# A handshake has two or three flights of a client, each in a few reads.
_MAX_STEPS = 16
_READ_BYTES = 64 << 10
_HANDSHAKE_RECORD = 22
_RECORD_HEADER_BYTES = 5
_PLAIN_TEXT = b"this address takes HTTPS only\n"
_PLAIN_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"X-Content-Type-Options: nosniff\r\nContent-Length: %d\r\n\r\n%b"
    % (len(_PLAIN_TEXT), _PLAIN_TEXT)
)


class Handshakes:
    """The handshakes of a listener: their rate, their threads and their certificates."""

    def __init__(self, tls: PagesTls, counts: Counts) -> None:
        self.tls = tls
        self.counts = counts
        self.rate = RequestRate(_LIMITS)
        self.executor = ThreadPoolExecutor(_MAX_CONCURRENT, thread_name_prefix="TLS handshake")

    def protocol(self, http: HttpConnection) -> TlsConnection:
        """Return the protocol between a new transport and ``http``."""
        return TlsConnection(http, self)

    def close(self) -> None:
        """Begin no more handshakes."""
        self.rate.close()
        self.executor.shutdown(wait=False, cancel_futures=True)


class TlsConnection(asyncio.Protocol):
    """A protocol between a transport and ``http``, which gets and gives plain text.

    ``http`` has its place among the connections from the beginning, so its limits count for
    handshakes, too.
    """

    def __init__(self, http: HttpConnection, handshakes: Handshakes) -> None:
        self._http = http
        self._handshakes = handshakes
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._received = bytearray()
        """What the handshake has not read yet; nothing once it is over."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._is_queued = self._is_computing = self._holds_turn = False
        self._steps = 0
        self.raw: asyncio.Transport | None = None
        self.tls: ssl.SSLObject | None = None
        self.is_open = False
        """Whether the handshake is over."""

    @property
    def address(self) -> str:
        """The address of the client."""
        return self._http.address

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, and await the first bytes of a handshake."""
        self.raw = cast("asyncio.Transport", transport)
        self._timer = self._loop.call_later(_HANDSHAKE_SECONDS, self._fail)
        self._http.connection_made(_TlsTransport(self, self.raw))

    def data_received(self, data: bytes) -> None:
        """Go on with the handshake, or give plain text to ``http``."""
        if self.is_open:
            self._incoming.write(data)
            self._decrypt()
            return
        self._received += data
        if len(self._received) > _MAX_HANDSHAKE_BYTES:
            self._fail()
        else:
            self._advance()

    def pause_writing(self) -> None:
        """Record that something is unsent."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Record that everything was sent."""
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything."""
        self._stop_timer()
        if self._is_queued:
            self._is_queued = False
            self._handshakes.rate.leave(self)
        self._http.connection_lost(exc)

    def proceed(self) -> None:
        """Begin the handshake."""
        self._is_queued, self._holds_turn = False, True
        context = self._handshakes.tls.context()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._compute(self.tls)

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send plain text; what is sent after the end is lost, as it is without TLS."""
        if self.tls is None or self.raw is None or self.raw.is_closing():
            return
        with memoryview(data).cast("B") as rest:
            sent = 0
            # OpenSSL takes a record of 16 KiB at a time.
            while sent < len(rest):
                sent += self.tls.write(rest[sent:])
        self.raw.write(self._outgoing.read())

    def end(self) -> None:
        """Send what is unsent, and that this is the end; then close."""
        assert self.raw is not None, "the transport comes first"
        if self.is_open and self.tls is not None and not self.raw.is_closing():
            # Nobody waits for the end that the client sends.
            with contextlib.suppress(ssl.SSLError):
                self.tls.unwrap()
            self.raw.write(self._outgoing.read())
        self.raw.close()

    def _advance(self) -> None:
        """Compute the next step where a whole record was received."""
        received = self._received
        # The thread has the object to itself while it computes.
        if not received or self._is_queued or self._is_computing:
            return
        if self.tls is None and received[0] != _HANDSHAKE_RECORD:
            self._refuse()
            return
        length = int.from_bytes(received[3:_RECORD_HEADER_BYTES])
        if len(received) < _RECORD_HEADER_BYTES + length:
            return
        if self.tls is None:
            self._is_queued = True
            self._handshakes.rate.enqueue(self)
        else:
            self._compute(self.tls)

    def _compute(self, tls: ssl.SSLObject) -> None:
        self._is_computing = True
        self._steps += 1
        self._incoming.write(self._received)
        self._received.clear()
        step = self._loop.run_in_executor(self._handshakes.executor, _is_finished, tls)
        step.add_done_callback(self._computed)

    def _computed(self, step: asyncio.Future[bool]) -> None:
        self._is_computing = False
        # Freed after each step: a client that is waited for must not hold a place.
        if self._holds_turn:
            self._holds_turn = False
            self._handshakes.rate.done()
        # Read in each case: asyncio logs an error that was never read.
        error = None if step.cancelled() else step.exception()
        if step.cancelled() or self.raw is None or self.raw.is_closing():
            return
        # The alert of a handshake that failed is in it as well.
        self.raw.write(self._outgoing.read())
        if error is not None or self._steps >= _MAX_STEPS:
            self._handshakes.counts.closed[ConnectionEnd.HANDSHAKE] += 1
            self.raw.close()
        elif step.result():
            self._stop_timer()
            self.is_open = True
            self._incoming.write(self._received)
            self._received.clear()
            self._decrypt()
        else:
            self._advance()

    def _decrypt(self) -> None:
        assert self.tls is not None, "the handshake is over"
        assert self.raw is not None, "the transport comes first"
        read = []
        is_ended = False
        try:
            while chunk := self.tls.read(_READ_BYTES):
                read.append(chunk)
            is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self.raw.abort()
            return
        # Such as the answer to a new key of the client.
        if self._outgoing.pending:
            self.raw.write(self._outgoing.read())
        if read:
            self._http.data_received(b"".join(read))
        if is_ended and not self.raw.is_closing():
            self.end()

    def _refuse(self) -> None:
        """Answer a client that speaks HTTP without TLS."""
        assert self.raw is not None, "the transport comes first"
        self._handshakes.counts.closed[ConnectionEnd.HANDSHAKE] += 1
        self._received.clear()
        self.raw.write(_PLAIN_ANSWER)
        self.raw.close()

    def _fail(self) -> None:
        """Close a handshake that takes too long or too many bytes."""
        assert self.raw is not None, "the transport comes first"
        self._handshakes.counts.closed[ConnectionEnd.HANDSHAKE] += 1
        self.raw.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_finished(tls: ssl.SSLObject) -> bool:
    """Compute one step; return whether the handshake is over. Raises ``ssl.SSLError``."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


class _TlsTransport(asyncio.Transport):
    """The side of a TLS connection that takes plain text."""

    def __init__(self, connection: TlsConnection, raw: asyncio.Transport) -> None:
        super().__init__()
        self._connection = connection
        self._raw = raw

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        tls = self._connection.tls
        if name == "ssl_object":
            return tls
        if name == "sslcontext":
            return default if tls is None else tls.context
        if name == "peercert":
            return default if tls is None or not self._connection.is_open else tls.getpeercert()
        return self._raw.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._connection.send(data)

    def close(self) -> None:
        self._connection.end()

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()
