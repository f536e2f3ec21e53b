"""Takes over from another leader, and hands over to the next one.

A term lasts from the election of this replica until another one leads. At its begin everything is
read once more, then the term is compared: where another replica has led meanwhile, what was read
counts for nothing. A write of an earlier term that arrives late is refused, because each document
was marked or replaced since (``persistent_state.py``, ``document_writer.py``). At the end of a term
the writers stop first, then the last state is stored, then gRPC ends.

A follower reads everything, computes the same values and follows what the leader writes. To take
over it restores the state of the plugins and reads documents, versions and stamps from the store as
they are then, whatever its watches have shown so far; only then it writes.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from aggregator.failover.persistent_state import PersistentState
from aggregator.publish.upstream_views import UpstreamViews
from contract.errors import StoreError
from pacing.backoff import Backoff
from pacing.cooperative import run_in_slices
from service.log.ongoing_failure import OngoingFailure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aggregator.absence.last_known import LastKnown
    from aggregator.merge.pipeline import Pipeline
    from aggregator.plugin_host import PluginHost
    from aggregator.publish.publisher import StorePublisher
    from pacing.cooperative import Work
    from service.clock import Instant
    from stores.base import Selection, WatchEvent

_log = logging.getLogger(__name__)

# Views are for people and old readers; five comparisons in a second are enough in a storm.
_VIEWS_MS = 200
# Above the 0.5 s of the last writes of state (``_LAST_WRITES_TIMEOUT_SECONDS``), which are part of
# it.
_GIVE_UP_SECONDS = 0.7
_NODES_PER_SLICE = 1_000
"""About 10 ms of processor time."""


class Takeover:
    """Lets this replica write while it leads.

    ``on_inherit`` receives the nodes that the leader before has published as lost. ``on_lead`` is
    called when everything is restored and the publishers may write; the work that it returns has
    one unit for each node. ``on_leader_change`` is called when another process leads, also while
    this one follows.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        publishers: tuple[StorePublisher, ...],
        plugins: PluginHost,
        *,
        on_leader_change: Callable[[], None],
        on_inherit: Callable[[frozenset[str]], None],
        on_lead: Callable[[], Work[None]],
        copies: LastKnown | None = None,
    ) -> None:
        self.leads = False
        """Whether this replica has taken over."""
        self.is_warm = False
        """Whether everything is known that a leader needs."""
        context = publishers[0].context
        self.persistent_state = PersistentState(context, plugins.persistent, copies)
        self.views = {
            publisher.store.url: UpstreamViews(
                publisher.context, plugins.inputs if plugins.reads(publisher.store.url) else ()
            )
            for publisher in publishers
        }
        self._pipeline = pipeline
        self._publishers = publishers
        self._plugins = plugins
        self._leadership = context.leadership
        self._clock = context.clock
        self._on_leader_change = on_leader_change
        self._on_inherit = on_inherit
        self._on_lead = on_lead
        self._tasks: asyncio.TaskGroup | None = None
        self._changed = asyncio.Event()
        self._views_due_ms = 0

    async def restore_state(self) -> None:
        """Restore the state of the plugins before they observe anything; wait for the store."""
        restore = partial(self.persistent_state.restore_plugins, fence=False)
        await _until_read(restore, "stored state cannot be read, trying again: %s")

    async def run(self, tasks: asyncio.TaskGroup) -> NoReturn:
        """Campaign, lead and follow until cancelled."""
        self._tasks = tasks
        self.is_warm = True
        # Only now: a replica that campaigns before it knows the cluster would lead without content.
        tasks.create_task(self._leadership.run(self._observe_leader), name="campaign")
        while True:
            while not self._leadership.leads:
                await self._wait_for_change()
            # Leadership may be lost and won again while this waits; then all that was read is too
            # old.
            term = self._leadership.taken_total
            await self._take_over(tasks, term)
            while self._is_term(term):
                await self._wait_for_change()
            await self._hand_over()

    def _is_term(self, term: int) -> bool:
        """Return whether this replica leads, and has done so since ``term`` began."""
        return self._leadership.leads and self._leadership.taken_total == term

    def _observe_leader(self) -> None:
        self._on_leader_change()
        self._changed.set()

    async def _wait_for_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    async def _take_over(self, tasks: asyncio.TaskGroup, term: int) -> None:
        await _until_read(self._read_again, "cannot take over yet, trying again: %s")
        # Checked again, because reading may have taken longer than the term.
        if not self._is_term(term):
            return  # another replica leads, or has led since this was read
        self.leads = True
        # Before the state is written: the first step may change it.
        changes = self._on_lead()
        self.persistent_state.lead(tasks)
        self.collect(self._clock(), at_once=True)
        # Behind the writers, and in pieces: the Lease must be renewed meanwhile. Where the
        # term ends, it goes on to its end: a follower would not report these changes again.
        informing = tasks.create_task(run_in_slices(changes, _NODES_PER_SLICE), name="inform")
        informing.add_done_callback(lambda _: self._changed.set())
        while self._is_term(term) and not informing.done():
            await self._wait_for_change()
        # Last: clients over gRPC must find what was restored.
        if self._is_term(term):
            await self._plugins.set_leading(True)

    async def _read_again(self) -> None:
        """Restore everything as the leader before left it, unless that is not needed any more.

        Raises ``StoreError``.
        """
        if self._leadership.elected_by is None or not self._leadership.leads:
            return  # no other replica was there, or another one leads
        # State first: its marks refuse late writes before the cluster documents are read.
        await self.persistent_state.restore_plugins(fence=self._leadership.fences)
        documents = await self._publishers[0].list()
        # The earlier leader may have seen more than our watches (decision 10), so differences are
        # read by name.
        self._pipeline.restore_documents(documents, unconfirm=True)
        for problem in self._pipeline.unreadable:
            _log.warning("another leader's document is overwritten: %s", problem)
        self._on_inherit(self._pipeline.lost)

    async def _hand_over(self) -> None:
        if not self.leads:
            return
        # First of all: pages and plugins must not act as the leader while the writers end.
        self.leads = False
        await asyncio.gather(
            *(publisher.follow() for publisher in self._publishers),
            *(views.follow() for views in self.views.values()),
            # Callers that wait for stored state are answered before gRPC ends.
            self.persistent_state.follow(),
            self._plugins.set_leading(False),
        )

    async def give_up(self) -> None:
        """End: store the state that is left, and let another replica lead at once."""
        try:
            # Longer than this no replica leads, while another one waits for the lock or the Lease.
            async with asyncio.timeout(_GIVE_UP_SECONDS):
                await self._hand_over()
        except TimeoutError:
            _log.warning("not everything is handed over in time")
        finally:
            # Also after the timeout: a lock that is kept costs more than state that the next leader
            # computes anew.
            await self._leadership.release()

    def seen(self, url: str, selection: Selection, event: WatchEvent) -> None:
        """Pass on an event of a plugin's input in this store, after the plugin has applied it."""
        # Views differ from a plugin's state at once after an operator's edit, and only a leader
        # repairs that.
        if self.leads and url in self.views:
            self.collect(self._clock(), at_once=True)
            self.views[url].observe_input(selection, event)

    def collect(self, now: Instant, *, at_once: bool = False) -> int | None:
        """Collect the state and views of the plugins; return the steady time of the next call, if
        any.
        """
        self.persistent_state.poll()
        if not self.leads or self._tasks is None or not self._plugins.viewed:
            return None
        if now.steady_ms < self._views_due_ms and not at_once:
            return self._views_due_ms
        # Views are compared as a whole, so not at every step of a storm.
        self._views_due_ms = now.steady_ms + _VIEWS_MS
        wanted = self._plugins.views()
        for views in self.views.values():
            views.show(self._tasks, wanted)
        return None


async def _until_read(read: Callable[[], Awaitable[None]], begins: str) -> None:
    """Read again until the store answers; ``begins`` is logged with the first error."""
    backoff, trouble = Backoff(), OngoingFailure(_log, begins)
    while True:
        try:
            return await read()
        # Never given up: without the state of the earlier leader this replica would publish too
        # little.
        except StoreError as error:
            trouble.record_failure(str(error))
            await asyncio.sleep(backoff.next_seconds())
