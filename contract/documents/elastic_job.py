"""What elastic training keeps on a vcjob, and where (``docs/spec/consumers.md#5.3``)."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from contract.validation_texts import decode_text

if TYPE_CHECKING:
    from collections.abc import Mapping

SWITCH = "npu-vigil/elastic"
"""Annotation of a vcjob: ``off`` keeps the job out, whatever its labels are."""
OFF = "off"
RESTORE = "npu-vigil/elastic-restore"
"""Annotation of a vcjob: the next start is at the original size, or waits for room for it."""
RESTORE_NEXT = "next"
"""Value of ``RESTORE``: a start that follows a fault."""
RESTORE_NOW = "true"
"""Value of ``RESTORE``: the job was ended for that, so it starts without a fault."""
KEPT = "npu-vigil/elastic-state"
"""Annotation of a vcjob: the original size, the size written, the cause and the last starts."""
CAUSE = "npu-vigil/elastic-cause"
"""Annotation of a vcjob: what ended its run or is to end it, until the start that follows."""
DISTRIBUTED = "distributed"
"""Annotation of a vcjob that was started again with another size (consumers#5.3)."""
STARTED = "NPU Vigil start "
"""``status.state.message`` of a job that was started again begins with this and a number."""
REASON = "NPUVigilElastic"
"""``status.state.reason`` of a job that was started again."""
LEASE = "npu-vigil.elastic"
"""The Lease of the process that acts. Leases of nodes begin otherwise: ``npu-vigil-``."""
ENDED = ("Failed", "Terminated", "Aborted")
"""Phases in which a vcjob can be started again in place (consumers#2.9)."""
FINISHED = (*ENDED, "Completed")
"""Phases in which the controller makes no pods."""
EVICTED_EVENTS = ("PodEvicted", "*")
"""Events of a policy that set what follows when a pod was evicted."""
RESTART_ACTION = "RestartJob"
"""Ends the job where its ``maxRetry`` is 0 (consumers#2.9)."""
END_ACTIONS = ("TerminateJob", "AbortJob")
"""End the job whatever its ``maxRetry`` is (consumers#2.9)."""
MIN_TTL_SECONDS = 3600
"""A job with a shorter ``ttlSecondsAfterFinished`` may be deleted before it is started again."""


class Size(msgspec.Struct, frozen=True):
    """The size of a vcjob: pods, chips of each, and how many pods start together.

    ``task_available`` is ``None`` where the task does not state it.
    """

    replicas: int
    cards: int
    available: int
    task_available: int | None = None


class PersistedJob(msgspec.Struct, frozen=True):
    """What is remembered of a vcjob between processes.

    ``size`` is what was written last, ``original`` the owner's. ``start`` counts starts, of which
    ``starts_ms`` has the times of the last hour (wall). ``at_ms`` is when ``size`` was written.
    ``evicted_at_seconds`` is the time of the scheduler's newest record before that (its clock).
    """

    original: Size
    size: Size
    cause: str
    start: int
    at_ms: int
    starts_ms: tuple[int, ...] = ()
    evicted_at_seconds: int = 0


def read_kept(annotations: Mapping[str, str]) -> PersistedJob | None:
    """Return what is kept on a vcjob, ``None`` where nothing is. Raises ``ValueError``."""
    text = annotations.get(KEPT)
    return None if text is None else _kept_in(text)


# Each round reads the annotation of each job some fifteen times, and it seldom changes.
@lru_cache(maxsize=1024)
def _kept_in(text: str) -> PersistedJob:
    try:
        persisted = msgspec.json.decode(text, type=PersistedJob)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"{KEPT} cannot be read: {decode_text(error)}") from None
    sizes = (persisted.original, persisted.size)
    # Whoever may edit the vcjob may write this annotation.
    if any(size.replicas < 0 or size.cards < 0 or size.available < 0 for size in sizes):
        raise ValueError(f"{KEPT} has a size below 0")
    return persisted


class CauseSource(StrEnum):
    """Where a cause comes from."""

    RECORD = "record"
    """The scheduler's record: it has evicted the pods."""
    COMMAND = "command"
    """``vigil elastic`` ends the job."""
    PODS = "pods"
    """A fault that the aggregator had under its pods while they ended."""
    HISTORY = "history"
    """A fault by the aggregator's history, under pods that were gone."""
    RUNNING = "running"
    """A fault that the aggregator has under its pods while they run: the end may have another
    cause."""


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """What ended a run of a vcjob, and to which run that belongs.

    ``kind`` is that of the scheduler (``CardUnhealthy``) or of ``FaultUnder``, empty where no fault
    ended the run. ``at_ms`` is when the fault began or was recorded, ``kept_ms`` when this was
    written (wall). ``uid`` is that of the job, ``generation`` the number of the start with which
    the run began, 0 for none, and ``resumed_ms`` when a Command of the owner began it.
    """

    kind: str
    node: str
    at_ms: int
    source: CauseSource
    uid: str
    generation: int = 0
    resumed_ms: int = 0
    kept_ms: int = 0
    chip: str = ""
    code: str = ""

    @property
    def text(self) -> str:
        """The cause for people."""
        return f"{self.kind} on {self.node}" if self.node else self.kind


def read_cause(annotations: Mapping[str, str]) -> Cause | None:
    """Return the cause that is kept on a vcjob; ``None`` where none is, or it cannot be read.

    One that another release wrote is none: it is replaced once a cause is seen.
    """
    try:
        return msgspec.json.decode(annotations.get(CAUSE, "null"), type=Cause | None)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
