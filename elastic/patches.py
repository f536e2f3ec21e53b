"""The writes to a vcjob, as patches that fit one version of it only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from advisor.workloads.elastic_conditions import kept_of
from contract.documents.elastic_job import (
    CAUSE,
    DISTRIBUTED,
    KEPT,
    REASON,
    RESTORE,
    STARTED,
    PersistedJob,
)
from elastic.decision import DueWrite, recent_starts, size_of

if TYPE_CHECKING:
    from advisor.snapshot import VcJob
    from contract.documents.elastic_job import Cause
    from elastic.decision import RestartDecision


def size_patch(job: VcJob, decision: RestartDecision, now_ms: int) -> list[dict[str, Any]]:
    """Return the JSON patch of the size, with the originals and the cause in an annotation.

    For ``DueWrite.CLEAR`` the size is 0. ``now_ms`` is the wall clock.
    """
    assert decision.original is not None
    assert decision.size is not None
    size = decision.size
    if decision.write is DueWrite.CLEAR:
        size = size_of(decision.original, 0, decision.size.cards)
    starts, before = recent_starts(job, now_ms), kept_of(job)
    # A number counts once, however often its size is written.
    if before is None or decision.start > before.start:
        starts = (*starts, now_ms)
    # The controller's clock may be ahead of ours.
    at_ms = max(now_ms, job.last_active_ms + 1)
    persisted = PersistedJob(
        decision.original,
        size,
        decision.cause,
        decision.start,
        at_ms,
        starts,
        max(decision.evicted_at_seconds, 0 if before is None else before.evicted_at_seconds),
    )
    patch = [
        # The API server refuses the patch where the job has changed since it was read.
        _set("/metadata/resourceVersion", job.version),
        _annotation(KEPT, _text(persisted)),
        _annotation(DISTRIBUTED, "true"),
        _set("/spec/tasks/0/replicas", size.replicas),
        _set("/spec/minAvailable", size.available),
    ]
    if size.task_available is not None:
        patch.append(_set("/spec/tasks/0/minAvailable", size.task_available))
    # The webhook refuses a change of the chips of a pod, so it is made only where needed
    # (consumers#2.9).
    if job.tasks[0].cards != size.cards:
        name = _escaped(job.tasks[0].resource)
        patch += [
            _set(
                f"/spec/tasks/0/template/spec/containers/{index}/resources/{field}/{name}",
                str(size.cards),
            )
            for index, field in job.tasks[0].places
        ]
    # Size 0 is not a start: the request has to hold until the size of the start is written.
    if RESTORE in job.annotations and decision.write is DueWrite.SIZE:
        patch.append(_without(RESTORE))
    # It belongs to the run that ended, and the annotation above has it from now on.
    if CAUSE in job.annotations:
        patch.append(_without(CAUSE))
    return patch


def cause_patch(job: VcJob, cause: Cause | None) -> list[dict[str, Any]]:
    """Return the JSON patch that keeps ``cause`` on the job, or takes away what is kept there."""
    changes = _without(CAUSE) if cause is None else _annotation(CAUSE, _text(cause))
    return [_set("/metadata/resourceVersion", job.version), changes]


def start_patch(job: VcJob, number: int, text: str) -> dict[str, Any]:
    """Return the merge patch of the status with which start ``number`` begins."""
    state = {"phase": "Pending", "reason": REASON, "message": f"{STARTED}{number}: {text}"}
    return {"metadata": {"resourceVersion": job.version}, "status": {"state": state}}


def _set(path: str, value: object) -> dict[str, Any]:
    """Return the operation that sets a member, whether it is there or not."""
    return {"op": "add", "path": path, "value": value}


def _annotation(key: str, text: str) -> dict[str, Any]:
    return _set(f"/metadata/annotations/{_escaped(key)}", text)


def _without(key: str) -> dict[str, Any]:
    return {"op": "remove", "path": f"/metadata/annotations/{_escaped(key)}"}


def _text(value: Cause | PersistedJob) -> str:
    return msgspec.json.encode(value).decode()


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
