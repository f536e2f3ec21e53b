"""What is reported about elastic jobs: Events on the job, and lines of the log."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from advisor.workloads.elastic_conditions import kept_of
from contract.errors import StoreError
from contract.plural import plural
from elastic.decision import REFUSED, DueWrite, VcjobState
from stores.base import Involved, KubernetesEvent

if TYPE_CHECKING:
    from advisor.snapshot import VcJob
    from elastic.decision import RestartDecision
    from service.clock import Clock
    from stores.base import ClusterObjects

_log = logging.getLogger(__name__)

COMPONENT = "npu-vigil-elastic"
"""The source of each Event."""
_MAX_WAITING = 200
_MAX_LENGTH = 1000
"""Characters of a message; the API server takes 1024."""
REASONS = {
    VcjobState.CONDITIONS.value: "ElasticCondition",
    VcjobState.WAITING_FOR_PODS.value: "ElasticWaitingForPods",
    VcjobState.WAITING_FOR_ROOM.value: "ElasticWaitingForRoom",
    VcjobState.BLOCKED.value: "ElasticStandingStill",
    VcjobState.TOO_MANY_STARTS.value: "ElasticTooManyStarts",
    VcjobState.NO_CAUSE.value: "ElasticNoCause",
    VcjobState.CAUSE_NOT_KNOWN.value: "ElasticCauseNotKnown",
    REFUSED: "ElasticRefused",
}
"""States of which the job gets an Event, with its reason."""
_WARNINGS = {DueWrite.END: "ElasticEnd", DueWrite.PODS: "ElasticPodsDeleted"}
_WAITING = (VcjobState.WAITING_FOR_PODS.value, VcjobState.WAITING_FOR_ROOM.value)
_QUIET = "is asked"


class JobEvents:
    """Queues Events, so that no round waits for them. Without ``records`` there is only the log."""

    def __init__(self, objects: ClusterObjects, clock: Clock, *, records: bool) -> None:
        self._objects = objects
        self._clock = clock
        self._records = records
        self._last: dict[str, tuple[str, str]] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._waiting: asyncio.Queue[KubernetesEvent] = asyncio.Queue(_MAX_WAITING)
        self._number = 0
        self.dropped = 0

    async def run(self) -> NoReturn:
        """Write Events until cancelled."""
        while True:
            event = await self._waiting.get()
            try:
                await self._objects.record(event)
            except StoreError as error:
                _log.warning("an Event is not written: %s", error)

    def report_state(
        self, job: VcJob, state: str, reason: str, *, is_overdue: bool = False
    ) -> None:
        """Report the state of a job where it is another one than before.

        Waiting is normal until it ``is_overdue``.
        """
        self._report_foreign_size(job)
        if _QUIET in reason or self._last.get(job.uid) == (state, reason):
            return
        before = self._last.get(job.uid)
        self._last[job.uid] = (state, reason)
        # While a job starts, the number of its pods without a node changes again and again.
        if before is not None and before[0] == state and state == VcjobState.STARTING.value:
            return
        _log.info("%s: %s: %s", job.key, state, reason)
        if state in REASONS:
            self._event(job, REASONS[state], reason, normal=state in _WAITING and not is_overdue)

    def _report_foreign_size(self, job: VcJob) -> None:
        """Report the program that set another size than ours."""
        persisted, size = kept_of(job), job.size
        if persisted is None or size is None:
            return
        now = (size.replicas, size.cards)
        is_foreign = now != (persisted.size.replicas, persisted.size.cards)
        if is_foreign and self._sizes.get(job.uid) != now:
            who = job.writer or "another program"
            chips = plural(size.cards, "chip")
            reason = f"{who} set {size.replicas} × {chips}, the original size from now on"
            _log.info("%s: %s", job.key, reason)
            self._event(job, "ElasticOriginalSize", reason, normal=True)
        self._sizes[job.uid] = now

    def report_write(self, job: VcJob, decision: RestartDecision) -> None:
        """Report a write."""
        if decision.write is DueWrite.START:
            self._event(job, "ElasticStart", decision.why, normal=True)
        if decision.write in _WARNINGS:
            self._event(job, _WARNINGS[decision.write], decision.why, normal=False)
            _log.warning("%s: %s", job.key, decision.why)
            return
        _log.info(
            "%s: wrote the %s of start %d: %s",
            job.key,
            decision.write,
            decision.start,
            decision.why,
        )

    def report_dry_run(self, job: VcJob, decision: RestartDecision) -> None:
        """Log a write that a dry run leaves out."""
        text = (f"dry run, {decision.write}", decision.why)
        if self._last.get(f"dry {job.uid}") != text:
            self._last[f"dry {job.uid}"] = text
            _log.info("%s: dry run, nothing is written: %s", job.key, decision.why)

    def _event(self, job: VcJob, reason: str, message: str, *, normal: bool) -> None:
        if not self._records:
            return
        now_ms = self._clock().wall_ms
        self._number += 1
        event = KubernetesEvent(
            namespace=job.namespace,
            # Kubernetes allows 253 characters, and a job may have a name as long.
            name=f"{job.name[:200]}.{now_ms:x}.{self._number:x}",
            involved=Involved("Job", job.name, job.namespace, "batch.volcano.sh/v1alpha1", job.uid),
            normal=normal,
            reason=reason,
            action="Elastic",
            message=message[:_MAX_LENGTH],
            first_ms=now_ms,
            last_ms=now_ms,
            component=COMPONENT,
        )
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            self.dropped += 1
