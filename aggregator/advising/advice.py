"""Follows the objects that the scheduler reads, and computes advice when they have changed."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from advisor.checks.ended_vcjobs import EndedJobs
from aggregator.advising.answers import NewestReports
from aggregator.advising.cluster_objects import KINDS, AdvisedObjects, rules_in
from aggregator.advising.job_pods import JobPods, judge
from aggregator.advising.kept_state import KeptState
from aggregator.advising.sessions import Sessions
from aggregator.advising.status import AdviceStatus, changes_of
from aggregator.advising.what_if import WhatIf
from contract.errors import StoreError
from pacing.waiting import wait_for_event
from stores.interruption import followed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from advisor.checks.ended_vcjobs import EndedJob
    from advisor.options import Profile
    from advisor.scheduler_view.state import SchedulerState
    from advisor.snapshot import ClusterSnapshot, VcJob
    from aggregator.advising.job_pods import PublishedPast
    from aggregator.advising.outcomes import Watched
    from aggregator.advising.status import AdviceChange
    from service.clock import Clock
    from stores.cluster import Cluster, KindUnavailable, ObjectKind, Update
    from stores.cluster import Snapshot as Listed
    from stores.interruption import Interrupted

_log = logging.getLogger(__name__)

_IDLE_SHARE = 4
"""Pause after a computation, in times of what that took: at most a fifth of one core."""

_CATCH_UP_MS = 2000
_POLL_SECONDS = 0.01
"""A watch is behind by milliseconds, unless it is broken."""

_RETRY_SECONDS = 5.0
"""Seconds: the same objects raise the same problem."""


class AdviceService:
    """The advisor of one cluster. Nothing waits for it.

    The aggregator watches ``shared_kinds`` of ``cluster`` for itself, too, and calls
    ``observe_objects`` with what they are here. All other kinds are followed here.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        send: Callable[[Iterable[AdviceChange]], None],
        keep: Callable[[], None] = lambda: None,
        past: PublishedPast | None = None,
    ) -> None:
        """Make it; ``send`` receives the decisions that changed, ``keep`` is called when state has
        to be stored, ``past`` is what was published before; without it no end is judged by that.
        """
        self._send = send
        self.cluster = cluster
        self.shared_kinds = {name: KINDS[name] for name in ("nodes", "pods", "podgroups")}
        self._clock = clock
        self._objects = AdvisedObjects()
        self._jobs_changed = asyncio.Event()
        """Set when AscendJobs may name scaling rules of other namespaces."""
        self._sessions = Sessions()
        self.kept = KeptState(self._restore, keep)
        self._is_restored = asyncio.Event()
        self.answers = NewestReports(self._objects, self.status)
        self.what_if = WhatIf(self._objects, lambda: self._sessions.states, lambda: clock().wall_ms)
        self._past = past
        self._pods = JobPods()
        self._are_pods_restored = past is None
        self._changed = asyncio.Event()
        self._advised_at_ms = 0
        self._seconds = 0.0
        self._problem = ""

    async def run(self) -> NoReturn:
        """Follow and advise until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name, kind in KINDS.items():
                if name not in self.shared_kinds:
                    tasks.create_task(self._follow(name, kind), name=f"read {kind.name} for advice")
            tasks.create_task(self._follow_rules(), name="read scaling rules for advice")
            tasks.create_task(self._advise(), name="advise")
            if self._past is not None:
                tasks.create_task(self._restore_pods(self._past), name="read pods of jobs")
        raise AssertionError("the tasks never end")

    def status(self) -> AdviceStatus:
        """Return what is advised now."""
        return AdviceStatus(
            self._clock().wall_ms,
            self._advised_at_ms,
            self._sessions.count,
            self._seconds,
            {**self._objects.unknown, **({"advice": self._problem} if self._problem else {})},
            self._sessions.outcomes,
            self._sessions.missed,
            self._sessions.reports,
        )

    async def ended(
        self,
        sized: Collection[tuple[str, str]],
        judged: Collection[tuple[str, str]],
        *,
        running: bool = False,
        hit: bool = False,
    ) -> EndedJobs:
        """Return what is known of ended vcjobs; see ``ended_jobs``.

        The scheduler evicts by a document that is stored, and watches come later than that: it is
        computed once nothing older than what is stored now is followed.
        """
        if not self._objects.is_answered:
            return EndedJobs(not_known=("not everything was listed yet",))
        if trouble := await self._caught_up():
            return EndedJobs(not_known=(trouble,))
        snapshot = self._objects.snapshot(self._clock().wall_ms)
        ended = await asyncio.to_thread(
            self._sessions.ended, snapshot, sized, judged, running=running, hit=hit
        )
        if self._past is None:
            return ended
        jobs = {(job.namespace, job.name): job for job in snapshot.vcjobs}
        ends = [await self._with_past(job, jobs, self._past) for job in ended.jobs]
        return msgspec.structs.replace(ended, jobs=tuple(ends))

    async def _with_past(
        self, ended: EndedJob, jobs: Mapping[tuple[str, str], VcJob], past: PublishedPast
    ) -> EndedJob:
        """Return a job that was judged with the faults under its pods when it ended."""
        job = jobs[ended.namespace, ended.name]
        if ended.not_known is None or not job.is_ended:
            return ended
        try:
            faults, not_known = await judge(job, self._pods.runs.get(job.uid), past)
        except StoreError as error:
            return msgspec.structs.replace(ended, not_known=str(error))
        if not self._are_pods_restored:
            not_known = not_known or "the stored pods of jobs were not read yet"
        return msgspec.structs.replace(ended, faults=(*ended.faults, *faults), not_known=not_known)

    async def _restore_pods(self, past: PublishedPast) -> None:
        """Restore the pods of jobs; what cannot be read is tried again."""
        while not self._are_pods_restored:
            try:
                self._pods.restore_runs(await past.history.runs())
            except StoreError as error:
                _log.warning("the pods of ended jobs are not known: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._are_pods_restored = True
                self._keep_pods()

    def _keep_pods(self) -> None:
        """Have the runs of jobs that have changed stored."""
        if self._past is not None and self._are_pods_restored and self._pods.changed:
            self._past.history.keep_runs(self._pods.take_changed())

    async def _caught_up(self) -> str:
        """Wait for cluster documents as new as the stored ones; return why they are older."""
        kind = KINDS["documents"]
        try:
            stored = await self.cluster.versions(kind)
        except StoreError as error:
            return f"{kind.name}: {error}"
        until_ms = self._clock().steady_ms + _CATCH_UP_MS
        while self._objects.are_older("documents", stored):
            if self._clock().steady_ms > until_ms:
                return f"{kind.name}: what is followed is older than what is stored"
            await asyncio.sleep(_POLL_SECONDS)
        return ""

    async def _follow(self, name: str, kind: ObjectKind[Any]) -> None:
        async for event in followed(partial(self.cluster.objects, kind)):
            self.observe_objects(name, event)

    def observe_objects(
        self, name: str, event: Listed[Any] | Update[Any] | KindUnavailable | Interrupted
    ) -> None:
        """Apply an event of a kind of this name."""
        now_ms = self._clock().wall_ms
        self._pods.observe_pods(name, event, now_ms)
        self._keep_pods()
        if self._objects.observe_objects(name, event, now_ms):
            self._changed.set()
            if name == "ascendjobs":
                self._jobs_changed.set()

    async def _follow_rules(self) -> NoReturn:
        """Follow the scaling rules of MindIE Motor in each namespace whose AscendJobs name some."""
        feeds: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._jobs_changed.wait()
                self._jobs_changed.clear()
                wanted = self._objects.want_rules()
                for namespace in feeds.keys() - wanted:
                    feeds.pop(namespace).cancel()
                for namespace in sorted(wanted - feeds.keys()):
                    name, kind = rules_in(namespace)
                    task = tasks.create_task(self._follow(name, kind), name=f"read {kind.name}")
                    feeds[namespace] = task
        raise AssertionError("the tasks never end")

    def _restore(self, states: Mapping[Profile, SchedulerState]) -> None:
        self._sessions.restore_states(states)
        self._is_restored.set()

    async def _advise(self) -> NoReturn:
        await self._is_restored.wait()
        while True:
            await self._wait()
            self._changed.clear()
            if not self._objects.is_answered:
                continue
            now_ms = self._clock().wall_ms
            snapshot, watched = self._objects.snapshot(now_ms), self._objects.take_watched()
            before = self._sessions.reports
            try:
                self._seconds, state_texts = await asyncio.to_thread(self._look, snapshot, watched)
                self.kept.keep(state_texts)
                self._problem = ""
            except Exception as error:
                # Nothing that is published depends on it.
                if not self._problem:
                    _log.exception("nothing can be advised about the cluster as it is")
                self._problem = f"{type(error).__name__}: {error}"
            self._advised_at_ms = now_ms
            self._send(changes_of(self._sessions.reports, before, now_ms))
            await asyncio.sleep(_RETRY_SECONDS if self._problem else self._seconds * _IDLE_SHARE)

    def _look(self, snapshot: ClusterSnapshot, watched: Watched) -> tuple[float, Mapping[str, str]]:
        """Advise in a thread; return the CPU seconds, and the texts of state that changed."""
        began = time.thread_time()
        self._sessions.look(snapshot, watched)
        state_texts = self.kept.rendered(self._sessions.states, self._sessions.apart)
        return time.thread_time() - began, state_texts

    async def _wait(self) -> None:
        """Wait until something has changed, or the next session is due."""
        due_ms = self._sessions.next_ms
        seconds = None if due_ms is None else (due_ms - self._clock().wall_ms) / 1000
        await wait_for_event(self._changed, None if seconds is None else max(0.0, seconds))
