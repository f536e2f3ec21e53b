"""Keeps one document in one store as desired, for as long as this replica leads.

What changes while a write is in flight, and for as long again, goes out together in the next one. A
failed write is tried again with backoff and jitter. A refused one was computed from a document that
another program has replaced since: it is read again, and written only if this replica still leads.

A reader takes a document without an event for 60 s for a broken watch (M8), so a quiet document is
touched. What is written need not be touched. After a start it is not known when a document was
written last: the first touches are spread over a third of the period, so that neither all come at
once nor one comes too late.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol
from zlib import crc32

import msgspec

from aggregator.publish.document_state import LATE_MS, W, WatchedDocument
from contract.errors import DocumentError, StoreConflict, StoreError
from contract.record import Record
from pacing.backoff import Backoff
from pacing.waiting import wait_for_event
from service.failing_requests import FailingRequests
from service.owned_documents.owned_document import Preempted, StoreContent, run_preemptibly

if TYPE_CHECKING:
    from aggregator.publish.rate_limited_queue import WriteQueue
    from service.clock import Clock, Instant
    from service.election.leadership import Leadership
    from service.watchdog import Watchdog
    from stores.base import Document, Store

# The default period of 45 s and a third of it are the 60 s that a reader waits (M8).
_FIRST = 1 / 3
# Several attempts fit between the period and the 60 s of a reader (M8).
_RETRY_MS = 5000


class TouchSchedule:
    """When one document is touched next."""

    def __init__(self, period_seconds: float, name: str) -> None:
        self._period_ms = int(period_seconds * 1000)
        # From the name, not by chance: the spread is the same after each restart and in each
        # replica.
        self._phase = crc32(name.encode()) / 2**32
        self._next_ms: int | None = None

    def written(self, now: Instant) -> None:
        """Observe that the document was written or touched."""
        self._next_ms = now.steady_ms + self._period_ms

    def failed(self, now: Instant) -> None:
        """Schedule the touch again after it failed, in time for readers."""
        self._next_ms = now.steady_ms + min(self._period_ms, _RETRY_MS)

    def due_ms(self, now: Instant) -> int:
        """Return the milliseconds until it must be touched; 0 or less when that is now."""
        if self._next_ms is None:
            self._next_ms = now.steady_ms + int(self._period_ms * _FIRST * self._phase)
        return self._next_ms - now.steady_ms


_log = logging.getLogger(__name__)

# Views are never touched, so nothing is due without a wake.
_RECHECK_SECONDS = 60.0
# Never 0: a conflict that is over in this moment must not make a busy loop.
_TICK_SECONDS = 0.001
# A slow store must not hold back what changed meanwhile for as long as its answer took.
_MAX_WINDOW_SECONDS = 0.2
_NO_LEADER_SECONDS = 0.5


def compares_versions(store: Store) -> bool:
    """Return whether a write to ``store`` can demand the version that it replaces."""
    # A broker has neither: MQTT cannot compare versions (decision 10).
    return store.leader_lease is not None or store.leader_lock is not None


class WriterContext(Record, frozen=True):
    """What all writers to one store share.

    ``touch_period_seconds`` of ``None``: nothing is touched. ``failing`` are their failed writes.
    """

    store: Store
    leadership: Leadership
    clock: Clock
    stalls: Watchdog
    turns: WriteQueue
    touch_period_seconds: float | None = None
    failing: FailingRequests = msgspec.field(default_factory=FailingRequests)


class WriteTarget(Protocol[W]):
    """What a writer asks about its document: what it is to be, and what observes it."""

    def value(self) -> W:
        """Return the desired value now."""

    def check(self, value: W) -> None:
        """Check a value by its readers' rules. Raises ``DocumentError`` for what they refuse."""

    def on_acknowledged(self, revision: int) -> None:
        """Observe that the store has this revision."""

    def on_overtaken(self, document: Document) -> None:
        """Observe what an earlier leader wrote after this replica took over; called before
        ``value`` is.
        """


class DocumentWriter(Generic[W]):
    """Writes the document ``output`` until it is as ``desired``, and whenever it differs again."""

    def __init__(
        self,
        context: WriterContext,
        output: WatchedDocument[W],
        desired: WriteTarget[W],
        *,
        pause_seconds: float = 0.0,
    ) -> None:
        self.output = output
        self.wake = asyncio.Event()
        self._context = context
        self._store = context.store
        self._clock = context.clock
        period_seconds = context.touch_period_seconds
        self._touches = (
            None if period_seconds is None else TouchSchedule(period_seconds, output.name)
        )
        self._desired = desired
        self._pause_seconds = pause_seconds
        self._is_conditional = compares_versions(context.store)
        self._refused_in_a_row = 0

    async def run(self) -> NoReturn:
        """Write until cancelled."""
        output, backoff = self.output, Backoff()
        while True:
            # Before the value is read: a change during the write must start another round.
            self.wake.clear()
            value = self._desired.value()
            # The garbage collector deletes a document whose owners are all gone.
            if output.must_check_owners(output.stored):
                await output.check_owners(self._store)
            # ``must_write`` recognises writes of earlier runs, which count as acknowledged, too.
            before = output.acknowledged
            must = output.must_write(value, self._clock())
            if output.must_find_writer:
                await self._find_writer()
            output.foreign.report(
                _log, output.name, f" in {self._store.url}", "; is there a second aggregator?"
            )
            if output.acknowledged != before:
                self._desired.on_acknowledged(output.acknowledged)
            if output.trouble.reason is None:
                self._context.failing.forget(output.name)
            # Waits for a short time only: leadership may be lost and won again without a wake.
            if not self._context.leadership.leads:
                await self._wait(_NO_LEADER_SECONDS)
            # Nothing to write: touch it when that is due, or wait.
            elif not must:
                await self._rest(value)
            elif (
                # Without a version the write would replace whatever is there, also what a later
                # leader wrote.
                self._is_conditional and output.version is None and not await self._read_document()
            ):
                await asyncio.sleep(backoff.next_seconds())
            # Asked again, because the reading above took time.
            elif not output.must_write(value, self._clock()):
                continue  # it is there already
            else:
                await self._write_in_turn(backoff)

    async def _find_writer(self) -> None:
        """Find out which program besides us writes the document, as far as the store knows.

        Another aggregator that leads by now is not a foreign program: its writes do not conflict.
        """
        output = self.output
        output.must_find_writer = False
        if await self._context.leadership.confirm():
            await output.find_writer(self._store)
        else:
            output.foreign.forget("another aggregator leads")

    async def _write(self, value: W, backoff: Backoff) -> float:
        """Write once while this replica leads; return the seconds of the window or the backoff."""
        output = self.output
        if not self._context.leadership.leads:
            # The process may have been paused while it waited for its turn: what it knows is old,
            # and the version that its watch shows by now is another leader's.
            return 0.0
        took_ms = await self._attempt(value)
        if took_ms is not None:
            backoff.reset()
            self._refused_in_a_row = 0
            # A write is an event for readers as well, so the next touch is a whole period away.
            if self._touches is not None:
                self._touches.written(self._clock())
            self._desired.on_acknowledged(output.acknowledged)
            # A storm of changes must not keep the store busy more than half of the time.
            window = min(took_ms / 1000, _MAX_WINDOW_SECONDS)
            return max(window, self._pause_seconds)
        # The first refusal is repeated at once with the version that was just read; a row of them
        # is a quarrel.
        return 0.0 if self._refused_in_a_row == 1 else backoff.next_seconds()

    async def _write_in_turn(self, backoff: Backoff) -> None:
        """Wait for this document's turn, then write it with what changed meanwhile."""
        turns = self._context.turns
        if self.output.was_seen:
            await turns.write(self.output.name)
            pause_seconds = await self._write(self._desired.value(), backoff)
        else:
            # A new document waits for no turn: its nodes are in no document yet.
            async with turns.first_writes:
                pause_seconds = await self._write(self._desired.value(), backoff)
        await asyncio.sleep(pause_seconds)

    async def _read_document(self) -> bool:
        """Read the document where the watch has not shown it; return whether that succeeded."""
        output, requested_ms = self.output, self._clock().steady_ms
        try:
            output.observe_read(await self._store.get(output.namespace, output.name))
        except StoreError as error:
            output.trouble.record_failure(str(error))
            self._fails(error, requested_ms)
            return False
        return True

    async def _rest(self, value: W) -> None:
        """Wait while nothing is to be written, and touch the document when that is due."""
        output = self.output
        # A document that does not exist cannot be touched; one that an earlier leader creates late
        # is noticed (decision 10).
        if not output.fenced and not isinstance(output.shown, StoreContent):
            # A write that an earlier leader has under way demands the version before this touch.
            await self._touch(value)
            output.fenced = output.touch_trouble.reason is None
        # Events of our own write may still arrive, and must not count as foreign changes.
        elif not output.settled:
            await self._wait(LATE_MS / 1000)
        elif output.conflict:
            await self._wait(max(_TICK_SECONDS, output.conflict_seconds(value, self._clock())))
        elif self._touches is None:
            await self._wait(_RECHECK_SECONDS)
        elif (due_ms := self._touches.due_ms(self._clock())) > 0:
            await self._wait(due_ms / 1000)
        elif await self._context.turns.touch(output.name, self.wake):
            await self._touch(value)

    async def _touch(self, value: W) -> None:
        output, requested_ms = self.output, self._clock().steady_ms
        output.touched(value)
        try:
            with self._context.stalls.busy(f"touch {output.name} in {self._store.url}"):
                # A touch that arrives late, or a second attempt, is needed no more. One that fences
                # an earlier leader off must be made, whatever there is.
                expected = output.version if self._is_conditional and output.fenced else None
                touch = self._store.touch(output.namespace, output.name, expected=expected)
                if output.fenced:
                    # A touch that hangs must not delay a fault: after 0.5 s it gives way to a
                    # change (decision 15).
                    await run_preemptibly(touch, self._must_write)
                else:
                    await touch
        except Preempted:
            return
        except StoreError as error:
            if self._touches is not None:
                self._touches.failed(self._clock())
            output.touch_trouble.record_failure(str(error))
            # A conflict shows that the store answers, so the store is not failing.
            if not isinstance(error, StoreConflict):
                self._fails(error, requested_ms)
            if not output.fenced:
                await self._wait(_NO_LEADER_SECONDS)
            return
        if self._touches is not None:
            self._touches.written(self._clock())
        output.touch_trouble.end()
        output.touches_total += 1
        self._context.failing.succeeded()

    def _must_write(self) -> bool:
        return self.output.must_write(self._desired.value(), self._clock())

    async def _wait(self, seconds: float) -> None:
        await wait_for_event(self.wake, seconds)

    async def _attempt(self, value: W) -> int | None:
        """Write once; return the milliseconds it took, or ``None`` where it failed."""
        output = self.output
        began_ms = self._clock().steady_ms
        replaced = output.version
        try:
            # A document that readers would refuse is never written: they would keep the old one
            # without a sign.
            self._desired.check(value)
            with self._context.stalls.busy(f"write {output.name} to {self._store.url}"):
                document, demands = output.document(value), self._is_conditional
                version = await output.replace(
                    self._store, document, demands=demands, remains=output.remains
                )
        except StoreConflict as error:
            await self._refused(error)
            return None
        except (StoreError, DocumentError) as error:
            # Another kind of error: the row of refusals has ended.
            self._refused_in_a_row = 0
            output.record_attempt(self._clock())
            output.failed(str(error), value)
            self._fails(error, began_ms)
            return None
        output.record_attempt(self._clock())
        output.written(version, value, replaced)
        self._context.failing.succeeded()
        return self._clock().steady_ms - began_ms

    def _fails(self, error: Exception, requested_ms: int) -> None:
        name = self.output.name
        self._context.failing.failed(name, f"{name}: {error}", requested_ms)

    async def _refused(self, error: StoreConflict) -> None:
        """Read the document after another program wrote it, unless another replica leads."""
        output, requested_ms = self.output, self._clock().steady_ms
        output.refused_total += 1
        self._refused_in_a_row += 1
        _log.debug("%s: %s", output.name, error)
        # The refusal may be the fence of a new leader, which must not be overwritten.
        if not await self._context.leadership.confirm():
            _log.warning("%s was not written, another aggregator leads: %s", output.name, error)
            return
        try:
            document = await self._store.get(output.namespace, output.name)
        except StoreError as trouble:
            output.trouble.record_failure(str(trouble))
            self._fails(trouble, requested_ms)
            return
        output.observe_read(document)
        # Written by an earlier leader after we took over: our next entry has to be later than that.
        if document is not None and not output.fenced:
            self._desired.on_overtaken(document)


async def ended(tasks: list[asyncio.Task[NoReturn]]) -> None:
    """Cancel tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    # Cancellation is what is asked for, so it is not raised again.
    await asyncio.gather(*tasks, return_exceptions=True)
