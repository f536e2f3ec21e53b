"""The shadow: compares what a real Device Plugin writes with what we would have written.

It watches the document of this node and writes nothing. A difference is logged once, counted, shown
by the status page and journaled.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Protocol

from agent.shadow.comparison import ShadowComparison
from agent.shadow.difference_log import DifferenceLog
from agent.shadow.reasons import defect_of
from contract.documents.device_info import DEVICE_INFO_KEY
from pacing.waiting import wait_for_event
from service.log.ongoing_failure import OngoingFailure
from stores.base import Changed, Deleted, Selection
from stores.interruption import Interrupted, followed

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.publishing.publisher import DesiredDocument
    from agent.shadow.reasons import Background
    from contract.pages.agent_status import ReportedDifference, ShadowStatus
    from stores.base import Document, Store, WatchEvent

log = logging.getLogger("agent.shadow")

_COALESCE_SECONDS = 0.02
"""States that follow one another faster are not compared one by one."""
_MARK_SECONDS = 10.0
_WATCH_RETRY_SECONDS = 30.0


class ShadowedDocument(Protocol):
    """A document that is compared, with the decisions that belong to it. All return at once."""

    namespace: str
    name: str

    @property
    def background(self) -> Background:
        """What explains differences beside the documents."""

    def desired(self) -> DesiredDocument | None:
        """Return what we would publish now; ``None`` while too little is known."""

    def lingers(self) -> bool:
        """Return whether something in it may be over for other programs."""

    def on_first_read(self, existing: Document | None) -> None:
        """Take over the document stored at the start."""

    def record_owner_write(self, foreign: Document, may_be_edited: bool) -> None:
        """Apply a later write of another program; an operator's edit may be in it."""

    def on_reported(self, difference: ReportedDifference) -> None:
        """Journal a difference."""


class Shadow:
    """Compares all writes of ``document`` in ``store`` with what we would have written."""

    def __init__(
        self,
        store: Store,
        document: ShadowedDocument,
        wall_clock: Callable[[], int],
        progress: Callable[[], None],
    ) -> None:
        self.name = document.name
        self.namespace = document.namespace
        self._store = store
        self._document = document
        self._progress = progress
        self._comparison = ShadowComparison()
        self._log = DifferenceLog(partial(defect_of, background=document.background))
        self._woken = asyncio.Event()
        self._content: object = None
        self._shown: Document | None = None
        self._was_read = False
        self._trouble = OngoingFailure(
            log,
            "%s: cannot be watched: %s",
            "%s: it can be watched again",
            self.name,
            level=logging.ERROR,
        )
        self._loop = asyncio.get_running_loop()
        self._began_ms = wall_clock() - self._loop.time() * 1000

    def wake(self) -> None:
        """Compare again: the desired document may have changed."""
        self._woken.set()

    def status(self) -> ShadowStatus:
        """Return the counts of comparisons, and the differences."""
        return self._log.status(self.name, self._trouble.reason)

    async def run(self) -> NoReturn:
        """Compare until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(), name=f"watch of {self.name}")
            while True:
                self._progress()
                await self._wait()
                self._woken.clear()
                self._compare()
                await asyncio.sleep(_COALESCE_SECONDS)

    def _now_ms(self) -> int:
        """Return epoch milliseconds that only grow, also where the host's clock is set."""
        return round(self._began_ms + self._loop.time() * 1000)

    async def _wait(self) -> None:
        deadline_ms = self._comparison.next_deadline_ms()
        seconds = _MARK_SECONDS
        if deadline_ms is not None:
            seconds = min(seconds, max(0.0, (deadline_ms - self._now_ms()) / 1000))
        await wait_for_event(self._woken, seconds)

    def _compare(self) -> None:
        """Compare the desired document of now, and report the results so far."""
        now_ms = self._now_ms()
        desired = self._document.desired()
        if desired is None and self._content is not None:
            # Its chips are divided into virtual devices now, or are other ones.
            self._content = None
            self._comparison.clear_desired()
        if desired is not None and desired.stamped is not None and desired.content != self._content:
            self._content = desired.content
            document = desired.stamped(now_ms // 1000)
            self._comparison.set_desired(now_ms, document, lingers=self._document.lingers())
        for verdict in self._comparison.pop_results(now_ms):
            for difference in self._log.record(verdict, now_ms):
                self._document.on_reported(difference)
        self._log.close(self._comparison.agrees, now_ms)

    # Writes of other programs.

    async def _watch(self) -> None:
        watch = partial(self._store.watch, Selection(self.namespace, self.name))
        async for event in followed(watch, _WATCH_RETRY_SECONDS):
            self._watched(event)

    def _watched(self, event: WatchEvent) -> None:
        match event:
            case Interrupted():
                self._blind(event.reason)
                return
            case Changed():
                shown: Document | None = event.document
            case Deleted():
                shown = None
            case _:
                shown = next(iter(event.documents), None)
        self._trouble.end()
        # What we desired until now belongs to the time before this write.
        self._compare()
        self._observe(shown)
        self._comparison.end_interruption(self._now_ms())
        self._woken.set()

    def _blind(self, reason: str) -> None:
        self._trouble.record_failure(reason)
        self._comparison.observe_interruption(self._now_ms())

    def _observe(self, shown: Document | None) -> None:
        now_ms = self._now_ms()
        before, self._shown = self._shown, shown
        if not self._was_read:
            self._was_read = True
            self._document.on_first_read(shown)
            if shown is None:
                self._comparison.observe_absence(now_ms)
                return
        elif shown is None:
            if before is not None:
                self._comparison.observe_deletion(now_ms)
            return
        elif before is not None and (before.data, before.labels) == (shown.data, shown.labels):
            return
        else:
            self._document.record_owner_write(
                shown,
                # Of the writes that were missed in an interruption, one may have been an
                # operator's.
                self._comparison.is_interrupted or is_edit(before, shown),
            )
        self._comparison.observe_write(now_ms, shown)


def is_edit(before: Document | None, shown: Document) -> bool:
    """Return whether an operator wrote: the Device Plugin would have changed the stamp of its
    part.
    """
    return before is not None and before.data.get(DEVICE_INFO_KEY) == shown.data.get(
        DEVICE_INFO_KEY
    )
