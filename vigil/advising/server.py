"""Asks an aggregator for its advice."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from aggregator.advising.status import AdviceOfJob, AdviceStatus
from contract.errors import ConfigurationError, Problem, StoreUnavailable, quoted
from vigil.socket_connection import SocketConnection

if TYPE_CHECKING:
    from advisor.report import Report

_SECONDS = 30.0
_OK, _UNKNOWN = 200, 404

T = TypeVar("T")


class _Advice(msgspec.Struct):
    enabled: bool
    advice: AdviceStatus | None


def reports_of(server: str, job: str | None) -> tuple[tuple[Report, ...], dict[str, str]]:
    """Return the newest reports, and why what is not known; of one PodGroup with ``job``.

    Raises ``ConfigurationError`` for an address or a job that is none, ``StoreUnavailable`` where
    the aggregator does not answer.
    """
    status, body = _get(server, "/api/v1/advice")
    if status != _OK:
        raise StoreUnavailable(f"{server}: /api/v1/advice answered {status}: {_text(body)}")
    found = _decoded(server, body, _Advice)
    if found.advice is None:
        what = "it does not advise: set advice.enabled there"
        raise ConfigurationError(server, [Problem("--server", what)])
    if job is None:
        return found.advice.reports, found.advice.not_known
    status, body = _get(
        server, "/api/v1/advice/" + "/".join(quote(one, "") for one in job.split("/"))
    )
    if status == _UNKNOWN:
        raise ConfigurationError(server, [Problem("--job", f"no PodGroup {job} is there")])
    if status != _OK:
        raise StoreUnavailable(f"{server}: advice on {job} answered {status}: {_text(body)}")
    return _decoded(server, body, AdviceOfJob).reports, found.advice.not_known


def _decoded(server: str, body: bytes, model: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=model)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise StoreUnavailable(f"{server}: its answer is no advice: {error}") from None


def _text(body: bytes) -> str:
    return quoted(body.decode(errors="replace"))


def _connection(server: str) -> http.client.HTTPConnection:
    if server.startswith("unix:"):
        return SocketConnection(server.removeprefix("unix:"), _SECONDS)
    try:
        parts = urlsplit(server)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in ("http", "https") or parts.path not in ("", "/"):
        what = f"{server!r} is neither http://HOST:PORT, https://HOST:PORT nor unix:PATH"
        raise ConfigurationError("command line", [Problem("--server", what)])
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=_SECONDS)
    return http.client.HTTPConnection(host, port, timeout=_SECONDS)


def _get(server: str, path: str) -> tuple[int, bytes]:
    connection = _connection(server)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise StoreUnavailable(f"{server}: {error or type(error).__name__}") from None
    finally:
        connection.close()
