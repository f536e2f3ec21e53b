"""One connection pool to one API server: configuration, credentials, deadlines, error texts.

``kubernetes.aio`` reads kubeconfig files and service accounts and renews tokens; requests go out
as raw bytes over the same ``aiohttp`` that it uses.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import socket
import ssl
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from contract.errors import ConfigurationError, Problem, StoreUnavailable
from stores.kubernetes_client import (
    ConfigException,
    Configuration,
    load_incluster_config,
    load_kube_config,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_log = logging.getLogger(__name__)

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
        self._kubeconfig = kubeconfig
        self._configuration: Any = None
        self._credentials: tuple[object, ...] = ()
        self._session: aiohttp.ClientSession | None = None
        self._proxy: str | None = None
        self._opening = asyncio.Lock()
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
        session = self._session or await self._open(None)
        host = self._configuration.host
        try:
            response = await self._send(session, method, path, body, timeout, headers)
            if response.status == _UNAUTHORIZED:
                # The credentials may have been replaced on disk since they were read.
                newer = await self._open(session)
                if newer is not session:
                    response.close()
                    response = await self._send(newer, method, path, body, timeout, headers)
            async with response:
                try:
                    yield response
                finally:
                    _abandon(response)
        except TimeoutError as error:
            raise StoreUnavailable(f"{host} gives no answer in time ({method} {path})") from error
        except (aiohttp.ClientError, OSError) as error:
            raise StoreUnavailable(f"{host} cannot be used ({method} {path}): {error}") from error

    async def _send(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        body: bytes | None,
        timeout: aiohttp.ClientTimeout,
        over: Mapping[str, str],
    ) -> aiohttp.ClientResponse:
        configuration = self._configuration
        headers = {"Accept": "application/json", "User-Agent": "npu-vigil"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        headers.update(over)
        try:
            token = await configuration.get_api_key_with_prefix("BearerToken", "authorization")
        except ConfigException as error:
            raise StoreUnavailable(f"the token of this pod cannot be read: {error}") from error
        if session.closed:
            raise StoreUnavailable("the connection was closed meanwhile")
        if token:
            headers["Authorization"] = token
        options: dict[str, Any] = {}
        if configuration.tls_server_name:
            options["server_hostname"] = configuration.tls_server_name
        return await session.request(
            method,
            URL(configuration.host + path, encoded=True),
            # aiohttp writes a large body piece by piece only if it is a file.
            data=io.BytesIO(body) if body and len(body) > _LARGE_BODY_BYTES else body,
            headers=headers,
            timeout=timeout,
            proxy=self._proxy,
            allow_redirects=False,
            **options,
        )

    async def _open(self, refused: aiohttp.ClientSession | None) -> aiohttp.ClientSession:
        """Read the configuration; anew if the session made with the last one was ``refused``."""
        async with self._opening:
            if self._closed:
                raise StoreUnavailable("the store has been closed")
            if self._session is not None and self._session is not refused:
                return self._session
            try:
                configuration, credentials = await self._read_configuration()
                context = _tls(configuration, self._kubeconfig)
            except ConfigurationError as error:
                if self._session is None:
                    raise
                _log.warning("the credentials in use stay, the new ones are wrong: %s", error)
                return self._session
            if self._session is not None and credentials == self._credentials:
                return self._session
            old, self._session = (
                self._session,
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=context, keepalive_timeout=90.0),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=True,
                ),
            )
            self._configuration = configuration
            self._credentials = credentials
            self._proxy = configuration.proxy or _proxy_of_environment(configuration.host)
            if old is not None:
                # Requests under way end with an error and are made again.
                await old.close()
            return self._session

    async def _read_configuration(self) -> tuple[Any, tuple[object, ...]]:
        configuration = Configuration()
        try:
            if self._kubeconfig is None:
                load_incluster_config(client_configuration=configuration)
            else:
                await load_kube_config(
                    config_file=self._kubeconfig,
                    client_configuration=configuration,
                    persist_config=False,
                )
            return configuration, await asyncio.to_thread(_credentials, configuration)
        except Exception as error:  # its errors are of any kind: YAML, keys, types, files
            raise _wrong_configuration(self._kubeconfig, error) from error


def _abandon(response: aiohttp.ClientResponse) -> None:
    """Leave a connection on which more would come, as that of a watch, without a goodbye.

    A server that hangs would not answer it, and nobody waits for it when the store is closed.
    """
    connection = response.connection  # none once everything has come
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _credentials(configuration: Any) -> tuple[object, ...]:
    """What makes one configuration differ from another."""
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    contents = (Path(file).read_bytes() if file else None for file in files)
    return configuration.host, configuration.api_key.get("BearerToken"), *contents


def _tls(configuration: Any, kubeconfig: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (OSError, ssl.SSLError) as error:
        raise _wrong_configuration(kubeconfig, error) from error
    # Newer Pythons demand more of certificates than Go does, whose clients all clusters serve.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _wrong_configuration(kubeconfig: str | None, error: Exception) -> ConfigurationError:
    where = kubeconfig or "the pod's service account"
    return ConfigurationError(
        "store kubernetes:", [Problem(where, f"is no usable cluster configuration: {error}")]
    )


def _proxy_of_environment(host: str) -> str | None:
    # Once, not for every request as aiohttp would.
    parts = urlsplit(host)
    if urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)


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
