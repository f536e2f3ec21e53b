"""Follows what the scheduler reads, and advises when it has changed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, NoReturn

from advisor.checks.ended_vcjobs import EndedJobs
from aggregator.advising.answers import NewestReports
from aggregator.advising.cluster_objects import KINDS, AdvisedObjects
from aggregator.advising.kept_state import KeptState
from aggregator.advising.rule_feeds import RuleFeeds
from aggregator.advising.sessions import Sessions
from aggregator.advising.status import AdviceStatus, changes_of
from aggregator.advising.what_if import WhatIf
from contract.errors import StoreRefused
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from advisor.options import Profile
    from advisor.scheduler_view.state import SchedulerState
    from advisor.snapshot import ClusterSnapshot
    from aggregator.advising.outcomes import Watched
    from aggregator.advising.status import AdviceChange
    from service.clock import Clock
    from stores.cluster import Cluster, KindUnavailable, ObjectKind, Update
    from stores.cluster import Snapshot as Listed

_log = logging.getLogger(__name__)

_ASK_AGAIN_SECONDS = 30.0
"""After a refusal that waiting does not mend by itself: somebody may."""

_IDLE_SHARE = 4
"""After a computation it rests for so many times what that took: at most a fifth of one core."""

_AFTER_A_PROBLEM = 5.0
"""Seconds: the same objects raise the same problem."""


class Advising:
    """The advisor of one cluster. It reads for itself, so that nothing waits for it."""

    def __init__(
        self, cluster: Cluster, clock: Clock, send: Callable[[Iterable[AdviceChange]], None]
    ) -> None:
        """``send`` gets what is advised otherwise than before."""
        self._send = send
        self._cluster = cluster
        self._clock = clock
        self._objects = AdvisedObjects()
        self._rules = RuleFeeds(self._objects, self._follow)
        self._sessions = Sessions()
        self.kept = KeptState(self._restore)
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
            tasks.create_task(self._rules.run(), name="read scaling rules for advice")
            tasks.create_task(self._advise(), name="advise")
        raise AssertionError("the tasks never end")

    def status(self) -> AdviceStatus:
        """What is advised now."""
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
        """Return what is known of ended vcjobs; see ``ended_jobs``."""
        if not self._objects.is_answered:
            return EndedJobs(not_known=("not everything was listed yet",))
        snapshot = self._objects.snapshot(self._clock().wall_ms)
        return await asyncio.to_thread(
            self._sessions.ended, snapshot, sized, judged, running=running
        )

    async def _follow(self, name: str, kind: ObjectKind[Any]) -> NoReturn:
        def take(event: Listed[Any] | Update[Any] | KindUnavailable | Interrupted) -> None:
            if self._objects.observe(name, event, self._clock().wall_ms):
                self._changed.set()
                if name == "ascendjobs":
                    self._rules.wake()

        while True:
            try:
                async for event in self._cluster.objects(kind):
                    take(event)
            except StoreRefused as error:
                take(Interrupted(str(error)))
            await asyncio.sleep(_ASK_AGAIN_SECONDS)

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
        """Return how long it took (CPU), and what is to be kept otherwise than before."""
        began = time.thread_time()
        self._sessions.look(snapshot, watched)
        kept = self.kept.rendered(self._sessions.states, self._sessions.apart)
        return time.thread_time() - began, kept

    async def _wait(self) -> None:
        """Until something has changed, or the next session is due."""
        due_ms = self._sessions.next_ms
        seconds = None if due_ms is None else (due_ms - self._clock().wall_ms) / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
                await self._changed.wait()
