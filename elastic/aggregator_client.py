"""Asks the aggregator that leads for sizes, over its API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from advisor.checks.ended_vcjobs import EndedJobs
from contract.errors import ConfigurationError
from service.login.client import (
    LoginFiles,
    authorization,
    login_problem,
    tls_context,
    tls_reason,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.snapshot import VcJob

_SECONDS = 10.0
_ATTEMPTS = 4
"""A Service gives any of its aggregators, and one of them leads."""
_OK, _UNAUTHORIZED = 200, 401
_CONFIGURATION = "configuration"
MAX_JOBS = 40
"""In one question; a line of HTTP has 8190 bytes."""


class _ElasticPage(msgspec.Struct):
    leads: bool
    alarm: bool
    silent: tuple[str, ...]
    ended: EndedJobs | None


_decoder = msgspec.json.Decoder(_ElasticPage)


class AggregatorReply(msgspec.Struct, frozen=True):
    """An answer; ``troubles`` are reasons not to start anything.

    ``silent`` are the nodes whose heartbeats have ended, ``None`` without an answer.
    ``requested_ms`` is steady: the answer shows the cluster of then, or of later.
    """

    ended: EndedJobs = EndedJobs()
    troubles: tuple[str, ...] = ()
    silent: frozenset[str] | None = None
    requested_ms: int = 0


class Aggregators:
    """The aggregators behind ``url``, asked with ``login`` where that is ``https://``."""

    def __init__(self, url: str, login: LoginFiles = LoginFiles()) -> None:  # noqa: B008
        """Check the files. Raises ``ConfigurationError`` for those that cannot be used."""
        self._url = url.rstrip("/")
        self._login = login
        self._tls_options()

    def _tls_options(self) -> dict[str, Any]:
        """Return the options of requests; files are read again, as they may be replaced."""
        if not self._url.startswith("https://"):
            return {}
        options: dict[str, Any] = {"ssl": tls_context(self._login, _CONFIGURATION)}
        header = authorization(self._login, _CONFIGURATION)
        return options if header is None else options | {"headers": {"Authorization": header}}

    async def request(
        self,
        sized: Sequence[VcJob],
        judged: Sequence[VcJob],
        *,
        running: bool = False,
        hit: bool = False,
    ) -> AggregatorReply:
        """Ask for the sizes of some ended jobs, and for faults under others.

        With ``running`` also for jobs that run over a network fault, with ``hit`` for those that
        run over any fault. More jobs than fit in one
        question are asked for one after the other. Their sizes do not count the room of those
        before, which does no harm: of all jobs the first one that has room is started alone.
        """
        options = {"running": running, "hit": hit}
        chosen = {name: "true" for name, is_on in options.items() if is_on}
        reply = await self._ask(sized[:MAX_JOBS], judged[:MAX_JOBS], chosen)
        for first in range(MAX_JOBS, len(sized), MAX_JOBS):
            # With troubles nothing is started, so no further size is needed.
            if reply.troubles:
                break
            more = await self._ask(sized[first : first + MAX_JOBS], (), {})
            reply = _joined(reply, more)
        return reply

    async def _ask(
        self, sized: Sequence[VcJob], judged: Sequence[VcJob], options: Mapping[str, str]
    ) -> AggregatorReply:
        parameters = {"sized": _keys(sized), "judged": _keys(judged), **options}
        trouble = ""
        try:
            async with asyncio.timeout(_SECONDS):
                tls_options = self._tls_options()
                query = {key: text for key, text in parameters.items() if text}
                for _ in range(_ATTEMPTS):
                    page = await self._page(query, tls_options)
                    if page.leads:
                        return _answer(page, self._url)
                trouble = "no aggregator that was asked leads"
        except ConfigurationError as error:
            trouble = "; ".join(map(str, error.problems))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            trouble = _reason_of(error)
        return AggregatorReply(troubles=(f"the aggregator at {self._url} is away: {trouble}",))

    async def _page(self, query: dict[str, str], tls_options: dict[str, Any]) -> _ElasticPage:
        # A new connection each time, as another aggregator may answer it.
        connector = aiohttp.TCPConnector(force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"{self._url}/api/v1/ended-jobs", params=query, **tls_options) as response,
        ):
            body = await response.read()
            if response.status == _UNAUTHORIZED:
                raise ValueError(f"{login_problem(self._login, _CONFIGURATION)}: {body[:200]!r}")
            if response.status != _OK:
                raise ValueError(f"it answered {response.status}: {body[:200]!r}")
            return _decoder.decode(body)


def _reason_of(error: Exception) -> str:
    # aiohttp wraps what the module for TLS has raised.
    wrapped = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
    return str(tls_reason(wrapped or error, _CONFIGURATION) or error) or type(error).__name__


def _keys(jobs: Sequence[VcJob]) -> str:
    return ",".join(job.key for job in jobs)


def _joined(reply: AggregatorReply, other: AggregatorReply) -> AggregatorReply:
    """Return two answers as one, as old as the older of them."""
    return AggregatorReply(
        EndedJobs(
            min(reply.ended.version, other.ended.version),
            (),
            (*reply.ended.jobs, *other.ended.jobs),
            reply.ended.running,
            reply.ended.hit,
        ),
        other.troubles,
        reply.silent,
    )


def _answer(page: _ElasticPage, url: str) -> AggregatorReply:
    if page.ended is None:
        reason = f"the aggregator at {url} does not advise: set advice.enabled there"
        return AggregatorReply(troubles=(reason,))
    troubles = list(page.ended.not_known)
    if page.alarm:
        troubles.insert(0, "silence alarm: too many nodes fell silent at once")
    return AggregatorReply(page.ended, tuple(troubles), frozenset(page.silent))
