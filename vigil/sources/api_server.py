"""Asks the aggregator of a cluster through the service proxy of its API server.

The caller's own rights count: ``get`` on ``services/proxy``. With files of a login the API server
uses TLS to the aggregator, whose certificate it does not verify. Source:
https://kubernetes.io/docs/tasks/access-application-cluster/access-cluster-services/
"""

from __future__ import annotations

import http.client
import os
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from contract.errors import StoreUnavailable
from contract.names import AGGREGATOR_NAMESPACE, AGGREGATOR_PORT, AGGREGATOR_SERVICE
from contract.sentences import sentence
from service.login.client import PROXIED_AUTHORIZATION, authorization
from stores.kubernetes_api import wire
from stores.kubernetes_api.client.configuration import ConfigurationReader
from stores.kubernetes_api.client.credential_files import CredentialFiles
from stores.kubernetes_api.client.credential_plugin import Plugins
from vigil.daemon_client import OK, DaemonClient
from vigil.options import login_files

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from stores.kubernetes_api.client.configuration import ClientConfiguration

_SERVICES = f"/api/v1/namespaces/{AGGREGATOR_NAMESPACE}/services"
_SERVER = f"Service {AGGREGATOR_NAMESPACE}/{AGGREGATOR_SERVICE}, through the API server"
# Short, since a verb asks the next source when this one is away.
_CONNECT_SECONDS = 4.0
_ANSWER_SECONDS = 30.0
_CREDENTIAL_SECONDS = 10.0
_UNAUTHORIZED = 401
_BAD_REQUEST = 400
_SERVER_ERROR = 500
_NEEDS_TLS = b"this address takes HTTPS only"
"""What a daemon answers to a request without TLS."""


class _ServerStatus(msgspec.Struct):
    """What only the API server itself answers."""

    kind: str = ""
    api_version: str = msgspec.field(name="apiVersion", default="")


class ApiServerClient(DaemonClient):
    """Asks the aggregator behind the API server of ``kubeconfig``; see ``DaemonClient``.

    Raises ``StoreError`` also where the API server refuses the request, or knows no aggregator. The
    stores' own client is for many requests: to import it takes as long as a verb may.
    """

    def __init__(self, kubeconfig: str) -> None:
        super().__init__(_SERVER, _ANSWER_SECONDS)
        self._kubeconfig = kubeconfig
        self._plugins = Plugins()
        self._used: ClientConfiguration | None = None

    def fetch(self, path: str) -> tuple[int, bytes]:
        """Return status and body of the answer of the aggregator."""
        status, body = super().fetch(self._proxied(path))
        if status == _UNAUTHORIZED:
            # A token may have ended since it was read.
            self._used = None
            status, body = super().fetch(self._proxied(path))
        # What the aggregator itself refuses, such as an unknown page, is for the caller.
        if status != OK and _is_of_api_server(status, body):
            raise wire.refusal(status, body, f"reach {AGGREGATOR_NAMESPACE}/{AGGREGATOR_SERVICE}")
        if status == _BAD_REQUEST and _NEEDS_TLS in body:
            text = sentence(
                "{server}: its pages use TLS; give --token-file or --password-file, or --ca-file "
                "where they need no login",
                server=_SERVER,
            )
            raise StoreUnavailable(text)
        return status, body

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body of the answer of the API server itself; ``body`` is JSON."""
        prefix = urlsplit(self._configuration().endpoint.server).path
        sent = self._own_headers() | ({} if body is None else {"Content-Type": "application/json"})
        return self.exchange(method, prefix + path, sent, body)

    def follow(self, path: str) -> Iterator[bytes]:
        """Yield each line of an answer that has no end, until a server on the way ends it."""
        return super().follow(self._proxied(path))

    def headers(self) -> dict[str, str]:
        """Return the headers for the API server, and those of the login at the aggregator."""
        login = authorization(login_files())
        sent = self._own_headers()
        return sent if login is None else sent | {PROXIED_AUTHORIZATION: login}

    def _own_headers(self) -> dict[str, str]:
        """Return the headers that name this program and authenticate the user."""
        used = self._configuration()
        sent = {"User-Agent": "npu-vigil"}
        if used.authorization is not None:
            sent["Authorization"] = used.authorization
        return sent

    def connect(self, seconds: float) -> http.client.HTTPConnection:
        """Return a connection to the API server, through the proxy that leads there."""
        used = self._configuration()
        endpoint, tls = used.endpoint, used.tls
        parts = urlsplit(endpoint.server)
        host = parts.hostname or ""
        port = parts.port or (http.client.HTTP_PORT if tls is None else http.client.HTTPS_PORT)
        name = endpoint.server_name or host
        if endpoint.proxy is None:
            return _ApiServerConnection(host, port, seconds, tls, name)
        if tls is None or endpoint.proxy.startswith("https:"):
            text = sentence(
                "{server}: only an http:// proxy to an https:// API server can be used; name the "
                "aggregator by --server",
                server=_SERVER,
            )
            raise StoreUnavailable(text)
        proxy = urlsplit(endpoint.proxy)
        connection = _ApiServerConnection(
            proxy.hostname or "", proxy.port or 80, seconds, tls, name
        )
        granted = endpoint.proxy_authorization
        headers = {} if granted is None else {"Proxy-Authorization": granted}
        connection.set_tunnel(host, port, headers)
        return connection

    def close(self) -> None:
        """End what reads credentials."""
        self._plugins.end()

    def _proxied(self, path: str) -> str:
        """Return the path at the API server, which may itself be behind a path."""
        scheme = "https" if any(login_files()) else "http"
        service = f"{_SERVICES}/{scheme}:{AGGREGATOR_SERVICE}:{AGGREGATOR_PORT}/proxy"
        return urlsplit(self._configuration().endpoint.server).path + service + path

    def _configuration(self) -> ClientConfiguration:
        if self._used is None:
            deadline = time.monotonic() + _CREDENTIAL_SECONDS
            reader = ConfigurationReader(
                CredentialFiles(), self._plugins, dict(os.environ), deadline
            )
            self._used = reader.read(self._kubeconfig)
        return self._used


class _ApiServerConnection(http.client.HTTPConnection):
    """A connection to ``host``, with ``tls`` to the server of this ``name``."""

    def __init__(
        self, host: str, port: int, seconds: float, tls: ssl.SSLContext | None, name: str
    ) -> None:
        super().__init__(host, port, timeout=_CONNECT_SECONDS)
        self._seconds = seconds
        self._tls = tls
        self._name = name

    def connect(self) -> None:
        """Connect. Raises ``OSError``."""
        super().connect()
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)
        # Only now: the handshake belongs to the short time for connecting.
        self.sock.settimeout(self._seconds)


def _is_of_api_server(status: int, body: bytes) -> bool:
    """Return whether the API server answered, not the aggregator behind it."""
    try:
        result = msgspec.json.decode(body, type=_ServerStatus)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return status >= _SERVER_ERROR  # "Error trying to reach service: ..." is plain text
    return (result.kind, result.api_version) == ("Status", "v1")
