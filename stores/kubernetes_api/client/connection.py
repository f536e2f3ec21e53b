"""Requests to one API server: deadlines, keepalive, pauses, error texts.

Requests go out as raw bytes over the same ``aiohttp`` that ``kubernetes.aio`` uses, and whose
credentials are not read by it (``credentials.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import math
import random
import socket
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
from yarl import URL

from contract.errors import StoreUnavailable
from stores.kubernetes_api.client.attempts import ApiAnswer, Attempts, RequestKind
from stores.kubernetes_api.client.credentials import Credentials
from stores.kubernetes_api.client.pool import ConnectionPool
from stores.kubernetes_api.client.tls import is_tls_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from stores.kubernetes_api.client.configuration import ClientConfiguration
    from stores.kubernetes_api.client.pool import PooledConnection

_CONNECT_SECONDS = 4.0
_ANSWER_SECONDS = 10.0
_ACCEPTED_SECONDS = 36.0
"""An API server gives a write up after 34 s, of which admission webhooks may take 30 s."""
_LARGE_BODY_BYTES = 1024 * 1024
_UNAUTHORIZED = 401
# A quiet watch gets a bookmark about once a minute, where anything of its kind changes.
_SILENCE_SECONDS = 90.0
# 10 s and three probes of 5 s: a dead peer is noticed within 30 s.
_KEEPALIVE_IDLE_SECONDS = 10
_KEEPALIVE_STEP_SECONDS = 5
_KEEPALIVE_PROBES = 3
_UNACKNOWLEDGED_MS = 20_000

_WATCH_TIMEOUT = aiohttp.ClientTimeout(
    total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENCE_SECONDS
)
_log = logging.getLogger(__name__)
_PAUSE_STATUSES = (429, 503)
_MAX_PAUSE_SECONDS = 60.0
_PAUSE_JITTER = 0.1
_URGENT_SECONDS = 5.0
_WORTH_A_LINE_SECONDS = 5.0
_MAX_PAUSE_DIGITS = 9


class _OutgoingRequest(NamedTuple):
    """A request. ``path`` is already quoted."""

    method: str
    path: str
    body: bytes | None
    timeout: aiohttp.ClientTimeout
    headers: Mapping[str, str]
    urgent: str | None = None
    is_watch: bool = False
    end: Callable[[], None] | None = None
    """Ends it while it waits for the begin of its answer."""


class ApiConnection:
    """Requests to one API server. ``kubeconfig`` is ``None`` inside a pod."""

    def __init__(self, kubeconfig: str | None) -> None:
        self._credentials = Credentials(kubeconfig)
        self._pool = ConnectionPool()
        self._attempts = Attempts(self._pool)
        self._pauses = Pauses()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        is_urgent: bool = False,
    ) -> ApiAnswer:
        """Ask about one object, without an answer once more. ``path`` is already quoted.

        ``headers`` go over the usual ones, which declare everything to be JSON.
        Raises ``StoreUnavailable`` if there is no answer in time: a read has 10 s, a write as long
        as an API server may take to accept it. While the server asks for a pause only what
        ``is_urgent`` is asked, every 5 s.
        """
        kind = RequestKind.READ if method == "GET" else RequestKind.WRITE
        seconds = _ANSWER_SECONDS if kind is RequestKind.READ else _ACCEPTED_SECONDS
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        # To read them may take its time, which is not silence of the server.
        await self._credentials.current()
        urgent = f"{method} {path.partition('?')[0]}" if is_urgent else None
        await self._pauses.turn(urgent)
        outgoing = _OutgoingRequest(method, path, body, timeout, headers or {}, urgent)
        return await self._attempts.answer(
            lambda is_new: self._attempt(outgoing, is_new=is_new), kind
        )

    async def list(
        self, path: str, seconds: float, headers: Mapping[str, str] | None = None
    ) -> ApiAnswer:
        """Ask for many objects, once: the answer may take its time, up to ``seconds``."""
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        await self._pauses.turn(None)
        return await self._attempt(_OutgoingRequest("GET", path, None, timeout, headers or {}))

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a watch. A peer that is not there any more is noticed within 30 s.

        It breaks, too, when other requests find that connections as old as its own are dead.
        Raises ``StoreUnavailable``, also while the answer is read.
        """
        await self._pauses.turn(None)
        outgoing = _OutgoingRequest("GET", path, None, _WATCH_TIMEOUT, headers or {}, is_watch=True)
        async with self._open(outgoing) as response:
            _notice_dead_peer(response)
            yield response

    @property
    def certificate_ends_ms(self) -> Mapping[str, int]:
        """When the certificates in force end (epoch ms), by the file that they are in."""
        return self._credentials.certificate_ends_ms

    async def close(self) -> None:
        """Close all connections."""
        self._credentials.close()
        self._attempts.close()
        await self._pool.close()

    async def _attempt(self, outgoing: _OutgoingRequest, *, is_new: bool = False) -> ApiAnswer:
        async with self._open(outgoing, is_new=is_new) as response:
            return ApiAnswer(response.status, await response.read())

    @contextlib.asynccontextmanager
    async def _open(
        self, outgoing: _OutgoingRequest, *, is_new: bool = False
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request over a connection that is free, or a new one."""
        used = await self._credentials.current()
        request = f"({outgoing.method} {outgoing.path})"
        host = used.endpoint.server
        try:
            # A watch has no deadline, but its events come at once.
            async with asyncio.timeout(_ANSWER_SECONDS if outgoing.is_watch else None) as deadline:
                outgoing = outgoing._replace(end=partial(deadline.reschedule, 0.0))
                pooled, response = await self._answer(used, outgoing, is_new=is_new)
            retry_after = response.headers.get("Retry-After")
            self._pauses.answered(host, outgoing.urgent, response.status, retry_after)
            is_whole = False
            try:
                pooled.end = partial(_abandon, response)
                async with response:
                    try:
                        yield response
                    finally:
                        # aiohttp lets go of the connection once the answer was read to its end.
                        is_whole = response.connection is None
                        _abandon(response)
            finally:
                if is_whole:
                    self._pool.give_back(pooled)
                else:
                    self._pool.discard(pooled)
        except TimeoutError as error:
            raise StoreUnavailable(f"{host} gives no answer in time {request}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise StoreUnavailable(f"{host} cannot be used {request}: {error}") from error

    async def _answer(
        self, used: ClientConfiguration, outgoing: _OutgoingRequest, *, is_new: bool
    ) -> tuple[PooledConnection, aiohttp.ClientResponse]:
        """Ask once; once more with newer credentials, where those in use are refused."""
        try:
            pooled, response = await self._send(used, outgoing, is_new=is_new)
        except (aiohttp.ClientError, OSError) as error:
            newer = await self._credentials.renewed(used) if is_tls_error(error) else used
            if newer is used:
                raise
            return await self._send(newer, outgoing)
        if response.status != _UNAUTHORIZED:
            return pooled, response
        try:
            # Read now: the deadline of the answer does not count while credentials are read.
            await response.read()
            newer = await self._credentials.renewed(used)
        except BaseException:
            self._pool.discard(pooled)
            raise
        if newer is used:
            return pooled, response
        self._pool.give_back(pooled)
        return await self._send(newer, outgoing)

    async def _send(
        self, used: ClientConfiguration, outgoing: _OutgoingRequest, *, is_new: bool = False
    ) -> tuple[PooledConnection, aiohttp.ClientResponse]:
        pooled = self._pool.take(used, is_new=is_new)
        pooled.is_watch, pooled.end = outgoing.is_watch, outgoing.end
        try:
            return pooled, await _sent(pooled, used, outgoing)
        except BaseException:
            self._pool.discard(pooled)
            raise


async def _sent(
    pooled: PooledConnection, configuration: ClientConfiguration, outgoing: _OutgoingRequest
) -> aiohttp.ClientResponse:
    endpoint = configuration.endpoint
    headers = {"Accept": "application/json", "User-Agent": "npu-vigil"}
    body = outgoing.body
    if body is not None:
        headers["Content-Type"] = "application/json"
    headers.update(outgoing.headers)
    if configuration.authorization is not None:
        headers["Authorization"] = configuration.authorization
    options: dict[str, Any] = {}
    if endpoint.server_name:
        options["server_hostname"] = endpoint.server_name
    if endpoint.proxy_authorization is not None:
        # With TLS the proxy sees the CONNECT only, otherwise the request itself.
        if endpoint.server.startswith("https:"):
            options["proxy_headers"] = {"Proxy-Authorization": endpoint.proxy_authorization}
        else:
            headers["Proxy-Authorization"] = endpoint.proxy_authorization
    return await pooled.session.request(
        outgoing.method,
        URL(endpoint.server + outgoing.path, encoded=True),
        # aiohttp writes a large body piece by piece only if it is a file.
        data=io.BytesIO(body) if body and len(body) > _LARGE_BODY_BYTES else body,
        headers=headers,
        timeout=outgoing.timeout,
        proxy=endpoint.proxy,
        allow_redirects=False,
        **options,
    )


def _abandon(response: aiohttp.ClientResponse) -> None:
    """Abort a connection with an unfinished answer, such as that of a watch.

    An orderly end would wait for a server that hangs.
    """
    connection = response.connection  # none once everything has come
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _notice_dead_peer(response: aiohttp.ClientResponse) -> None:
    connection = response.connection
    if connection is None or connection.transport is None:
        return
    peer = connection.transport.get_extra_info("socket")
    if peer is None or peer.family not in (socket.AF_INET, socket.AF_INET6):
        return
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_SECONDS)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_STEP_SECONDS)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
    # No keepalive probe is sent while data waits for its acknowledgement (tcp(7)).
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)


class Pauses:
    """The pause of one client, which an overloaded server asks for (``Retry-After``, RFC 9110).

    What must not wait for so long is tried every 5 s all the same: heartbeats, the Lease of a
    leader, and documents.
    """

    def __init__(self) -> None:
        self._until = -math.inf
        self._why = ""
        self._tried: dict[str, float] = {}
        """When what is urgent was tried last."""

    async def turn(self, urgent: str | None) -> None:
        """Return when a request may be made; ``urgent`` names one that must not wait for long.

        Raises ``StoreUnavailable`` for all others during a pause.
        """
        now = _now()
        if now >= self._until:
            if self._tried:
                self._tried.clear()
            return
        if urgent is None:
            raise StoreUnavailable(self._why)
        due = min(self._tried.get(urgent, -math.inf) + _URGENT_SECONDS, self._until)
        if due > now:
            await asyncio.sleep(due - now)
        self._tried[urgent] = _now()

    def answered(self, host: str, urgent: str | None, status: int, retry_after: str | None) -> None:
        """Begin a pause if an answer asks for one."""
        if status not in _PAUSE_STATUSES or retry_after is None:
            return
        seconds = seconds_of(retry_after, datetime.now(UTC))
        if seconds is None:
            return
        # Clients that were refused together shall not come back together (decision 15: 10 %).
        seconds = min(
            seconds * random.uniform(1 - _PAUSE_JITTER, 1 + _PAUSE_JITTER), _MAX_PAUSE_SECONDS
        )
        now = _now()
        if urgent is not None:
            self._tried[urgent] = now
        if now >= self._until and seconds >= _WORTH_A_LINE_SECONDS:
            _log.warning(
                "%s answered %d and asks for a pause: only heartbeats and documents are tried for "
                "%.0f s",
                host,
                status,
                seconds,
            )
        self._until = max(self._until, now + seconds)
        self._why = f"{host} answered {status} and asked for a pause"


def seconds_of(retry_after: str, now: datetime) -> float | None:
    """Return the seconds that a ``Retry-After`` asks for; ``None`` for what is none."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        # A longer number is above every limit, and may be too large for a float.
        return float(text) if len(text) < _MAX_PAUSE_DIGITS else _MAX_PAUSE_SECONDS
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())


def _now() -> float:
    return asyncio.get_running_loop().time()
