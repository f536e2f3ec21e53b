"""Why a vcjob ended: a fault by which it was evicted, or one under which it ended by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.validation_texts import decode_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.checks.ended_vcjobs import FaultUnder

AFTER_MS = 60_000
"""A fault that is seen up to so long after the end of a job may have ended it."""
_NO_FAULT = "pod-failed"


class _Reason(msgspec.Struct):
    reason: str = msgspec.field(default="", name="RescheduleReason")
    pod: str = msgspec.field(default="", name="PodName")
    node: str = msgspec.field(default="", name="NodeName")


class _Record(msgspec.Struct):
    at_seconds: int = msgspec.field(default=0, name="RescheduleTimeStamp")
    reasons: list[_Reason] | None = msgspec.field(default=None, name="ReasonOfTask")


class _Records(msgspec.Struct):
    records: list[_Record] | None = msgspec.field(default=None, name="RescheduleRecords")


_decoder = msgspec.json.Decoder(dict[str, _Records])


class Evicted(msgspec.Struct, frozen=True):
    """An eviction by the scheduler: when, in whole seconds (wall), and for which fault."""

    at_seconds: int
    cause: str


def read_evictions(text: str) -> dict[str, tuple[Evicted, ...]]:
    """Return by job the evictions for a fault (consumers#1.14). Raises ``ValueError``."""
    try:
        found = _decoder.decode(text or "{}")
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(
            f"the records of the scheduler cannot be read: {decode_text(error)}"
        ) from None
    evictions: dict[str, tuple[Evicted, ...]] = {}
    for job, records in found.items():
        each = (_by_fault(record) for record in records.records or ())
        by_fault = tuple(one for one in each if one is not None)
        if by_fault:
            evictions[job] = by_fault
    return evictions


def _by_fault(record: _Record) -> Evicted | None:
    for one in record.reasons or ():
        if one.reason != _NO_FAULT:
            where = f" on {one.node}" if one.node else ""
            return Evicted(record.at_seconds, f"{one.reason}{where}")
    return None


def cause_of(
    began_ms: int,
    ended_ms: int,
    evictions: Sequence[Evicted],
    faults: Sequence[FaultUnder],
    *,
    before_seconds: int = 0,
) -> str:
    """Return what ended a job that began and ended at these times; empty for no fault.

    The scheduler's record has whole seconds of its own clock, so the second of the start counts.
    ``before_seconds`` is the record after which the job was started; it counts no more.
    """
    since = [one for one in evictions if one.at_seconds >= began_ms // 1000]
    since = [one for one in since if one.at_seconds > before_seconds]
    if since:
        return max(since, key=lambda one: one.at_seconds).cause
    for one in faults:
        if one.since_ms <= ended_ms + AFTER_MS:
            return f"{one.kind} on {one.node}"
    return ""
