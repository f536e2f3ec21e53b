"""What elastic training keeps on a vcjob, and where (``docs/spec/consumers.md#5.3``)."""

from __future__ import annotations

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
ENDING = "npu-vigil/elastic-ending"
"""Annotation of a vcjob that is ended because of a network fault: the fault, and when."""
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
SHORTEST_TTL_SECONDS = 3600
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
    if text is None:
        return None
    try:
        kept = msgspec.json.decode(text, type=PersistedJob)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"{KEPT} cannot be read: {decode_text(error)}") from None
    sizes = (kept.original, kept.size)
    if any(one.replicas < 0 or one.cards < 0 or one.available < 0 for one in sizes):
        raise ValueError(f"{KEPT} has a size below 0")
    return kept


class Ending(msgspec.Struct, frozen=True):
    """Why a job that ran is ended, and when that was decided (wall)."""

    cause: str
    at_ms: int


def read_ending(annotations: Mapping[str, str]) -> Ending | None:
    """Return why a job is ended; ``None`` where no reason is recorded. Raises ``ValueError``."""
    try:
        return msgspec.json.decode(annotations.get(ENDING, "null"), type=Ending | None)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"{ENDING} cannot be read: {decode_text(error)}") from None
