"""The advice of an aggregator, now or each time that it changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from aggregator.advising.status import AdviceOfJob, AdviceStatus, AssumedAdvice
from contract.errors import ConfigurationError, Problem, quoted
from contract.pages.messages import PageMessage
from vigil.advise.run import AdvicePair
from vigil.daemon_client import NOT_FOUND, OK, DaemonClient
from vigil.language import translate_messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from advisor.options import Profile
    from advisor.report import AdviceReport

_SECONDS = 60.0
_BUSY_SECONDS = 120.0
"""For so long an aggregator is asked again that computes another assumption."""
_RETRY_SECONDS = 1.0
_PERIOD_SECONDS = 1.0
"""How often an aggregator is asked with ``--watch``: it computes a session that often."""
_WRONG, _BUSY = 400, 503

T = TypeVar("T")


class _Advice(msgspec.Struct):
    advice: AdviceStatus | None
    messages: dict[str, PageMessage] = {}


class _Refusal(msgspec.Struct):
    error: str


_refusal = msgspec.json.Decoder(_Refusal)


def from_server(
    server: str,
    profiles: Sequence[Profile],
    job: str | None,
    node: str | None,
    what_if: Sequence[str],
    *,
    watch: bool,
) -> Iterator[list[AdvicePair]]:
    """Yield the reports of an aggregator now; with ``watch`` each time that they differ.

    They are of ``job`` or ``node`` where given, and of what would follow if ``what_if`` came to be.
    Raises ``ConfigurationError`` for an address, a job, a node or an assumption that is none,
    ``StoreUnavailable`` where the aggregator does not answer.
    """
    before: list[AdviceReport] | None = None
    while True:
        result = _assumed(server, what_if, job, node) if what_if else _advised(server, job, node)
        chosen = [pair for pair in result if pair.report.profile in profiles]
        # Each session has another time; only other contents are a change.
        timeless = [msgspec.structs.replace(pair.report, now_ms=0) for pair in chosen]
        if timeless != before:
            before = timeless
            yield chosen
        if not watch:
            return
        time.sleep(_PERIOD_SECONDS)


def _advised(server: str, job: str | None, node: str | None) -> Iterator[AdvicePair]:
    """Return the newest reports, of a job or a node where given."""
    query = {} if node is None else {"node": node}
    result: AdviceOfJob | AdviceStatus | None
    if job is not None:
        path = "/".join(quote(item, "") for item in job.split("/"))
        result = of_job = _asked(server, f"/api/v1/advice/{path}", query, AdviceOfJob)
        translate_messages(of_job.messages)
    else:
        page = _asked(server, "/api/v1/advice", query, _Advice)
        translate_messages(page.messages)
        result = page.advice
    if result is None:
        text = "it does not advise: set advice.enabled there"
        raise ConfigurationError(server, [Problem("--server", text)])
    return _pairs(result.reports, [None] * len(result.reports), result.not_known)


def _assumed(
    server: str, what_if: Sequence[str], job: str | None, node: str | None
) -> Iterator[AdvicePair]:
    """Return what would follow if ``what_if`` came to be, of a job or a node where given."""
    query = {"what_if": list(what_if), "job": job, "node": node}
    given = {name: value for name, value in query.items() if value is not None}
    result = _asked(server, "/api/v1/advice/what-if", given, AssumedAdvice)
    translate_messages(result.messages)
    return _pairs(result.reports, result.bases, result.not_known)


def _pairs(
    reports: Sequence[AdviceReport],
    bases: Sequence[AdviceReport | None],
    not_known: Mapping[str, str],
) -> Iterator[AdvicePair]:
    """Yield the reports with what the aggregator does not know, and why."""
    unread = [f"{kind}: {reason}" for kind, reason in sorted(not_known.items())]
    for report, base in zip(reports, bases, strict=True):
        completed = msgspec.structs.replace(report, not_known=(*report.not_known, *unread))
        yield AdvicePair(completed, base)


def _asked(server: str, path: str, query: Mapping[str, str | list[str]], model: type[T]) -> T:
    """Return the answer at a page; where the aggregator is busy it is asked again."""
    client, deadline = DaemonClient(server, _SECONDS), time.monotonic() + _BUSY_SECONDS
    text = f"{path}?{urlencode(query, doseq=True)}" if query else path
    while True:
        status, body = client.fetch(text)
        if status == OK:
            return client.decoded(body, model)
        if status in (_WRONG, NOT_FOUND):
            raise ConfigurationError(server, [Problem(text, _reason(body))])
        if status != _BUSY or time.monotonic() > deadline:
            raise client.refused(path, status, body)
        time.sleep(_RETRY_SECONDS)


def _reason(body: bytes) -> str:
    """Return why a page refuses the request."""
    try:
        return quoted(_refusal.decode(body).error)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return quoted(body.decode(errors="replace"))
