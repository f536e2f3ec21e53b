"""Shows, switches and restores elastic vcjobs with the rights of the caller."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import msgspec

from advisor.options import DEFAULT_GRACE_OVER_TIME
from advisor.workloads.elastic_conditions import kept_of, original_of, unmet
from contract.documents.elastic_job import (
    CAUSE,
    OFF,
    RESTORE,
    RESTORE_NEXT,
    RESTORE_NOW,
    SWITCH,
    CauseSource,
)
from contract.errors import ConfigurationError, Problem, StoreError, StoreNotFound
from contract.scheduling import (
    ELASTIC_SCHEDULING,
    RESCHEDULE_CONFIGMAP,
    RESCHEDULE_NAMESPACE,
    SCHEDULER_CONFIGMAP,
    SCHEDULER_NAMESPACE,
)
from contract.sentences import counted, english, message, sentence
from contract.validation_texts import decode_text
from elastic.decision import REFUSED, JobContext, VcjobState, decide
from elastic.end_cause import Evicted, cause_on
from elastic.job import read_job, read_pod
from elastic.job_cache import evictions_of, grace_over_time_of
from elastic.job_events import COMPONENT, REASONS
from stores.address import kubeconfig_files
from stores.kubernetes_api.vcjobs import VcJobs
from vigil.language import shown, translated
from vigil.reports.wrapping import columns_of, padded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from advisor.snapshot import VcJob
    from contract.documents.elastic_job import Cause, Size
    from elastic.job import JobPod

T = TypeVar("T")

_NEXT: dict[str, str] = {
    VcjobState.RUNNING: sentence("after a fault it is started again"),
    VcjobState.STARTING: sentence("the scheduler binds its pods"),
    VcjobState.FINISHED: sentence("nothing"),
    VcjobState.ENDING: sentence(
        "it is started again once all its pods have ended, if a fault was the cause"
    ),
    VcjobState.CONDITIONS: sentence("nothing until the conditions hold"),
    VcjobState.NO_CAUSE: sentence("nothing, unless a fault is found that ended it"),
    VcjobState.CAUSE_NOT_KNOWN: sentence(
        "nothing, unless a fault is found that ended it, or you start it"
    ),
    VcjobState.WAITING_FOR_PODS: sentence("it is started again once all its pods have ended"),
    VcjobState.WAITING_FOR_ROOM: sentence("it is started again once there is room"),
    VcjobState.TOO_MANY_STARTS: sentence("it is started again when the last hour has fewer starts"),
    VcjobState.BLOCKED: sentence("it is started again once the reason is gone"),
    REFUSED: sentence("the write is tried again every 30 s"),
}
_SOURCES: dict[str, str] = {
    CauseSource.RECORD: "by the scheduler's record",
    CauseSource.COMMAND: "vigil elastic ends the job",
    CauseSource.PODS: "seen under its pods while they ended",
    CauseSource.HISTORY: "by the aggregator's history",
    CauseSource.RUNNING: "seen under its pods while they ran",
}
_NOT_REPORTED = sentence(
    "no Event about its end: vigil elastic does not act, or has not seen it yet"
)
_COLUMNS = (
    *(message("JOB"), message("STATE"), message("SIZE"), message("ORIGINAL")),
    *(message("CAUSE KEPT SINCE"), message("FROM"), message("WHY")),
)


class CauseShown(msgspec.Struct):
    """A cause that is kept on a job: since when, and where it came from."""

    since: str
    source: str
    chip: str = ""
    code: str = ""

    @property
    def text(self) -> str:
        """Return it in English, as the daemon's text of the cause is."""
        parts = (self.chip, self.code, f"kept since {self.since}", _SOURCES[self.source])
        return ", ".join(part for part in parts if part)


class ShownJob(msgspec.Struct, frozen=True):
    """What is shown of a job. ``conditions`` are those that do not hold, with what to write."""

    namespace: str
    name: str
    state: str
    why: str
    phase: str
    size: str
    original: str
    cause: str
    cause_kept: CauseShown | None
    starts: int
    conditions: dict[str, str]
    next: str


class _Items(msgspec.Struct):
    items: list[msgspec.Raw]


class _Source(msgspec.Struct, frozen=True):
    component: str = ""


class _JobEvent(msgspec.Struct, rename="camel"):
    reason: str = ""
    message: str = ""
    source: _Source = _Source()
    last_timestamp: datetime | None = None


class _JobEvents(msgspec.Struct):
    items: list[_JobEvent]


_items = msgspec.json.Decoder(_Items)
_events = msgspec.json.Decoder(_JobEvents)
_STATES = {
    REASONS[state]: state
    for state in (
        VcjobState.WAITING_FOR_ROOM,
        VcjobState.BLOCKED,
        VcjobState.TOO_MANY_STARTS,
        VcjobState.NO_CAUSE,
        VcjobState.CAUSE_NOT_KNOWN,
        REFUSED,
    )
}
"""What only the process that acts knows, by the reason of its Event."""


class _Scheduler(msgspec.Struct, frozen=True):
    """What is read of the scheduler: its records by job, and ``grace-over-time``."""

    evictions: dict[str, tuple[Evicted, ...]]
    grace_over_time_seconds: int


def show_all(kubeconfig: Path | None, *, as_json: bool) -> None:
    """Print all elastic jobs."""
    jobs = _asked(kubeconfig, _all)
    if as_json:
        _print_json(jobs)
        return
    if not jobs:
        print(translated("no vcjob has the label elastic-scheduling"))
        return
    rows = [tuple(map(translated, _COLUMNS))]
    for job in jobs:
        cause_kept = job.cause_kept
        since, source = (cause_kept.since, cause_kept.source) if cause_kept else ("-", "-")
        name = f"{job.namespace}/{job.name}"
        texts = (name, job.state, job.size, job.original, since, source, job.why)
        rows.append(tuple(map(shown, texts)))
    # All columns but WHY, which ends the line.
    widths = [max(columns_of(row[column]) for row in rows) for column in range(6)]
    for row in rows:
        cells = (padded(cell, width) for cell, width in zip(row[:6], widths, strict=True))
        print("  ".join((*cells, row[6])))


def show_one(kubeconfig: Path | None, name: str, *, as_json: bool) -> None:
    """Print one job."""
    namespace, job = _split(name)

    async def ask(api: VcJobs) -> ShownJob:
        return await _shown(api, await _read(api, namespace, job), await _scheduler(api))

    described = _asked(kubeconfig, ask)
    if as_json:
        _print_json(described)
        return
    print(f"{name}: {described.state}: {shown(described.why)}")
    _print_field(message("phase"), described.phase)
    size = sentence("{size}, original {original}", size=described.size, original=described.original)
    _print_field(message("size"), size)
    cause = described.cause or sentence("none known")
    if described.cause_kept is not None:
        cause = f"{cause} ({described.cause_kept.text})"
    _print_field(message("cause"), cause)
    _print_field(message("starts"), str(described.starts))
    for condition, text in described.conditions.items():
        _print_field(message("not met"), f"{condition}: {shown(text)}")
    _print_field(message("next"), described.next)


def _print_field(heading: str, text: str) -> None:
    print(f"  {padded(translated(heading), 10)}{shown(text)}")


def switch(kubeconfig: Path | None, name: str, *, is_on: bool) -> None:
    """Have a job started again after faults, or not."""
    namespace, job = _split(name)
    wanted = {SWITCH: None, RESTORE: None} if is_on else {SWITCH: OFF}
    _asked(kubeconfig, lambda api: api.annotate(namespace, job, wanted))
    state = translated("started again after faults") if is_on else translated("left alone")
    print(f"{name}: {state}")


def restore_job(kubeconfig: Path | None, name: str, *, is_now: bool) -> None:
    """Have a job started with its original size the next time; ``is_now`` ends it for that.

    Raises ``ConfigurationError`` for a job that would not start again.
    """
    namespace, job = _split(name)

    async def do(api: VcJobs) -> None:
        vcjob = await _read(api, namespace, job)
        if problems := _why_not_restored(vcjob):
            raise ConfigurationError(
                "vigil elastic", [Problem(name, problem) for problem in problems]
            )
        # A job that has ended by a fault starts for this from now on, and not for the fault.
        cause = cause_on(vcjob)
        starts = is_now or (vcjob.is_ended and cause is not None and bool(cause.kind))
        value = RESTORE_NOW if starts else RESTORE_NEXT
        # Before the end: ``vigil elastic`` must see the request when the job has ended.
        await api.annotate(namespace, job, {RESTORE: value, CAUSE: None})
        if is_now and not vcjob.is_ended:
            await api.terminate(namespace, job, vcjob.uid)

    _asked(kubeconfig, do)
    text = translated("{job}: the next start waits for room for its original size", job=name)
    print(text)


def _why_not_restored(job: VcJob) -> list[str]:
    """Return why a job would not start again; empty where it would."""
    if job.is_deleted:
        return [sentence("the job is being deleted")]
    if job.phase == "Completed":
        return [sentence("the job is completed; create it again")]
    return [condition.text for condition in unmet(job)]


def _split(name: str) -> tuple[str, str]:
    namespace, _, job = name.partition("/")
    if not namespace or not job or "/" in job:
        problem = Problem(name, sentence("is not a valid NAMESPACE/NAME"))
        raise ConfigurationError("vigil elastic", [problem])
    return namespace, job


@asynccontextmanager
async def open_vcjobs(kubeconfig: Path | None) -> AsyncIterator[VcJobs]:
    """Open the vcjobs of the cluster, and give the connection back behind the block."""
    api = VcJobs(kubeconfig_files(kubeconfig))
    try:
        yield api
    finally:
        await api.close()


def _asked(kubeconfig: Path | None, ask: Callable[[VcJobs], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_vcjobs(kubeconfig) as api:
            return await ask(api)

    return asyncio.run(run())


async def _read(api: VcJobs, namespace: str, name: str) -> VcJob:
    return read_job(await api.read(namespace, name))


async def _all(api: VcJobs) -> list[ShownJob]:
    jobs = [read_job(raw) for raw in await api.jobs()]
    elastic_jobs = (job for job in jobs if ELASTIC_SCHEDULING in job.labels)
    ordered = sorted(elastic_jobs, key=lambda job: (job.namespace, job.name))
    scheduler = await _scheduler(api)
    return [await _shown(api, job, scheduler) for job in ordered]


async def _scheduler(api: VcJobs) -> _Scheduler:
    records = f"/api/v1/namespaces/{RESCHEDULE_NAMESPACE}/configmaps/{RESCHEDULE_CONFIGMAP}"
    options = f"/api/v1/namespaces/{SCHEDULER_NAMESPACE}/configmaps/{SCHEDULER_CONFIGMAP}"
    return _Scheduler(
        await _of_scheduler(
            api,
            records,
            evictions_of,
            {},
            message("the records of the scheduler cannot be read: {reason}"),
        ),
        await _of_scheduler(
            api,
            options,
            grace_over_time_of,
            DEFAULT_GRACE_OVER_TIME,
            message("the configuration of the scheduler cannot be read: {reason}"),
        ),
    )


async def _shown(api: VcJobs, job: VcJob, scheduler: _Scheduler) -> ShownJob:
    facts = JobContext(
        time.time_ns() // 1_000_000,
        await _pods(api, job),
        scheduler.evictions.get(job.group, ()),
        grace_over_time_ms=scheduler.grace_over_time_seconds * 1000,
    )
    decision = decide(job, facts)
    state, reason = decision.state.value, decision.why
    if job.is_ended and decision.asks:
        # What the aggregator knows is known here by the Events of the process that asked it.
        state, reason = await _reported(api, job) or (state, _NOT_REPORTED)
    persisted, cause = kept_of(job), cause_on(job)
    kept_texts = ("" if cause is None else cause.text, "" if persisted is None else persisted.cause)
    return ShownJob(
        job.namespace,
        job.name,
        state,
        reason,
        job.phase,
        size_text(job.size),
        size_text(original_of(job)),
        decision.cause or next(filter(None, kept_texts), ""),
        _shown_cause(cause),
        0 if persisted is None else persisted.start,
        {condition.name: condition.text for condition in decision.unmet},
        _next(job, state),
    )


def _shown_cause(cause: Cause | None) -> CauseShown | None:
    if cause is None or not cause.kind:
        return None
    since = datetime.fromtimestamp(cause.kept_ms // 1000, UTC)
    return CauseShown(f"{since:%Y-%m-%dT%H:%M:%SZ}", cause.source, cause.chip, cause.code)


def _next(job: VcJob, state: str) -> str:
    if RESTORE in job.annotations and state in (VcjobState.RUNNING, VcjobState.WAITING_FOR_ROOM):
        return sentence(
            "{next}; annotation {annotation}: at its original size only",
            next=_NEXT[state],
            annotation=RESTORE,
        )
    return _NEXT[state]


async def _reported(api: VcJobs, job: VcJob) -> tuple[str, str] | None:
    """Return state and reason by the newest Event since the job ended; ``None`` without one."""
    uid = quote(f"involvedObject.uid={job.uid}", safe="")
    path = f"/api/v1/namespaces/{quote(job.namespace, safe='')}/events?fieldSelector={uid}"
    try:
        events = _events.decode(await api.get(path)).items
    except (StoreError, msgspec.DecodeError) as error:
        text = sentence(
            "Events of {job} cannot be read: {reason}", job=job.key, reason=decode_text(error)
        )
        print(shown(text), file=sys.stderr)
        return None
    # Events have whole seconds, so one of the same second counts as later.
    since = datetime.fromtimestamp(job.ended_at_ms // 1000, UTC)
    reported = [
        (event.last_timestamp, _STATES[event.reason], event.message)
        for event in events
        # Other controllers write Events about the job as well.
        if event.source.component == COMPONENT
        and event.reason in _STATES
        and event.last_timestamp is not None
        and event.last_timestamp >= since
    ]
    # Times have whole seconds; names, by which Events are listed, have milliseconds.
    newest = max(enumerate(reported), key=lambda item: (item[1][0], item[0]), default=None)
    return None if newest is None else newest[1][1:]


async def _pods(api: VcJobs, job: VcJob) -> tuple[JobPod, ...]:
    pods: list[JobPod] = []
    async for page in api.pages(f"/api/v1/namespaces/{job.namespace}/pods"):
        pods += [read_pod(raw) for raw in _items.decode(page).items]
    # By uid: pods of an earlier job of this name may still be there.
    return tuple(pod for pod in pods if pod.job == job.uid)


async def _of_scheduler(
    api: VcJobs, path: str, read: Callable[[bytes], T], default: T, problem: str
) -> T:
    """Return what ``read`` makes of a ConfigMap, as far as the caller may read that."""
    try:
        return read(await api.get(path))
    except StoreNotFound:
        return default
    except (StoreError, ValueError) as error:
        print(shown(sentence(problem, reason=error)), file=sys.stderr)
        return default


def size_text(size: Size | None) -> str:
    """Return a size in words."""
    if size is None:
        return sentence("several tasks")
    return counted(
        size.cards,
        "{replicas} × {count} chip",
        "{replicas} × {count} chips",
        replicas=size.replicas,
    )


def _print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value, enc_hook=english)).decode())
