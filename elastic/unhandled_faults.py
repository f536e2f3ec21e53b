"""Faults for which Volcano does nothing, where they are to be handled here; off by default.

A job that runs over a network fault is ended, one at a time. Pods on dead nodes are deleted by
force. Sources: ``docs/spec/consumers.md#2.7``, 2.9 and ``consumers#E24``.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from advisor.checks.ended_vcjobs import FaultUnder
from contract.errors import StoreConflict, StoreError, StoreNotFound, StoreRefused
from contract.validation_texts import decode_text
from elastic.end_cause import command_cause
from elastic.job import read_job
from elastic.network_faults import (
    COMMANDED_MS,
    GAP_MS,
    ContinuousFaults,
    command_on,
    is_under_way,
    network_fault,
)
from elastic.patches import cause_patch
from stores.kubernetes_api.nodes import not_ready_since_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.checks.ended_vcjobs import EndedJob
    from advisor.snapshot import VcJob
    from elastic.aggregator_client import AggregatorReply
    from elastic.decision import RestartDecision
    from elastic.job_cache import JobCache
    from elastic.network_faults import NetworkFault
    from service.clock import Clock
    from stores.kubernetes_api.vcjobs import VcJobs

SILENCE_GAP_MS = 30_000
"""Between two looks; a node that came back within it is silent again only later than that."""


class UnhandledFaults:
    """Tracks such faults and writes what they require."""

    def __init__(
        self,
        api: VcJobs,
        clock: Clock,
        *,
        ends_on_network_faults: bool,
        deletes_on_dead_nodes: bool,
    ) -> None:
        self.ends_on_network_faults = ends_on_network_faults
        self.deletes_on_dead_nodes = deletes_on_dead_nodes
        self.ends = 0
        self.deleted_pods = 0
        self.dead_nodes: frozenset[str] = frozenset()
        self._api = api
        self._clock = clock
        self._over: dict[str, EndedJob] = {}
        """Jobs that run over a network fault, by uid."""
        self._standing = ContinuousFaults[tuple[str, FaultUnder]](GAP_MS)
        self._silent = ContinuousFaults[str](SILENCE_GAP_MS)
        self._waits_for = ""
        self._commanded: dict[str, int] = {}
        """When a Command to end a job was written, by uid (steady)."""
        self._seen: tuple[AggregatorReply | None, tuple[str, ...]] = (None, ())

    @property
    def is_on(self) -> bool:
        """Whether anything is handled here."""
        return self.ends_on_network_faults or self.deletes_on_dead_nodes

    @property
    def are_any(self) -> bool:
        """Whether a job runs over a network fault."""
        return bool(self._over)

    def network(self, job: VcJob) -> NetworkFault | None:
        """Return the network fault that a job runs over; ``None`` for none."""
        ended_job = self._over.get(job.uid)
        if ended_job is None:
            return None
        return network_fault(job.uid, ended_job, self._standing, self._waits_for)

    async def update(
        self,
        answer: AggregatorReply,
        jobs: Sequence[VcJob],
        cache: JobCache,
    ) -> tuple[str, ...]:
        """Update from the answer of the aggregator; return reasons to start nothing."""
        # A round that only looks gets the answer before once more, which is not a new observation.
        if answer is not self._seen[0]:
            self._update_networks(answer, jobs)
            self._seen = (answer, await self._update_nodes(answer, jobs, cache))
        try:
            self._waits_for = await self._ended_before(jobs)
        except StoreError as error:
            return (*self._seen[1], f"Commands: {error}")
        return self._seen[1]

    def _update_networks(self, answer: AggregatorReply, jobs: Sequence[VcJob]) -> None:
        """Observe network faults under jobs.

        An unreliable answer is a gap: present faults count from then on.
        """
        if not self.ends_on_network_faults:
            return
        here = {(job.namespace, job.name): job for job in jobs}
        self._over = {}
        for ended_job in answer.ended.running if not answer.troubles else ():
            job = here.get((ended_job.namespace, ended_job.name))
            # The aggregator may still show the run before.
            if job is not None and ended_job.version >= job.number:
                self._over[job.uid] = ended_job
        standing = ((uid, fault) for uid, job in self._over.items() for fault in job.faults)
        self._standing.update(standing, answer.requested_ms, self._clock().steady_ms)

    async def _update_nodes(
        self, answer: AggregatorReply, jobs: Sequence[VcJob], cache: JobCache
    ) -> tuple[str, ...]:
        self.dead_nodes = frozenset()
        if not self.deletes_on_dead_nodes or answer.silent is None:
            return ()
        now, grace_ms = self._clock(), cache.grace_over_time_ms
        self._silent.update(answer.silent, answer.requested_ms, now.steady_ms)
        dead, troubles = set(), []
        for node in sorted({pod.node for job in jobs for pod in cache.pods(job)}):
            # Two signs are required (decision 37); the second is read only where the first holds.
            if self._silent.stood_ms(node) <= grace_ms:
                continue
            try:
                since_ms = not_ready_since_ms(await self._api.node(node))
            except StoreNotFound:
                continue  # Kubernetes deletes its pods itself.
            except (StoreError, msgspec.DecodeError) as error:
                troubles.append(f"Node {node}: {decode_text(error)}")
                continue
            if since_ms and now.wall_ms - since_ms > grace_ms:
                dead.add(node)
        self.dead_nodes = frozenset(dead)
        return tuple(troubles)

    async def _ended_before(self, jobs: Sequence[VcJob]) -> str:
        """Return a job that was ended for a network fault and does not run yet: one at a time."""
        now_ms = self._clock().steady_ms
        self._commanded = {
            uid: at_ms for uid, at_ms in self._commanded.items() if now_ms - at_ms < COMMANDED_MS
        }
        for job in jobs if self._over else ():
            if is_under_way(job) or job.uid in self._commanded or await self._is_commanded(job):
                return job.key
        return ""

    async def _is_commanded(self, job: VcJob) -> bool:
        """Whether a Command to end a job waits, for as long as the controller is away."""
        if job.phase != "Running" or command_on(job) is None:
            return False
        return await self._api.is_commanded(job.namespace, job.name, job.uid)

    async def _check_alone(self, job: VcJob) -> None:
        """Raise ``StoreConflict`` while another job is ended, by the API server's own list.

        Watches are behind, and another process may act at the same time.
        """
        now_ms = self._clock().wall_ms
        for raw in await self._api.jobs():
            other = read_job(raw)
            if other.uid == job.uid:
                continue
            cause = command_on(other) if other.phase == "Running" else None
            is_new = cause is not None and now_ms - cause.kept_ms < COMMANDED_MS
            if is_new or is_under_way(other) or await self._is_commanded(other):
                raise StoreConflict(f"{other.key} is ended for a network fault, too")

    async def end(self, job: VcJob, fault: NetworkFault) -> str:
        """End a job by a Command; return its new version, empty where it is the same.

        The annotation comes first, so that the next process knows the cause after a kill.
        """
        await self._check_alone(job)
        version, now_ms, before = "", self._clock().wall_ms, command_on(job)
        if before is None or now_ms - before.kept_ms >= COMMANDED_MS:
            changes = cause_patch(job, command_cause(job, fault.fault, now_ms))
            version = await self._api.patch(job.namespace, job.name, changes)
            # Of two processes that annotate two jobs now, at least one sees both annotations.
            await self._check_alone(job)
        # A Command may arrive without an answer.
        self._commanded[job.uid] = self._clock().steady_ms
        try:
            await self._api.terminate(job.namespace, job.name, job.uid)
        except StoreRefused:
            # Only a refusal proves that no Command is there.
            del self._commanded[job.uid]
            raise
        self.ends += 1
        return version

    async def delete_pods(self, decision: RestartDecision) -> None:
        """Delete pods by force; one that is gone, or another one of its name, is left alone."""
        for pod in decision.pods:
            with contextlib.suppress(StoreNotFound):
                await self._api.delete_pod(pod.namespace, pod.name, pod.uid)
                self.deleted_pods += 1
