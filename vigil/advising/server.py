"""Asks an aggregator for its advice."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from aggregator.advising.status import AdviceOfJob, AdviceStatus, AssumedAdvice
from contract.errors import ConfigurationError, Problem, StoreUnavailable, quoted
from vigil.socket_connection import SocketConnection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.report import Report

_SECONDS = 30.0
_BUSY_SECONDS = 120.0
"""For so long an aggregator is asked again that computes another assumption."""
_AGAIN_SECONDS = 1.0
_OK, _WRONG, _UNKNOWN, _BUSY = 200, 400, 404, 503

T = TypeVar("T")


@dataclass(frozen=True)
class Answered:
    """The reports of an aggregator by profile; ``bases`` are those without assumptions, where
    there are some. ``not_known``: why what is not known."""

    reports: tuple[Report, ...]
    bases: tuple[Report | None, ...]
    not_known: dict[str, str]


class _Advice(msgspec.Struct):
    enabled: bool
    advice: AdviceStatus | None


class _Refusal(msgspec.Struct):
    error: str


_refusal = msgspec.json.Decoder(_Refusal)


def advised(server: str, job: str | None, node: str | None) -> Answered:
    """Return the newest reports, of a job or a node where given.

    Raises ``ConfigurationError`` for an address, a job or a node that is none,
    ``StoreUnavailable`` where the aggregator does not answer.
    """
    query = {} if node is None else {"node": node}
    if job is not None:
        path = "/".join(quote(one, "") for one in job.split("/"))
        found = _decoded(server, _asked(server, f"/api/v1/advice/{path}", query), AdviceOfJob)
        return _without_bases(found.reports, found.not_known)
    advice = _decoded(server, _asked(server, "/api/v1/advice", query), _Advice).advice
    if advice is None:
        what = "it does not advise: set advice.enabled there"
        raise ConfigurationError(server, [Problem("--server", what)])
    return _without_bases(advice.reports, advice.not_known)


def assumed(server: str, what_if: Sequence[str], job: str | None, node: str | None) -> Answered:
    """Return what would follow if ``what_if`` came to be, of a job or a node where given.

    Raises as ``advised``; ``ConfigurationError`` for what cannot be assumed, too.
    """
    query = {"what_if": list(what_if), "job": job, "node": node}
    given = {name: value for name, value in query.items() if value is not None}
    body = _asked(server, "/api/v1/advice/what-if", given)
    found = _decoded(server, body, AssumedAdvice)
    return Answered(found.reports, found.bases, found.not_known)


def _without_bases(reports: tuple[Report, ...], not_known: dict[str, str]) -> Answered:
    return Answered(reports, (None,) * len(reports), not_known)


def _asked(server: str, path: str, query: Mapping[str, str | list[str]]) -> bytes:
    """Return the body of a page; where the aggregator is busy it is asked again."""
    deadline = time.monotonic() + _BUSY_SECONDS
    text = f"{path}?{urlencode(query, doseq=True)}" if query else path
    while True:
        status, body = _get(server, text)
        if status == _OK:
            return body
        if status in (_WRONG, _UNKNOWN):
            raise ConfigurationError(server, [Problem(text, _reason(body))])
        if status != _BUSY or time.monotonic() > deadline:
            raise StoreUnavailable(f"{server}: {path} answered {status}: {_reason(body)}")
        time.sleep(_AGAIN_SECONDS)


def _reason(body: bytes) -> str:
    """Why a page has no answer."""
    try:
        return quoted(_refusal.decode(body).error)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return quoted(body.decode(errors="replace"))


def _decoded(server: str, body: bytes, model: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=model)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise StoreUnavailable(f"{server}: its answer is no advice: {error}") from None


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
