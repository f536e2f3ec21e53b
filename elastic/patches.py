"""The two writes that start a vcjob again, as patches that fit one version of it only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from advisor.workloads.elastic_conditions import kept_of
from contract.documents.elastic_job import (
    DISTRIBUTED,
    ENDING,
    KEPT,
    REASON,
    RESTORE,
    STARTED,
    Ending,
    PersistedJob,
)
from elastic.decision import DueWrite, recent_starts, size_of

if TYPE_CHECKING:
    from advisor.snapshot import VcJob
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
    kept = PersistedJob(
        decision.original,
        size,
        decision.cause,
        decision.start,
        at_ms,
        starts,
        max(decision.evicted_at_seconds, 0 if before is None else before.evicted_at_seconds),
    )
    patch = [
        _set("/metadata/resourceVersion", job.version),
        _annotation(KEPT, msgspec.json.encode(kept).decode()),
        _annotation(DISTRIBUTED, "true"),
        _set("/spec/tasks/0/replicas", size.replicas),
        _set("/spec/minAvailable", size.available),
    ]
    if size.task_available is not None:
        patch.append(_set("/spec/tasks/0/minAvailable", size.task_available))
    if job.tasks[0].cards != size.cards:
        name = _escaped(job.tasks[0].resource)
        patch += [
            _set(
                f"/spec/tasks/0/template/spec/containers/{index}/resources/{field}/{name}",
                str(size.cards),
            )
            for index, field in job.tasks[0].places
        ]
    if RESTORE in job.annotations and decision.write is DueWrite.SIZE:
        patch.append({"op": "remove", "path": f"/metadata/annotations/{_escaped(RESTORE)}"})
    if ENDING in job.annotations:
        patch.append({"op": "remove", "path": f"/metadata/annotations/{_escaped(ENDING)}"})
    return patch


def ending_patch(job: VcJob, cause: str, now_ms: int) -> list[dict[str, Any]]:
    """Return the JSON patch that keeps why a job is ended. ``now_ms`` is the wall clock."""
    kept = kept_of(job)
    # A cause from before the last start does not count, and that may have a later clock's time.
    at_ms = now_ms if kept is None else max(now_ms, kept.at_ms)
    ending = msgspec.json.encode(Ending(cause, at_ms)).decode()
    return [_set("/metadata/resourceVersion", job.version), _annotation(ENDING, ending)]


def start_patch(job: VcJob, number: int, text: str) -> dict[str, Any]:
    """Return the merge patch of the status with which start ``number`` begins."""
    state = {"phase": "Pending", "reason": REASON, "message": f"{STARTED}{number}: {text}"}
    return {"metadata": {"resourceVersion": job.version}, "status": {"state": state}}


def _set(path: str, value: object) -> dict[str, Any]:
    """Return the operation that sets a member, whether it is there or not."""
    return {"op": "add", "path": path, "value": value}


def _annotation(key: str, text: str) -> dict[str, Any]:
    return _set(f"/metadata/annotations/{_escaped(key)}", text)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
