"""Asks an aggregator for its advice."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from aggregator.advising.status import AdviceOfJob, AdviceStatus, AssumedAdvice
from contract.errors import ConfigurationError, Problem, quoted
from vigil.daemon_client import NOT_FOUND, OK, DaemonClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.report import AdviceReport

_SECONDS = 60.0
_BUSY_SECONDS = 120.0
"""For so long an aggregator is asked again that computes another assumption."""
_AGAIN_SECONDS = 1.0
_WRONG, _BUSY = 400, 503

T = TypeVar("T")


@dataclass(frozen=True)
class ServerReports:
    """The reports of an aggregator by profile; ``bases`` are those without assumptions, where
    there are some. ``not_known``: why what is not known."""

    reports: tuple[AdviceReport, ...]
    bases: tuple[AdviceReport | None, ...]
    not_known: dict[str, str]


class _Advice(msgspec.Struct):
    advice: AdviceStatus | None


class _Refusal(msgspec.Struct):
    error: str


_refusal = msgspec.json.Decoder(_Refusal)


def advised(server: str, job: str | None, node: str | None) -> ServerReports:
    """Return the newest reports, of a job or a node where given.

    Raises ``ConfigurationError`` for an address, a job or a node that is none,
    ``StoreUnavailable`` where the aggregator does not answer.
    """
    query = {} if node is None else {"node": node}
    if job is not None:
        path = "/".join(quote(one, "") for one in job.split("/"))
        found = _asked(server, f"/api/v1/advice/{path}", query, AdviceOfJob)
        return _without_bases(found.reports, found.not_known)
    advice = _asked(server, "/api/v1/advice", query, _Advice).advice
    if advice is None:
        what = "it does not advise: set advice.enabled there"
        raise ConfigurationError(server, [Problem("--server", what)])
    return _without_bases(advice.reports, advice.not_known)


def assumed(
    server: str, what_if: Sequence[str], job: str | None, node: str | None
) -> ServerReports:
    """Return what would follow if ``what_if`` came to be, of a job or a node where given.

    Raises as ``advised``; ``ConfigurationError`` for what cannot be assumed, too.
    """
    query = {"what_if": list(what_if), "job": job, "node": node}
    given = {name: value for name, value in query.items() if value is not None}
    found = _asked(server, "/api/v1/advice/what-if", given, AssumedAdvice)
    return ServerReports(found.reports, found.bases, found.not_known)


def _without_bases(reports: tuple[AdviceReport, ...], not_known: dict[str, str]) -> ServerReports:
    return ServerReports(reports, (None,) * len(reports), not_known)


def _asked(server: str, path: str, query: Mapping[str, str | list[str]], model: type[T]) -> T:
    """Return the answer at a page; where the aggregator is busy it is asked again."""
    client, deadline = DaemonClient(server, _SECONDS), time.monotonic() + _BUSY_SECONDS
    text = f"{path}?{urlencode(query, doseq=True)}" if query else path
    while True:
        status, body = client.ask(text)
        if status == OK:
            return client.decoded(body, model)
        if status in (_WRONG, NOT_FOUND):
            raise ConfigurationError(server, [Problem(text, _reason(body))])
        if status != _BUSY or time.monotonic() > deadline:
            raise client.refused(path, status, body)
        time.sleep(_AGAIN_SECONDS)


def _reason(body: bytes) -> str:
    """Why a page has no answer."""
    try:
        return quoted(_refusal.decode(body).error)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return quoted(body.decode(errors="replace"))
