"""Faults for which Volcano does nothing, where they are to be handled here; off by default.

A job that runs over a network fault is ended, one at a time. Pods on dead nodes are deleted by
force. Sources: ``docs/spec/consumers.md#2.7``, 2.9 and ``consumers#E24``.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from contract.documents.elastic_job import read_ending
from contract.errors import StoreError, StoreNotFound
from contract.validation_texts import decode_text
from elastic.conditions import kept_of
from elastic.continuous_faults import ContinuousFaults
from elastic.decision import VcjobState
from elastic.network_faults import COMMANDED_MS, NetworkFaults
from elastic.patches import ending_patch
from stores.kubernetes_api.nodes import not_ready_since_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from elastic.aggregator_client import AggregatorReply
    from elastic.decision import RestartDecision
    from elastic.job import ElasticJob
    from elastic.job_cache import JobCache
    from elastic.network_faults import NetworkFault
    from service.clock import Clock
    from stores.kubernetes_api.vcjobs import VcJobs

SILENCE_GAP_MS = 30_000
"""Between two looks; a node that came back within it is silent again only later than that."""
_SETTLED = (VcjobState.RUNNING, VcjobState.FINISHED, VcjobState.CONDITIONS, VcjobState.NO_CAUSE)


class UnhandledFaults:
    """What is known of such faults, and what is written for them."""

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
        self._network = NetworkFaults()
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
        return self._network.are_any

    def network(self, job: ElasticJob) -> NetworkFault | None:
        """Return the network fault that a job runs over; ``None`` for none."""
        return self._network.under(job, self._waits_for)

    async def look(
        self,
        answer: AggregatorReply,
        jobs: Sequence[ElasticJob],
        decisions: Mapping[str, RestartDecision],
        known: JobCache,
    ) -> tuple[str, ...]:
        """Take in what the aggregator has answered; returns reasons to start nothing."""
        self._waits_for = self._ended_before(jobs, decisions)
        if answer is not self._seen[0]:
            self._look_at_networks(answer, jobs)
            self._seen = (answer, await self._look_at_nodes(answer, jobs, known))
        return self._seen[1]

    def _look_at_networks(self, answer: AggregatorReply, jobs: Sequence[ElasticJob]) -> None:
        """An answer that is not to be relied on is a gap: what stands counts from then on."""
        if not self.ends_on_network_faults:
            return
        here = {(job.namespace, job.name): job for job in jobs}
        over = {}
        for one in answer.ended.running if not answer.troubles else ():
            job = here.get((one.namespace, one.name))
            if job is not None and one.version >= job.number:
                over[job.uid] = one
        self._network.look(over, self._clock().steady_ms)

    async def _look_at_nodes(
        self, answer: AggregatorReply, jobs: Sequence[ElasticJob], known: JobCache
    ) -> tuple[str, ...]:
        self.dead_nodes = frozenset()
        if not self.deletes_on_dead_nodes or answer.silent is None:
            return ()
        now, grace_ms = self._clock(), known.grace_over_time_ms
        self._silent.look(answer.silent, now.steady_ms)
        dead, troubles = set(), []
        for node in sorted({pod.node for job in jobs for pod in known.pods(job)}):
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

    def _ended_before(
        self, jobs: Sequence[ElasticJob], decisions: Mapping[str, RestartDecision]
    ) -> str:
        """Return a job that was ended for a network fault and does not run yet: one at a time."""
        now_ms = self._clock().steady_ms
        self._commanded = {
            uid: at_ms for uid, at_ms in self._commanded.items() if now_ms - at_ms < COMMANDED_MS
        }
        for job in jobs:
            state, kept = decisions[job.uid].state, kept_of(job)
            is_started = kept is not None and job.started == kept.start
            if job.phase == "Running":
                if job.uid in self._commanded:
                    return job.key
            elif (state is VcjobState.STARTING and is_started) or (
                state not in _SETTLED and read_ending(job.annotations) is not None
            ):
                return job.key
        return ""

    async def end(self, job: ElasticJob, cause: str) -> str:
        """Have a job ended; returns its version after that, empty where it is the same.

        The annotation comes first: who goes on after a kill has to know why the job was ended.
        """
        version = ""
        if read_ending(job.annotations) is None:
            changes = ending_patch(job, cause, self._clock().wall_ms)
            version = await self._api.patch(job.namespace, job.name, changes)
        await self._api.terminate(job.namespace, job.name, job.uid)
        self._commanded[job.uid] = self._clock().steady_ms
        self.ends += 1
        return version

    async def delete_pods(self, decision: RestartDecision) -> None:
        """Delete pods by force; one that is gone, or another one of its name, is left alone."""
        for pod in decision.pods:
            with contextlib.suppress(StoreNotFound):
                await self._api.delete_pod(pod.namespace, pod.name, pod.uid)
                self.deleted_pods += 1
