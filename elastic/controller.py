"""Follows vcjobs, decides about each, and makes one write at a time.

A round reads the cache and decides about every job without I/O. If a decision needs a size or a
cause, the round asks the aggregator once for all jobs, and decides again with the answer. Then it
makes the first write that is due and ends: the next round sees what that write has changed.

Invariant: a write is made only if ``decide(live job, live pods) == decision``, read just before the
write, and this process leads; the patch fits one version of the job. What ends a job is written on
it as soon as it is seen (``_keep_causes``), so the next process knows it, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import msgspec

from advisor.checks.ended_vcjobs import PODS_LEFT, FaultUnder
from advisor.workloads.elastic_conditions import kept_of, original_of, run_of
from contract.documents.elastic_job import FINISHED
from contract.errors import StoreConflict, StoreError, StoreNotFound, StoreRefused
from contract.scheduling import go_integer
from contract.validation_texts import decode_text
from elastic.aggregator_client import AggregatorReply
from elastic.decision import (
    REFUSED,
    DueWrite,
    JobContext,
    RestartDecision,
    VcjobState,
    decide,
    due_cause,
    recent_starts,
)
from elastic.end_cause import cause_on
from elastic.job import read_job, read_pod
from elastic.job_cache import KINDS, JobCache
from elastic.patches import cause_patch, size_patch, start_patch
from elastic.unhandled_faults import UnhandledFaults
from stores.interruption import followed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.checks.ended_vcjobs import EndedJob
    from advisor.snapshot import VcJob
    from contract.documents.elastic_job import Cause
    from elastic.aggregator_client import Aggregators
    from elastic.job_events import JobEvents
    from service.clock import Clock, Instant
    from service.election.leadership import Leadership
    from stores.cluster import Cluster
    from stores.kubernetes_api.vcjobs import VcJobs

_log = logging.getLogger(__name__)

_Run: TypeAlias = tuple[str, int, int]
"""A run of a job: its uid, and which one (``run_of``)."""

_RETRY_SECONDS = 1.0
"""Between two rounds in which something waits."""
_IDLE_SECONDS = 5.0
_SETTLE_SECONDS = 0.02
"""Changes within it are judged together."""
_BEHIND_SECONDS = 0.1
"""Until watches show what a read has shown."""
_BEHIND_ROUNDS = 20
"""Rounds in a row with the short pause; after that the usual one applies."""
_AFTER_A_REFUSAL_MS = 30_000
_JUDGED_FOR_MS = 120_000
"""For so long after its end a job without a cause is asked about: faults come late."""
_REJUDGE_MS = 60_000
"""Between two questions about a job later, while its cause is not known."""
_POLL_MS = 5000
"""Between two looks at faults under jobs that run."""
_OVER_MS = 60_000
"""For so long no fault is under a job before the earlier one stops counting as a cause."""
_AFTER_A_FAILURE_MS = 1000
_UNCAUSED = (VcjobState.NO_CAUSE, VcjobState.CAUSE_NOT_KNOWN)
_LIVE = (VcjobState.RUNNING, VcjobState.STARTING, VcjobState.ENDING)
_GROUP_MS = 30_000
"""By then the controller has made the PodGroup of a job that was started."""
_WATCH_RETRY_SECONDS = 30.0
_MIN_POLL_MS = 1000
"""Between two looks at jobs that run: each change in the cluster begins a round."""


class ElasticJobStatus(msgspec.Struct, frozen=True):
    """The state of one job as it is shown."""

    namespace: str
    name: str
    state: str
    why: str
    original: str = ""
    size: str = ""
    cause: str = ""
    cause_source: str = ""
    cause_kept_ms: int = 0


class ElasticController:
    """Decides about elastic vcjobs and writes them; without ``acts`` it only logs the writes."""

    def __init__(
        self,
        api: VcJobs,
        aggregators: Aggregators,
        leadership: Leadership,
        events: JobEvents,
        clock: Clock,
        *,
        acts: bool,
        ends_on_network_faults: bool = False,
        deletes_on_dead_nodes: bool = False,
    ) -> None:
        self.acts = acts
        self.faults = UnhandledFaults(
            api,
            clock,
            ends_on_network_faults=ends_on_network_faults,
            deletes_on_dead_nodes=deletes_on_dead_nodes,
        )
        self.starts = 0
        self.refusals: Counter[str] = Counter()
        self.cache = JobCache()
        self.jobs: tuple[ElasticJobStatus, ...] = ()
        self.blocked_reasons: tuple[str, ...] = ()
        self._api = api
        self._aggregators = aggregators
        self._leadership = leadership
        self._events = events
        self._clock = clock
        self._changed = asyncio.Event()
        self._own_starts_ms: tuple[int, ...] = ()
        self._starts_ms: tuple[int, ...] = ()
        """Of all jobs, within the last hour."""
        self._written = ("", 0)
        """The job of our last write and its version, which the aggregator has to know."""
        self._refused: dict[str, tuple[str, str, int]] = {}
        """By uid: the version of a job that a write was refused for, why, and until when."""
        self._faults: dict[_Run, tuple[FaultUnder, ...]] = {}
        """Found under jobs since they began to end, by run; the time is that of the first answer
        where the documents have none."""
        self._judged: dict[str, tuple[int, int, str]] = {}
        """By uid: the end (wall) that was asked about, when (steady), and why there
        may be a fault that is not known."""
        self._hits: dict[_Run, tuple[FaultUnder, ...]] = {}
        """Faults under jobs that run, by run, in the newest answer."""
        self._are_over: set[str] = set()
        """Jobs that run and under which there was no fault for long, by uid."""
        self._hit_ms: dict[str, int] = {}
        """When a fault was under a job that runs, by uid (steady)."""
        self._noted: dict[str, tuple[str, int]] = {}
        """By uid: the version of a job whose cause was written, and until when it is not again."""
        self._answer: AggregatorReply | None = None
        """The newest one."""
        self._behind = 0
        """In so many rounds in a row the aggregator had not seen what is seen here."""

    async def run(self) -> NoReturn:
        """Follow and act until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name in KINDS:
                tasks.create_task(
                    self._follow(name, self._api.cluster), name=f"read {KINDS[name].name}"
                )
            while True:
                await self._wait(await self.round())
        raise AssertionError("the tasks never end")

    def begin_round(self) -> None:
        """Begin the next round at once."""
        self._changed.set()

    async def _follow(self, name: str, cluster: Cluster) -> None:
        watch = partial(cluster.objects, KINDS[name])
        async for event in followed(watch, _WATCH_RETRY_SECONDS):
            self.cache.update(name, event)
            self._changed.set()

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
                await asyncio.sleep(_SETTLE_SECONDS)

    async def round(self) -> float:
        """Decide about all jobs and make at most one write; seconds until the next round."""
        # Cleared first: what changes while the round waits for answers begins the next one.
        self._changed.clear()
        jobs = self.cache.jobs()
        now_ms = self._clock().wall_ms
        starts = {at_ms for job in jobs for at_ms in recent_starts(job, now_ms)}
        self._starts_ms = tuple(sorted(starts.union(self._own_starts_ms)))
        blocked = self._blocked_reasons(jobs)
        # The scheduler takes its record back before an aggregator that is slow has answered.
        if await self._keep_causes(jobs):
            return _BEHIND_SECONDS
        decisions = {job.uid: decide(job, self._facts(job, blocked)) for job in jobs}
        asking = [job for job in jobs if decisions[job.uid].asks]
        advised: dict[str, EndedJob] = {}
        answer = await self._ask(asking, jobs, decisions)
        if answer is not None:
            blocked = (*blocked, *answer.troubles, *self._unseen(answer, jobs))
            advised = self._take(answer, asking)
            if self.faults.is_on and self._leadership.leads:
                unreadable_nodes = await self.faults.update(answer, jobs, self.cache)
                blocked = (*blocked, *unreadable_nodes)
            # The answer may have the first fault that is found under a job that ends.
            if await self._keep_causes(jobs):
                return _BEHIND_SECONDS
            for job in jobs if self.faults.is_on else asking:
                facts = self._facts(job, blocked, advised.get(job.uid))
                before, decisions[job.uid] = decisions[job.uid], decide(job, facts)
                if before.state in _UNCAUSED and decisions[job.uid].cause:
                    self.begin_round()  # Its size is asked for next.
        else:
            self._behind = 0
        # Followers have pages and metrics as well, so they show states too.
        self._show(jobs, decisions, blocked)
        if not self._leadership.leads:
            return _IDLE_SECONDS
        # One write a round: it takes room that the sizes of the other jobs were computed with.
        for job in jobs:
            if decisions[job.uid].write is not None and not self._is_refused(job):
                advice = advised.get(job.uid)
                return await self._write(job, decisions[job.uid], blocked, advice)
        if 0 < self._behind <= _BEHIND_ROUNDS:
            return _BEHIND_SECONDS
        states = {decision.state for decision in decisions.values()}
        is_waiting = VcjobState.WAITING_FOR_ROOM in states or self.faults.are_any
        return _RETRY_SECONDS if is_waiting else _IDLE_SECONDS

    def _take(self, answer: AggregatorReply, asking: Sequence[VcJob]) -> dict[str, EndedJob]:
        """Return by uid what an answer has about jobs as they are here, and note their faults."""
        by_name = {(other.namespace, other.name): other for other in answer.ended.jobs}
        matched = [(job, by_name.get((job.namespace, job.name))) for job in asking]
        answered = [(job, ended_job) for job, ended_job in matched if ended_job is not None]
        is_behind = any(_is_behind(job, ended_job) for job, ended_job in answered)
        self._behind = self._behind + 1 if is_behind else 0
        advised = {
            job.uid: ended_job for job, ended_job in answered if ended_job.version >= job.number
        }
        for job in asking:
            if job.uid in advised:
                self._note_faults(job, advised[job.uid], answer.requested_ms)
        return advised

    async def _keep_causes(self, jobs: Sequence[VcJob]) -> bool:
        """Write on jobs what ends them, as far as that is seen; whether any was written.

        A write that fails keeps no job from its start: that carries the cause, too.
        """
        is_any = False
        for job in jobs if self.acts and self._leadership.leads else ():
            due, steady_ms = due_cause(job, self._facts(job, ())), self._clock().steady_ms
            version, until_ms = self._noted.get(job.uid, ("", 0))
            if due is None or (version == job.version and steady_ms < until_ms):
                continue
            # Noted before the write: one that arrives without an answer is not repeated at once.
            self._noted[job.uid] = job.version, steady_ms + _AFTER_A_REFUSAL_MS
            try:
                await self._api.patch(job.namespace, job.name, cause_patch(job, due.cause))
            except (StoreConflict, StoreNotFound):
                self.refusals["conflict"] += 1  # The watch shows what it is now.
            except StoreRefused as error:
                self.refusals["refused"] += 1
                _log.warning("%s: the cause is not kept: %s", job.key, decode_text(error))
            except StoreError as error:
                self.refusals["unavailable"] += 1
                # The other jobs are on the same server: they wait for the next round as well.
                self._noted[job.uid] = job.version, steady_ms + _AFTER_A_FAILURE_MS
                _log.warning("%s: the cause is not kept yet: %s", job.key, decode_text(error))
                return False
            else:
                is_any = True
                _log.info("%s: %s", job.key, _shown_cause(due.cause))
        return is_any

    def _blocked_reasons(self, jobs: Sequence[VcJob]) -> tuple[str, ...]:
        """Return why nothing is started at all, but for what the aggregator answers."""
        blocked = list(self.cache.unread)
        if rival := self.cache.rival:
            blocked.append(f"a Resilience-Controller runs: {rival}; it would start jobs, too")
        now_ms = self._clock().wall_ms
        for job in jobs:
            persisted = kept_of(job)
            is_over = job.is_deleted or job.phase in FINISHED
            # Only a start that the status of the job shows is followed by a PodGroup.
            if persisted is None or is_over or job.started != persisted.start:
                continue
            has_any = self.cache.has_group(job) or self.cache.pods(job)
            if not has_any and now_ms - persisted.at_ms > _GROUP_MS:
                seconds = _GROUP_MS // 1000
                blocked.append(
                    f"{job.key} was started and has no PodGroup after {seconds} s: Volcano's job "
                    "controller may be away"
                )
        return tuple(blocked)

    def _facts(
        self, job: VcJob, blocked: tuple[str, ...], ended_job: EndedJob | None = None
    ) -> JobContext:
        judged = self._judged.get(job.uid)
        # What was judged about an earlier end of the job does not hold for this one.
        is_judged = job.is_ended and judged is not None and judged[0] == job.ended_at_ms
        return JobContext(
            self._clock().wall_ms,
            self.cache.pods(job),
            self.cache.evictions(job),
            self._faults_under(job),
            blocked,
            self._starts_ms,
            None if ended_job is None else ended_job.advice,
            self.cache.grace_over_time_ms,
            self.faults.network(job),
            self.faults.dead_nodes,
            self.cache.closed_queue(job),
            judged[2] if judged is not None and is_judged else None,
            job.uid in self._are_over,
        )

    def _faults_under(self, job: VcJob) -> tuple[FaultUnder, ...]:
        """Return the faults that were found under a job since it began to end, or are now."""
        if job.is_ended:
            return self._faults.get(_key(job), ())
        # A node that is dead now shows nothing about an end before.
        dead = {pod.node for pod in self.cache.pods(job)} & self.faults.dead_nodes
        faults = (self._faults if job.is_ending else self._hits).get(_key(job), ())
        return (*faults, *(FaultUnder("HEARTBEAT", node) for node in sorted(dead)))

    def _note_faults(self, job: VcJob, ended_job: EndedJob, requested_ms: int) -> None:
        """Note the faults that were found under a job that ends, and whether these are all.

        They are kept: its pods go one after the other, and the answer with the size comes last.
        """
        now_ms = self._clock().wall_ms
        if job.is_ended and ended_job.not_known is not None:
            self._judged[job.uid] = job.ended_at_ms, requested_ms, ended_job.not_known
        faults = {(fault.kind, fault.node): fault for fault in self._faults.get(_key(job), ())}
        for fault in ended_job.faults:
            if (fault.kind, fault.node) not in faults:
                since_ms = fault.since_ms or now_ms
                faults[fault.kind, fault.node] = msgspec.structs.replace(fault, since_ms=since_ms)
        if faults:
            self._faults[_key(job)] = tuple(faults.values())

    def _note_hits(self, answer: AggregatorReply, jobs: Sequence[VcJob]) -> None:
        """Note the faults under jobs that run, and under which there was none for long."""
        by_name = {
            (ended_job.namespace, ended_job.name): ended_job for ended_job in answer.ended.hit
        }
        now_ms = self._clock().steady_ms
        self._hits, self._are_over = {}, set()
        for job in jobs:
            ended_job = by_name.get((job.namespace, job.name))
            if ended_job is not None and ended_job.version >= job.number:
                self._hits[_key(job)] = ended_job.faults
                self._hit_ms[job.uid] = now_ms
            # A process that has just started has seen no fault, which proves nothing yet.
            elif now_ms - self._hit_ms.setdefault(job.uid, now_ms) > _OVER_MS:
                self._are_over.add(job.uid)

    async def _ask(
        self,
        asking: Sequence[VcJob],
        jobs: Sequence[VcJob],
        decisions: Mapping[str, RestartDecision],
    ) -> AggregatorReply | None:
        """Return an answer of the aggregator; ``None`` where nothing is to be asked."""
        now, leads = self._clock(), self._leadership.leads
        # A job that was refused would take room that it does not use.
        sized = [
            job
            for job in asking
            if decisions[job.uid].state is VcjobState.WAITING_FOR_ROOM
            and leads
            and not self._is_refused(job)
        ]
        judged = [
            job
            for job in asking
            if decisions[job.uid].state in (*_UNCAUSED, VcjobState.ENDING)
            and self._is_to_be_judged(job, now)
        ]
        # A question has place for a limited number: jobs that were never judged come first.
        judged.sort(key=lambda job: job.uid in self._judged)
        handles = self.faults.is_on and leads
        live = [job for job in jobs if decisions[job.uid].state in _LIVE]
        is_only_look = not sized and not judged
        if is_only_look and not handles and not live:
            return None if not asking else AggregatorReply()
        newest = self._answer
        if is_only_look and newest is not None:
            pods = (pod for job in live for pod in self.cache.pods(job))
            is_urgent = handles or any(pod.deleted_at_ms for pod in pods)
            # Any change of an object begins a round; without this each would ask once.
            age_ms = now.steady_ms - newest.requested_ms
            if age_ms < (_MIN_POLL_MS if is_urgent else _POLL_MS):
                return newest
        # Who has no cause may have one by the answer, and then asks for its size.
        answer = await self._aggregators.request(
            sized,
            judged,
            running=handles and self.faults.ends_on_network_faults,
            hit=bool(live),
        )
        self._answer = answer = msgspec.structs.replace(answer, requested_ms=now.steady_ms)
        # An incomplete answer without a fault does not prove that a job runs without one.
        if live and not answer.troubles:
            self._note_hits(answer, jobs)
        return answer

    def _is_to_be_judged(self, job: VcJob, now: Instant) -> bool:
        """Whether the aggregator is asked about the end of a job: until it knows, and at first."""
        before = self._judged.get(job.uid)
        if before is None:
            return True
        end_ms, at_ms, not_known = before
        # Faults of the end may be published after it, so it is asked about for a while.
        if end_ms != job.ended_at_ms or now.wall_ms - job.phase_since_ms < _JUDGED_FOR_MS:
            return True
        return bool(not_known) and now.steady_ms - at_ms >= _REJUDGE_MS

    def _unseen(self, answer: AggregatorReply, jobs: Sequence[VcJob]) -> tuple[str, ...]:
        """Return that the aggregator has not seen our last write yet, by its answer."""
        uid, version = self._written
        is_there = any(job.uid == uid for job in jobs)
        has_answered = answer.silent is not None and not answer.troubles
        if not has_answered or not is_there or answer.ended.version >= version:
            return ()
        return ("the aggregator has not seen the last write yet",)

    def _is_refused(self, job: VcJob) -> bool:
        refused = self._refused.get(job.uid)
        if refused is None:
            return False
        # Another version may be valid where this one was not.
        version, _, until_ms = refused
        return version == job.version and self._clock().steady_ms < until_ms

    async def _write(
        self,
        job: VcJob,
        decision: RestartDecision,
        blocked: tuple[str, ...],
        advised: EndedJob | None,
    ) -> float:
        """Make the write that is due; seconds until the next round."""
        if not self.acts:
            self._events.report_dry_run(job, decision)
            return _IDLE_SECONDS
        now_ms = self._clock().wall_ms
        before = kept_of(job)
        try:
            # Watches may be behind, and not all by the same time.
            live = read_job(await self._api.read(job.namespace, job.name))
            pods = [read_pod(raw) for raw in await self._api.pods(job.namespace, job.name)]
            mine = tuple(pod for pod in pods if pod.job == job.uid)
            facts = msgspec.structs.replace(self._facts(job, blocked, advised), pods=mine)
            if live != job or decide(live, facts) != decision or not self._leadership.leads:
                return _BEHIND_SECONDS
            version = await self._make(job, decision, now_ms)
        except StoreConflict:
            self.refusals["conflict"] += 1
            return _RETRY_SECONDS  # The watch shows what it is now.
        except StoreNotFound as error:
            # It was deleted, which the watch shows; for a Command the kind may be missing.
            return (
                self._was_refused(job, error) if decision.write is DueWrite.END else _RETRY_SECONDS
            )
        except StoreRefused as error:
            return self._was_refused(job, error)
        except (StoreError, ValueError) as error:
            self.refusals["unavailable"] += 1
            _log.warning("%s: %s", job.key, decode_text(error))
            return _RETRY_SECONDS
        self._refused.pop(job.uid, None)
        if version:
            self._written = (job.uid, go_integer(version) or 0)
        # Watches show our start later; until then it must count for the limit of an hour.
        if decision.start > (0 if before is None else before.start):
            self._own_starts_ms = (*self._own_starts_ms[-99:], now_ms)
        if decision.write is DueWrite.START:
            self.starts += 1
        self._events.report_write(job, decision)
        return _RETRY_SECONDS

    async def _make(self, job: VcJob, decision: RestartDecision, now_ms: int) -> str:
        """Make a write; returns the version of the job after it, empty where it has none."""
        namespace, name = job.namespace, job.name
        if decision.write is DueWrite.START:
            patch = start_patch(job, decision.start, decision.why)
            return await self._api.patch_status(namespace, name, patch)
        if decision.write is DueWrite.END:
            fault = self.faults.network(job)
            assert fault is not None
            return await self.faults.end(job, fault)
        if decision.write is DueWrite.PODS:
            await self.faults.delete_pods(decision)
            return ""
        return await self._api.patch(namespace, name, size_patch(job, decision, now_ms))

    def _was_refused(self, job: VcJob, error: StoreError) -> float:
        self.refusals["refused"] += 1
        until_ms = self._clock().steady_ms + _AFTER_A_REFUSAL_MS
        self._refused[job.uid] = (job.version, str(error), until_ms)
        return _RETRY_SECONDS

    def _show(
        self,
        jobs: Sequence[VcJob],
        decisions: Mapping[str, RestartDecision],
        blocked: tuple[str, ...],
    ) -> None:
        self.blocked_reasons = blocked
        shown = []
        for job in jobs:
            decision = decisions[job.uid]
            state, reason = decision.state.value, decision.why
            is_due = decision.write is not None or decision.asks
            if is_due and self._is_refused(job):
                state, reason = REFUSED, self._refused[job.uid][1]
            original, size, cause = original_of(job), job.size, cause_on(job)
            shown.append(
                ElasticJobStatus(
                    job.namespace,
                    job.name,
                    state,
                    reason,
                    "" if original is None else f"{original.replicas} × {original.cards}",
                    "" if size is None else f"{size.replicas} × {size.cards}",
                    "" if cause is None else cause.text,
                    "" if cause is None else cause.source.value,
                    0 if cause is None else cause.kept_ms,
                )
            )
            if self._leadership.leads:
                self._events.report_state(job, state, reason, is_overdue=decision.is_overdue)
        self.jobs = tuple(shown)
        # What is noted of jobs that are deleted would grow without end.
        here = {job.uid for job in jobs}
        by_uid: tuple[dict[str, Any], ...] = self._refused, self._judged, self._noted, self._hit_ms
        for item in by_uid:
            for uid in item.keys() - here:
                del item[uid]
        ending = {_key(job) for job in jobs if job.is_ended or job.is_ending}
        for run in self._faults.keys() - ending:
            del self._faults[run]

    def status(self) -> dict[str, Any]:
        """Return what is shown of it."""
        return {
            "acts": self.acts,
            "network_faults": self.faults.ends_on_network_faults,
            "dead_nodes": self.faults.deletes_on_dead_nodes,
            "leads": self._leadership.leads,
            "standing_still": self.blocked_reasons,
            "jobs": self.jobs,
        }


def _key(job: VcJob) -> _Run:
    return (job.uid, *run_of(job))


def _shown_cause(cause: Cause | None) -> str:
    if cause is None:
        return "it runs on, so the cause that was kept on it is taken away"
    if not cause.kind:
        return "it is kept that no fault ended it"
    return f"the cause is kept: {cause.text} ({cause.source})"


def _is_behind(job: VcJob, ended_job: EndedJob) -> bool:
    """Whether the aggregator has not seen the end of a job that has ended, or of its pods."""
    if ended_job.version < job.number:
        return True
    return ended_job.advice is not None and ended_job.advice.reason == PODS_LEFT
