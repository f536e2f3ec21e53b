"""Why a vcjob ended: a fault by which it was evicted, or one under which it ended by itself.

Pure. The cause is kept on the job as soon as it is seen, for the run that it belongs to: the
scheduler's record goes within a second of the end, and so do the pods (consumers#1.14).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from advisor.workloads.elastic_conditions import kept_of, run_of
from contract.documents.elastic_job import CAUSE, Cause, CauseSource, read_cause
from contract.validation_texts import decode_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.checks.ended_vcjobs import FaultUnder
    from advisor.snapshot import VcJob

AFTER_MS = 60_000
"""A fault that is seen up to so long after the end of a job may have ended it."""
_NO_FAULT = "pod-failed"


class _Reason(msgspec.Struct):
    reason: str = msgspec.field(default="", name="RescheduleReason")
    pod: str = msgspec.field(default="", name="PodName")
    node: str = msgspec.field(default="", name="NodeName")


class _RescheduleRecord(msgspec.Struct):
    at_seconds: int = msgspec.field(default=0, name="RescheduleTimeStamp")
    reasons: list[_Reason] | None = msgspec.field(default=None, name="ReasonOfTask")


class _Records(msgspec.Struct):
    records: list[_RescheduleRecord] | None = msgspec.field(default=None, name="RescheduleRecords")


_decoder = msgspec.json.Decoder(dict[str, _Records])


class Evicted(msgspec.Struct, frozen=True):
    """An eviction by the scheduler: when, in whole seconds (wall), for which fault, and where."""

    at_seconds: int
    reason: str
    node: str = ""


def read_evictions(text: str) -> dict[str, tuple[Evicted, ...]]:
    """Return by job the evictions for a fault (consumers#1.14). Raises ``ValueError``."""
    try:
        groups = _decoder.decode(text or "{}")
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(
            f"the records of the scheduler cannot be read: {decode_text(error)}"
        ) from None
    evictions: dict[str, tuple[Evicted, ...]] = {}
    for job, records in groups.items():
        each = (_eviction(record) for record in records.records or ())
        by_fault = tuple(eviction for eviction in each if eviction is not None)
        if by_fault:
            evictions[job] = by_fault
    return evictions


def _eviction(record: _RescheduleRecord) -> Evicted | None:
    for reason in record.reasons or ():
        if reason.reason != _NO_FAULT:
            return Evicted(record.at_seconds, reason.reason, reason.node)
    return None


class EndEvidence(Protocol):
    """What is known about the end of a job beside its object; ``JobContext`` has it."""

    @property
    def now_ms(self) -> int: ...
    @property
    def evictions(self) -> tuple[Evicted, ...]: ...
    @property
    def faults(self) -> tuple[FaultUnder, ...]: ...
    @property
    def judged(self) -> str | None: ...
    @property
    def is_fault_over(self) -> bool: ...


class CauseWrite(msgspec.Struct, frozen=True):
    """What is to be kept on a job as its cause; ``None`` removes it."""

    cause: Cause | None


def cause_on(job: VcJob) -> Cause | None:
    """Return the cause that is kept on the job for its present run; ``None`` for none."""
    cause = read_cause(job.annotations)
    # A manifest that was saved from another job brings that job's annotations with it.
    if cause is None or cause.uid != job.uid:
        return None
    return cause if (cause.generation, cause.resumed_ms) == run_of(job) else None


def is_proof(job: VcJob, cause: Cause) -> bool:
    """Whether ``cause`` is known to be what ended the job, or what is ending it."""
    if cause.source is CauseSource.COMMAND:
        return job.phase in ("Terminating", "Terminated")
    return bool(cause.kind) and cause.source is not CauseSource.RUNNING


def found_cause(job: VcJob, facts: EndEvidence) -> Cause | None:
    """Return what ends or ended the present run of a job: a proof before anything else."""
    candidates = [
        candidate
        for candidate in (
            cause_on(job),
            _by_record(job, facts.evictions),
            _by_fault(job, facts.faults),
        )
        if candidate is not None and candidate.kind
    ]
    proofs = (candidate for candidate in candidates if is_proof(job, candidate))
    return next(proofs, candidates[0] if candidates else None)


def cause_write(job: VcJob, facts: EndEvidence) -> CauseWrite | None:
    """Return what is to be written about the cause of the present run now; ``None`` for nothing."""
    mine, cause = cause_on(job), found_cause(job, facts)
    if cause is not None and cause != mine:
        # Of two of the same worth the first one stays.
        if mine is None or (is_proof(job, cause) and not is_proof(job, mine)):
            return CauseWrite(msgspec.structs.replace(cause, kept_ms=facts.now_ms))
        return None
    if _ended_without_fault(job, cause, facts):
        if mine is not None and not mine.kind:
            return None
        return CauseWrite(_cause(job, "", "", job.ended_at_ms, CauseSource.HISTORY, facts.now_ms))
    is_left_over = mine is None and CAUSE in job.annotations
    return CauseWrite(None) if is_left_over or _has_passed(job, cause, facts) else None


def _ended_without_fault(job: VcJob, cause: Cause | None, facts: EndEvidence) -> bool:
    """Whether no fault has ended the job; a later one is not its cause, so that stays so."""
    if not job.is_ended or facts.judged != "" or facts.now_ms <= job.ended_at_ms + AFTER_MS:
        return False
    return cause is None or not is_proof(job, cause)


def _has_passed(job: VcJob, cause: Cause | None, facts: EndEvidence) -> bool:
    """Whether a fault was seen under a job that runs, and has passed without an end."""
    is_seen = cause is not None and cause.source is CauseSource.RUNNING
    return is_seen and job.phase == "Running" and facts.is_fault_over


def _by_record(job: VcJob, evictions: Sequence[Evicted]) -> Cause | None:
    """Return the scheduler's newest record since the run began.

    It has whole seconds of the scheduler's own clock, so the second of the start counts. The one
    after which the job was started counts no more.
    """
    persisted = kept_of(job)
    began_ms = max(job.created_at_ms if persisted is None else persisted.at_ms, job.resumed_ms)
    after = max(began_ms // 1000 - 1, 0 if persisted is None else persisted.evicted_at_seconds)
    since = [eviction for eviction in evictions if eviction.at_seconds > after]
    if not since:
        return None
    last = max(since, key=lambda eviction: eviction.at_seconds)
    return _cause(job, last.reason, last.node, last.at_seconds * 1000, CauseSource.RECORD)


def _by_fault(job: VcJob, faults: Sequence[FaultUnder]) -> Cause | None:
    for fault in faults:
        # A fault that came so long after the end did not cause it.
        if job.is_ended and fault.since_ms > job.ended_at_ms + AFTER_MS:
            continue
        source = CauseSource.HISTORY if fault.is_past else CauseSource.PODS
        if not (job.is_ended or job.is_ending):
            source = CauseSource.RUNNING
        cause = _cause(job, fault.kind, fault.node, fault.since_ms, source)
        return msgspec.structs.replace(cause, chip=fault.chip, code=fault.code)
    return None


def command_cause(job: VcJob, fault: FaultUnder, now_ms: int) -> Cause:
    """Return the cause of a job that is ended by ``vigil elastic`` for a network fault."""
    cause = _cause(job, fault.kind, fault.node, fault.since_ms, CauseSource.COMMAND, now_ms)
    return msgspec.structs.replace(cause, chip=fault.chip, code=fault.code)


def _cause(
    job: VcJob, kind: str, node: str, at_ms: int, source: CauseSource, kept_ms: int = 0
) -> Cause:
    return Cause(kind, node, at_ms, source, job.uid, *run_of(job), kept_ms)
