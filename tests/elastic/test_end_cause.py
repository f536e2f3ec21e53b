"""What ended a job: what shows it, what is kept about it on the job, and when that counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from advisor.checks.ended_vcjobs import FaultUnder
from contract.documents.elastic_job import CAUSE, Cause, CauseSource, PersistedJob, read_cause
from elastic.decision import DueWrite, JobContext, VcjobState, decide, due_cause
from elastic.end_cause import CauseWrite, Evicted, found_cause, read_evictions
from elastic.patches import cause_patch, size_patch
from tests.elastic.jobs import (
    BEGAN_MS,
    ENDED_MS,
    NOW_MS,
    UID,
    read,
    size,
    vcjob,
    with_cause,
    with_kept,
)

_RECORD = Cause("CardUnhealthy", "n0", ENDED_MS - 60_000, CauseSource.RECORD, UID, kept_ms=1)
_RUNNING = msgspec.structs.replace(_RECORD, kind="DEVICE", source=CauseSource.RUNNING)
_COMMAND = msgspec.structs.replace(_RECORD, kind="NETWORK", source=CauseSource.COMMAND)
_NONE = msgspec.structs.replace(_RECORD, kind="", node="", source=CauseSource.HISTORY)
_EVICTED = (Evicted(ENDED_MS // 1000 - 60, "CardUnhealthy", "n0"),)
_FAULTS = (FaultUnder("DEVICE", "n1", ENDED_MS - 5000, "Ascend910-3", "80E18005"),)
_LONG_AFTER_MS = ENDED_MS + 60_001


def _item(phase: str = "Terminated", cause: Cause | None = None) -> dict[str, Any]:
    return with_cause(vcjob(phase=phase), cause)


def test_records_of_the_scheduler_are_read_by_job() -> None:
    """As in the recording of a device fault; a failed pod is no fault."""
    record = (
        '{"default/j-u":{"JobID":"default/j-u","TotalRescheduleTimes":2,"RescheduleRecords":['
        '{"RescheduleTimeStamp":5,"ReasonOfTask":[{"RescheduleReason":"pod-failed","NodeName":"n"}'
        ']},{"RescheduleTimeStamp":7,"ReasonOfTask":[{"RescheduleReason":"pod-failed"},'
        '{"RescheduleReason":"CardUnhealthy","PodName":"j-w-1","NodeName":"n3"}]}]}}'
    )
    assert read_evictions(record) == {"default/j-u": (Evicted(7, "CardUnhealthy", "n3"),)}
    assert read_evictions("") == {}
    with pytest.raises(ValueError, match="cannot be read"):
        read_evictions("[")


@pytest.mark.parametrize(
    ("evictions", "faults", "cause"),
    [
        ((Evicted(BEGAN_MS // 1000, "x", "n0"),), (), "x on n0"),
        ((Evicted(BEGAN_MS // 1000 - 1, "x", "n0"),), (), ""),
        ((), (FaultUnder("NETWORK", "n1", ENDED_MS + 60_000),), "NETWORK on n1"),
        ((), (FaultUnder("DEVICE", "n1", ENDED_MS + 60_001),), ""),
        ((), (FaultUnder("DEVICE", "n1", 1),), "DEVICE on n1"),
    ],
)
def test_the_cause_of_an_ended_job(
    evictions: tuple[Evicted, ...], faults: tuple[FaultUnder, ...], cause: str
) -> None:
    found = found_cause(read(vcjob()), JobContext(NOW_MS, evictions=evictions, faults=faults))
    assert ("" if found is None else found.text) == cause


@pytest.mark.parametrize(
    ("phase", "changes", "source"),
    [
        ("Running", {"evictions": _EVICTED}, CauseSource.RECORD),
        ("Running", {"faults": _FAULTS}, CauseSource.RUNNING),
        ("Terminating", {"faults": _FAULTS}, CauseSource.PODS),
        ("Failed", {"faults": _FAULTS}, CauseSource.PODS),
        ("Failed", {"faults": (msgspec.structs.replace(_FAULTS[0], is_past=True),)}, "history"),
        ("Running", {}, None),
        ("Completed", {"faults": _FAULTS}, None),
    ],
)
def test_a_cause_is_written_as_soon_as_it_is_seen(
    phase: str, changes: dict[str, Any], source: str | None
) -> None:
    job = read(vcjob(phase=phase))
    due = due_cause(job, JobContext(NOW_MS, **changes))
    if source is None:
        assert due is None
        return
    assert due is not None
    assert due.cause is not None
    assert (due.cause.source, due.cause.uid, due.cause.generation) == (source, UID, 0)
    assert due.cause.kept_ms == NOW_MS
    if "faults" in changes:
        assert (due.cause.chip, due.cause.code) == ("Ascend910-3", "80E18005")
    written = cause_patch(job, due.cause)
    assert written[0]["value"] == job.version, "it fits this version only"
    assert read_cause({CAUSE: written[1]["value"]}) == due.cause


@pytest.mark.parametrize("cause", [_RECORD, msgspec.structs.replace(_RECORD, source="pods")])
def test_a_cause_on_the_job_counts_when_everything_else_is_gone(cause: Cause) -> None:
    cause = msgspec.convert(msgspec.to_builtins(cause), Cause)
    job = read(_item(cause=cause))
    found = decide(job, JobContext(NOW_MS))
    assert (found.state, found.cause) == (VcjobState.WAITING_FOR_ROOM, "CardUnhealthy on n0")
    assert due_cause(job, JobContext(NOW_MS)) is None, "it is there"


@pytest.mark.parametrize(
    "cause",
    [
        msgspec.structs.replace(_RECORD, uid="another"),
        msgspec.structs.replace(_RECORD, generation=1),
        msgspec.structs.replace(_RECORD, resumed_ms=5),
    ],
)
def test_a_cause_of_another_run_is_none_and_is_taken_away(cause: Cause) -> None:
    """The owner may create a job from the manifest of another one, annotations and all."""
    job = read(_item(cause=cause))
    assert decide(job, JobContext(NOW_MS, judged="")).state is VcjobState.NO_CAUSE
    assert due_cause(job, JobContext(NOW_MS)) == CauseWrite(None)


def test_an_annotation_of_another_release_is_replaced() -> None:
    item = vcjob()
    item["metadata"]["annotations"][CAUSE] = '{"cause": "NETWORK on n1", "at_ms": 5}'
    job = read(item)
    assert decide(job, JobContext(NOW_MS)).state is VcjobState.CAUSE_NOT_KNOWN
    due = due_cause(job, JobContext(NOW_MS, evictions=_EVICTED))
    assert due is not None
    assert due.cause is not None


@pytest.mark.parametrize(
    ("judged", "state"),
    [
        (None, VcjobState.CAUSE_NOT_KNOWN),
        ("", VcjobState.NO_CAUSE),
        ("it began later", VcjobState.WAITING_FOR_ROOM),
    ],
)
def test_a_fault_that_was_seen_while_the_job_ran_is_compared_with_the_history(
    judged: str | None, state: VcjobState
) -> None:
    """It may have passed long before the end, while no daemon was there."""
    job = read(_item(cause=_RUNNING))
    found = decide(job, JobContext(NOW_MS, judged=judged))
    assert (found.state, found.asks) == (state, True)


@pytest.mark.parametrize(
    ("phase", "cause", "is_over", "is_removed"),
    [
        ("Running", _RUNNING, True, True),
        ("Running", _RUNNING, False, False),
        ("Running", _COMMAND, True, False),
        ("Running", _RECORD, True, False),
        ("Terminating", _RUNNING, True, False),
    ],
)
def test_a_fault_that_has_passed_is_no_cause_any_more(
    phase: str, cause: Cause, is_over: bool, is_removed: bool
) -> None:
    due = due_cause(read(_item(phase, cause)), JobContext(NOW_MS, is_fault_over=is_over))
    assert due == (CauseWrite(None) if is_removed else None)


@pytest.mark.parametrize(
    ("phase", "counts"), [("Terminated", True), ("Failed", False), ("Aborted", False)]
)
def test_our_command_is_the_cause_of_what_it_leads_to(phase: str, counts: bool) -> None:
    found = decide(read(_item(phase, _COMMAND)), JobContext(NOW_MS, judged=""))
    assert bool(found.cause) is counts


def test_a_proof_replaces_what_was_seen_while_the_job_ran() -> None:
    job = read(_item(cause=_RUNNING))
    due = due_cause(job, JobContext(NOW_MS, evictions=_EVICTED))
    assert due is not None
    assert due.cause is not None
    assert due.cause.source is CauseSource.RECORD
    assert due_cause(read(_item(cause=_RECORD)), JobContext(NOW_MS, faults=_FAULTS)) is None


@pytest.mark.parametrize(
    ("judged", "now_ms", "state", "is_written"),
    [
        (None, _LONG_AFTER_MS, VcjobState.CAUSE_NOT_KNOWN, False),
        ("its pods are not known", _LONG_AFTER_MS, VcjobState.CAUSE_NOT_KNOWN, False),
        ("", _LONG_AFTER_MS, VcjobState.NO_CAUSE, True),
        ("", NOW_MS, VcjobState.NO_CAUSE, False),
    ],
)
def test_no_cause_is_only_what_is_known_to_be_none(
    judged: str | None, now_ms: int, state: VcjobState, is_written: bool
) -> None:
    """That no fault was there is kept: the history is not kept for ever."""
    job, context = read(vcjob()), JobContext(now_ms, judged=judged)
    found = decide(job, context)
    assert (found.state, found.write, found.asks) == (state, None, True)
    if judged:
        assert judged in found.why
        assert "vigil elastic restore --now default/j" in found.why
    due = due_cause(job, context)
    assert (due is not None) is is_written
    if due is not None:
        known = decide(read(_item(cause=due.cause)), JobContext(now_ms))
        assert (known.state, known.asks) == (VcjobState.NO_CAUSE, False)


def test_what_is_kept_as_without_a_fault_has_a_cause_when_one_is_seen() -> None:
    due = due_cause(read(_item(cause=_NONE)), JobContext(_LONG_AFTER_MS, evictions=_EVICTED))
    assert due is not None
    assert due.cause is not None
    assert due.cause.text == "CardUnhealthy on n0"


def test_a_cause_goes_with_the_start_that_it_leads_to() -> None:
    """The record that it came from counts no more, though no process has it any longer."""
    job = read(_item(cause=_RECORD))
    found = decide(job, JobContext(NOW_MS))
    ready = msgspec.structs.replace(
        found, write=DueWrite.SIZE, original=size(4), size=size(2), start=1
    )
    patch = {one["path"]: one for one in size_patch(job, ready, NOW_MS)}
    assert patch["/metadata/annotations/npu-vigil~1elastic-cause"]["op"] == "remove"
    text = patch["/metadata/annotations/npu-vigil~1elastic-state"]["value"]
    state = msgspec.json.decode(text, type=PersistedJob)
    assert state.cause == "CardUnhealthy on n0"
    again = read(with_kept(vcjob(), state, started=1))
    assert decide(again, JobContext(NOW_MS, judged="")).state is VcjobState.NO_CAUSE
