"""Follows the objects that the scheduler reads, and computes advice when they have changed."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from advisor.checks.ended_vcjobs import EndedJobs
from aggregator.advising.answers import NewestReports
from aggregator.advising.cluster_objects import KINDS, AdvisedObjects, rules_in
from aggregator.advising.kept_state import KeptState
from aggregator.advising.sessions import Sessions
from aggregator.advising.status import AdviceStatus, changes_of
from aggregator.advising.what_if import WhatIf
from contract.errors import StoreError
from pacing.waiting import is_set_within
from stores.interruption import followed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from advisor.options import Profile
    from advisor.scheduler_view.state import SchedulerState
    from advisor.snapshot import ClusterSnapshot
    from aggregator.advising.outcomes import Watched
    from aggregator.advising.status import AdviceChange
    from service.clock import Clock
    from stores.cluster import Cluster, ObjectKind

_log = logging.getLogger(__name__)

_IDLE_SHARE = 4
"""Pause after a computation, in times of what that took: at most a fifth of one core."""

_CATCH_UP_MS = 2000
_LOOK_AGAIN_SECONDS = 0.01
"""A watch is behind by milliseconds, unless it is broken."""

_AFTER_A_PROBLEM = 5.0
"""Seconds: the same objects raise the same problem."""


class Advising:
    """The advisor of one cluster. It reads for itself, so that nothing waits for it."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        send: Callable[[Iterable[AdviceChange]], None],
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        """Make it; ``send`` receives the decisions that changed, ``keep`` is called when state has
        to be stored.
        """
        self._send = send
        self._cluster = cluster
        self._clock = clock
        self._objects = AdvisedObjects()
        self._jobs_changed = asyncio.Event()
        """Set when AscendJobs may name scaling rules of other namespaces."""
        self._sessions = Sessions()
        self.kept = KeptState(self._restore, keep)
        self._is_restored = asyncio.Event()
        self.answers = NewestReports(self._objects, self.status)
        self.what_if = WhatIf(self._objects, lambda: self._sessions.states, lambda: clock().wall_ms)
        self._changed = asyncio.Event()
        self._advised_at_ms = 0
        self._seconds = 0.0
        self._problem = ""

    async def run(self) -> NoReturn:
        """Follow and advise until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name, kind in KINDS.items():
                tasks.create_task(self._follow(name, kind), name=f"read {kind.name} for advice")
            tasks.create_task(self._follow_rules(), name="read scaling rules for advice")
            tasks.create_task(self._advise(), name="advise")
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
        return await asyncio.to_thread(
            self._sessions.ended, snapshot, sized, judged, running=running
        )

    async def _caught_up(self) -> str:
        """Wait for cluster documents as new as the stored ones; return why they are older."""
        kind = KINDS["documents"]
        try:
            stored = await self._cluster.versions(kind)
        except StoreError as error:
            return f"{kind.name}: {error}"
        until_ms = self._clock().steady_ms + _CATCH_UP_MS
        while self._objects.are_older("documents", stored):
            if self._clock().steady_ms > until_ms:
                return f"{kind.name}: what is followed is older than what is stored"
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        return ""

    async def _follow(self, name: str, kind: ObjectKind[Any]) -> None:
        async for event in followed(partial(self._cluster.objects, kind)):
            if self._objects.observe(name, event, self._clock().wall_ms):
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
        self._sessions.restore(states)
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
                self._seconds, kept = await asyncio.to_thread(self._look, snapshot, watched)
                self.kept.keep(kept)
                self._problem = ""
            except Exception as error:
                # Nothing that is published depends on it.
                if not self._problem:
                    _log.exception("nothing can be advised about the cluster as it is")
                self._problem = f"{type(error).__name__}: {error}"
            self._advised_at_ms = now_ms
            self._send(changes_of(self._sessions.reports, before, now_ms))
            await asyncio.sleep(_AFTER_A_PROBLEM if self._problem else self._seconds * _IDLE_SHARE)

    def _look(self, snapshot: ClusterSnapshot, watched: Watched) -> tuple[float, Mapping[str, str]]:
        """Advise in a thread; return the CPU seconds, and the texts of state that changed."""
        began = time.thread_time()
        self._sessions.look(snapshot, watched)
        kept = self.kept.rendered(self._sessions.states, self._sessions.apart)
        return time.thread_time() - began, kept

    async def _wait(self) -> None:
        """Wait until something has changed, or the next session is due."""
        due_ms = self._sessions.next_ms
        seconds = None if due_ms is None else (due_ms - self._clock().wall_ms) / 1000
        await is_set_within(self._changed, None if seconds is None else max(0.0, seconds))
