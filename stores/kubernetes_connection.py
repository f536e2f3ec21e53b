"""One connection pool to one API server: deadlines, keepalive, error texts.

Requests go out as raw bytes over the same ``aiohttp`` that ``kubernetes.aio`` uses, and whose
credentials are not read by it (``kubernetes_credentials.py``).
"""

from __future__ import annotations

import contextlib
import io
import socket
from typing import TYPE_CHECKING, Any

import aiohttp
from yarl import URL

from contract.errors import StoreUnavailable
from stores.kubernetes_credentials import Credentials
from stores.tls import is_of_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from stores.client_configuration import ClientConfiguration, Endpoint

_CONNECT_SECONDS = 4.0
_ANSWER_SECONDS = 10.0
_LARGE_BODY_BYTES = 1024 * 1024
_UNAUTHORIZED = 401
# A quiet watch gets a bookmark about once a minute, where anything of its kind changes.
_SILENCE_SECONDS = 90.0
_KEEPALIVE_IDLE_SECONDS = 10
_KEEPALIVE_STEP_SECONDS = 5
_KEEPALIVE_PROBES = 3
_UNACKNOWLEDGED_MS = 20_000

_WATCH_TIMEOUT = aiohttp.ClientTimeout(
    total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENCE_SECONDS
)


class Connection:
    """Requests to one API server. ``kubeconfig`` is ``None`` inside a pod."""

    def __init__(self, kubeconfig: str | None) -> None:
        self._credentials = Credentials(kubeconfig)
        self._session: aiohttp.ClientSession | None = None
        self._endpoint: Endpoint | None = None
        self._closed = False

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        seconds: float = _ANSWER_SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Ask once; the status and the body of the answer. ``path`` is already quoted.

        ``headers`` go over the usual ones, which say that everything is JSON.
        Raises ``StoreUnavailable`` if there is no answer within ``seconds``.
        """
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        async with self._ask(method, path, body, timeout, headers or {}) as response:
            return response.status, await response.read()

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a watch. A peer that is not there any more is noticed within 30 s.

        Raises ``StoreUnavailable``, also while the answer is read.
        """
        async with self._ask("GET", path, None, _WATCH_TIMEOUT, headers or {}) as response:
            _notice_dead_peer(response)
            yield response

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self._credentials.close()
        if self._session is not None:
            await self._session.close()

    @contextlib.asynccontextmanager
    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        timeout: aiohttp.ClientTimeout,
        headers: Mapping[str, str],
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        used = await self._credentials.current()
        host = used.endpoint.server
        try:
            response = await self._answer(used, method, path, body, timeout, headers)
            async with response:
                try:
                    yield response
                finally:
                    _abandon(response)
        except TimeoutError as error:
            raise StoreUnavailable(f"{host} gives no answer in time ({method} {path})") from error
        except (aiohttp.ClientError, OSError) as error:
            raise StoreUnavailable(f"{host} cannot be used ({method} {path}): {error}") from error

    async def _answer(
        self,
        used: ClientConfiguration,
        method: str,
        path: str,
        body: bytes | None,
        timeout: aiohttp.ClientTimeout,
        headers: Mapping[str, str],
    ) -> aiohttp.ClientResponse:
        """Ask once; once more with newer credentials, where those in use are refused."""
        try:
            response = await self._send(used, method, path, body, timeout, headers)
        except (aiohttp.ClientError, OSError) as error:
            newer = await self._credentials.renewed(used) if is_of_tls(error) else used
            if newer is used:
                raise
            return await self._send(newer, method, path, body, timeout, headers)
        if response.status != _UNAUTHORIZED:
            return response
        # Read now: the deadline of the answer does not count while credentials are read.
        await response.read()
        newer = await self._credentials.renewed(used)
        if newer is used:
            return response
        return await self._send(newer, method, path, body, timeout, headers)

    async def _send(
        self,
        configuration: ClientConfiguration,
        method: str,
        path: str,
        body: bytes | None,
        timeout: aiohttp.ClientTimeout,
        over: Mapping[str, str],
    ) -> aiohttp.ClientResponse:
        endpoint = configuration.endpoint
        headers = {"Accept": "application/json", "User-Agent": "npu-vigil"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        headers.update(over)
        if configuration.authorization is not None:
            headers["Authorization"] = configuration.authorization
        options: dict[str, Any] = {}
        if endpoint.server_name:
            options["server_hostname"] = endpoint.server_name
        if endpoint.proxy_authorization is not None:
            if endpoint.server.startswith("https:"):
                options["proxy_headers"] = {"Proxy-Authorization": endpoint.proxy_authorization}
            else:
                headers["Proxy-Authorization"] = endpoint.proxy_authorization
        session = await self._session_of(configuration)
        if session.closed:
            raise StoreUnavailable("the connection was closed meanwhile")
        return await session.request(
            method,
            URL(endpoint.server + path, encoded=True),
            # aiohttp writes a large body piece by piece only if it is a file.
            data=io.BytesIO(body) if body and len(body) > _LARGE_BODY_BYTES else body,
            headers=headers,
            timeout=timeout,
            proxy=endpoint.proxy,
            allow_redirects=False,
            **options,
        )

    async def _session_of(self, configuration: ClientConfiguration) -> aiohttp.ClientSession:
        """Return the session for an endpoint; that before ends, with all that is under way."""
        if self._closed:
            raise StoreUnavailable("the store has been closed")
        if self._session is not None and configuration.endpoint == self._endpoint:
            return self._session
        old, self._session = (
            self._session,
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=configuration.tls or True, keepalive_timeout=90.0
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=True,
            ),
        )
        self._endpoint = configuration.endpoint
        made = self._session
        if old is not None:
            # Requests under way end with an error and are made again.
            await old.close()
        return made


def _abandon(response: aiohttp.ClientResponse) -> None:
    """Leave a connection on which more would come, as that of a watch, without a goodbye.

    A server that hangs would not answer it, and nobody waits for it when the store is closed.
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
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
