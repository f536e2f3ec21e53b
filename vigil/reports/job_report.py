"""The jobs that faults hit, from an aggregator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.errors import ConfigurationError, Problem
from contract.pages.aggregator_status import ClusterStatePage, JobsPage, LeaderPage
from contract.pages.faults import FaultsPage
from contract.sentences import sentence
from vigil.language import shown, translated
from vigil.reports.show import source_lines
from vigil.reports.status_report import in_language, names_of, source_of
from vigil.reports.times import since
from vigil.reports.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from contract.pages.aggregator_status import HitJob, RankFaultDevice
    from vigil.daemon_client import DaemonClient

_WHOLE = "-1"
_CHIP = "NPU"


class JobFault(msgspec.Struct, frozen=True):
    """A fault that hits a job: ``part`` of ``node``, ``None`` for an unknown time."""

    node: str
    part: str
    code: str
    name_en: str
    name_zh: str
    level: str
    since_ms: int | None


class JobRow(msgspec.Struct, frozen=True):
    """A job (``namespace/name``, or its key where it has no name) and what hits it."""

    job: str
    health: str
    since_ms: int | None
    faults: tuple[JobFault, ...]


class JobReport(msgspec.Struct, frozen=True):
    """The jobs that are hit; see ``Report``."""

    source: str
    server: str
    at_ms: int
    not_known: tuple[str, ...]
    jobs: tuple[JobRow, ...]


def leader_of(client: DaemonClient) -> str | None:
    """Return which aggregator answers; ``None`` where it is none."""
    result = client.find("/api/v1/leader", LeaderPage)
    return None if result is None else source_of(result.leader)


def job_report(client: DaemonClient) -> JobReport:
    """Return which jobs are hit.

    Raises ``ConfigurationError`` for a daemon that is not an aggregator, ``StoreUnavailable`` where
    none answers.
    """
    source = leader_of(client)
    if source is None:
        text = sentence(
            "{server} is not an aggregator; only an aggregator knows this", server=client.server
        )
        raise ConfigurationError("command line", [Problem("--server", text)])
    result = client.get("/api/v1/jobs", JobsPage)
    # The page with all faults is large, and needed only where a job is hit.
    types = _chip_types(client) if any(job.nodes for job in result.jobs) else {}
    objects = client.get("/api/v1/cluster-state", ClusterStatePage).cluster_state.objects
    pods = [item for item in objects if item.kind == "pods" and item.followed]
    not_known: list[str] = [
        # A store made the reason, so the sentence is English in each language.
        f"pods of {pod.store} ({pod.interrupted})"
        if pod.interrupted
        else sentence("pods of {store} (they are not read yet)", store=pod.store)
        for pod in pods
        if pod.interrupted or not pod.known
    ]
    if not pods:
        text = sentence("which pods use chips: no store of this aggregator has pods")
        not_known.append(text)
    return JobReport(
        source=source,
        server=client.server,
        at_ms=result.at_ms,
        not_known=tuple(not_known),
        jobs=tuple(job_rows(result.jobs, types)),
    )


def job_rows(jobs: Iterable[HitJob], types: Mapping[str, str]) -> Iterator[JobRow]:
    """Yield the rows of jobs; ``types`` is what the names of chips begin with, by node."""
    for job in jobs:
        yield JobRow(
            f"{job.namespace}/{job.name}" if job.name else job.job,
            job.health,
            job.since_ms,
            tuple(_fault(node.node, fault, types) for node in job.nodes for fault in node.faults),
        )


def job_lines(report: JobReport, *, language: str, utc: bool, columns: int) -> Iterator[str]:
    """Return the source that answered, and a paragraph for each job."""
    yield from source_lines(report.source, report.server, report.not_known, columns)
    if not report.jobs:
        yield translated("no job is known to be hit")
    for job in report.jobs:
        yield ""
        first = f"{job.job}: {job.health}"
        if job.since_ms is not None:
            first = translated(
                "{job}, since {since}",
                job=first,
                since=shown(since(job.since_ms, report.at_ms, utc=utc)),
            )
        yield from wrapped(first, columns)
        for fault in job.faults:
            name = in_language(language, fault.name_en, fault.name_zh)
            began = ""
            if fault.since_ms is not None:
                began = shown(since(fault.since_ms, report.at_ms, utc=utc))
            words = (fault.node, fault.part, fault.code, fault.level, began, name)
            yield from wrapped("  ".join(filter(None, words)), columns, "  ")


def _chip_types(client: DaemonClient) -> dict[str, str]:
    """Return what the names of chips begin with, by node: ``Ascend910``.

    Upstream's format of what hits a job has only their numbers.
    """
    faults = client.get("/api/v1/faults", FaultsPage).faults
    return {
        fault.node: fault.subject.rpartition("-")[0] for fault in faults if fault.kind == "chip"
    }


def _fault(node: str, answer: RankFaultDevice, types: Mapping[str, str]) -> JobFault:
    part = (
        answer.device_type
        if answer.device_id == _WHOLE
        else f"{answer.device_type} {answer.device_id}"
    )
    if answer.device_type == _CHIP and node in types:
        part = f"{types[node]}-{answer.device_id}"
    return JobFault(
        node,
        part,
        answer.code,
        *names_of(answer.code),
        answer.level,
        answer.time_ms or None,
    )
