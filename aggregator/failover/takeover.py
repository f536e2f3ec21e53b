"""Takes over from another leader, and hands over to the next one.

A follower reads everything, computes the same values and follows what the leader writes. To take
over it restores the parts' state and takes documents, versions and stamps from the store as they
are then, whatever its watches have shown so far; only then it writes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from aggregator.failover.persistent_state import PersistentState
from aggregator.publish.upstream_views import UpstreamViews
from contract.errors import StoreError
from pacing.backoff import Backoff
from service.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from aggregator.absence.last_known import LastKnown
    from aggregator.merge.pipeline import Pipeline
    from aggregator.plugin_host import PluginHost
    from aggregator.publish.publisher import StorePublisher
    from service.clock import Clock, Instant
    from service.election.leadership import Leadership
    from service.stalls import Stalls
    from stores.base import Selection, WatchEvent

_log = logging.getLogger(__name__)

_VIEWS_MS = 200
_GIVE_UP_SECONDS = 0.7


class Takeover:
    """Who writes. ``inherit`` is told whom the leader before has published as lost, ``began`` that
    everything is restored and the publishers may write. ``leader_changed`` is called when another
    process leads, also while this one follows.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        publishers: tuple[StorePublisher, ...],
        parts: PluginHost,
        leadership: Leadership,
        clock: Clock,
        stalls: Stalls,
        *,
        leader_changed: Callable[[], None],
        inherit: Callable[[frozenset[str]], None],
        began: Callable[[], None],
        copies: LastKnown | None = None,
    ) -> None:
        self.leads = False
        """Whether we have taken over."""
        self.is_warm = False
        """Whether everything is known that a leader needs."""
        first = publishers[0].store
        turns = publishers[0].turns
        self.keeping = PersistentState(
            first, parts.keepers, leadership, clock, stalls, turns, copies
        )
        self.views = {
            publisher.store.url: UpstreamViews(
                publisher.store,
                parts.inputs if parts.reads(publisher.store.url) else (),
                leadership,
                clock,
                stalls,
                publisher.turns,
            )
            for publisher in publishers
        }
        self._pipeline = pipeline
        self._publishers = publishers
        self._parts = parts
        self._leadership = leadership
        self._clock = clock
        self._leader_changed = leader_changed
        self._inherit = inherit
        self._began = began
        self._tasks: asyncio.TaskGroup | None = None
        self._changed = asyncio.Event()
        self._trouble = ""
        self._views_due_ms = 0

    async def restore(self) -> None:
        """Give the parts what was kept, before they observe anything; waits for a store."""
        backoff = Backoff()
        trouble = Trouble(_log, "kept state cannot be read, trying again: %s")
        while True:
            try:
                await self.keeping.restore(fence=False)
                return
            except StoreError as error:
                trouble.begin(str(error))
                await asyncio.sleep(backoff.next_seconds())

    async def run(self, tasks: asyncio.TaskGroup) -> NoReturn:
        """Campaign, lead and follow until cancelled."""
        self._tasks = tasks
        self.is_warm = True
        tasks.create_task(self._leadership.run(self._look_at_leader), name="campaign")
        while True:
            while not self._leadership.leads:
                await self._anything()
            term = self._leadership.taken_total
            await self._take_over(tasks, term)
            while self._leadership.leads and self._leadership.taken_total == term:
                await self._anything()
            await self._hand_over()

    def _look_at_leader(self) -> None:
        self._leader_changed()
        self._changed.set()

    async def _anything(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    async def _take_over(self, tasks: asyncio.TaskGroup, term: int) -> None:
        backoff = Backoff()
        trouble = Trouble(_log, "cannot take over yet, trying again: %s")
        while not await self._read_again():
            trouble.begin(self._trouble)
            await asyncio.sleep(backoff.next_seconds())
        if not self._leadership.leads or self._leadership.taken_total != term:
            return  # somebody else leads, or has led since this was read
        self.leads = True
        self._began()
        self.keeping.lead(tasks)
        self.look(self._clock(), at_once=True)
        await self._parts.leads(True)

    async def _read_again(self) -> bool:
        """Everything as the leader before us left it; whether that could be read, or need not be
        any more.
        """
        if self._leadership.elected_by is None or not self._leadership.leads:
            return True  # nobody else was there, or somebody else is
        try:
            await self.keeping.restore(fence=self._leadership.fences)
            documents = await self._publishers[0].list()
        except StoreError as error:
            self._trouble = str(error)
            return False
        self._pipeline.restore(documents, unconfirm=True)
        for problem in self._pipeline.unreadable:
            _log.warning("another leader's document is overwritten: %s", problem)
        self._inherit(self._pipeline.lost)
        return True

    async def _hand_over(self) -> None:
        if not self.leads:
            return
        self.leads = False
        await asyncio.gather(
            *(publisher.follow() for publisher in self._publishers),
            *(views.follow() for views in self.views.values()),
            # Whoever waits until something is kept is answered before nobody is served any more.
            self.keeping.follow(),
            self._parts.leads(False),
        )

    async def give_up(self) -> None:
        """The end: what is to be kept is kept, and somebody else may lead at once."""
        try:
            async with asyncio.timeout(_GIVE_UP_SECONDS):
                await self._hand_over()
        except TimeoutError:
            _log.warning("not everything is handed over in time")
        finally:
            await self._leadership.release()

    def seen(self, url: str, selection: Selection, event: WatchEvent) -> None:
        """A part has taken in an event of an input in this store."""
        if self.leads and url in self.views:
            self.look(self._clock(), at_once=True)
            self.views[url].observe(selection, event)

    def look(self, now: Instant, *, at_once: bool = False) -> int | None:
        """Ask the parts what they keep and show; returns when to be asked again (steady time)."""
        self.keeping.look()
        if not self.leads or self._tasks is None or not self._parts.viewed:
            return None
        if now.steady_ms < self._views_due_ms and not at_once:
            return self._views_due_ms
        self._views_due_ms = now.steady_ms + _VIEWS_MS
        wanted = self._parts.views()
        for views in self.views.values():
            views.show(self._tasks, wanted)
        return None
