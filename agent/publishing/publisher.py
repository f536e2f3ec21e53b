"""Publishes one document until the store shows it, and keeps it so.

Level-triggered: the desired document is compared with the last acknowledged one and with the one
that the store shows. It may be desired that there is no document. One request is in flight at a
time; changes during it are written together in the next one. An event of the document's watch only
causes another read.

``run`` takes turns. A turn reads the stored document if something may have changed it; else it
writes if the desired document differs, or if an unchanged one is due again; else it waits. A write
first waits for the journal, at most for a few commits, so that no reader sees what a crash could
make undone. A write without an answer may have arrived: the next read compares with each such
write. So for the document in the store, once the store answers and no other program writes::

    stored = desired  or  a write of desired is in flight  or  a pause or an answer is awaited

What belongs to one document (who else may write it, what of it is an operator's) is decided by its
``PublishedDocument``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from typing import TYPE_CHECKING, NoReturn, Protocol

from agent.publishing.publication import CONFLICT, FAILED, INVALID, Publication
from agent.publishing.update_times import Stamps
from contract.errors import DocumentError, StoreConflict, StoreError, StoreRefused
from contract.record import Record
from pacing.backoff import Backoff
from pacing.waiting import TICK_SECONDS, now_seconds, pause_until_mark, wait_for_event
from service.owned_documents.foreign_parts import differences
from service.owned_documents.owned_document import OwnedDocument, Preempted, run_preemptibly
from service.watchdog import with_progress_marks
from stores.base import (
    READ_SECONDS,
    WRITE_SECONDS,
    Changed,
    Deleted,
    Document,
    DocumentsListed,
    Selection,
)
from stores.deadline import answered_within
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.base import Store, WatchEvent

log = logging.getLogger("agent.publisher")

_IDLE_SECONDS = 300.0
# A third of the time after which the watchdog takes a publisher for stalled (``_STALL_SECONDS``).
_MARK_SECONDS = 10.0
# Each wait is 20 ms at most (decision 2): a burst without a pause must be written, too.
_COMMITS = 3
# Documents that were written together, as after a loss of power, are not refreshed together.
_REFRESH_JITTER = 0.1
_BACKOFF_FIRST_SECONDS = 0.1
_BACKOFF_LAST_SECONDS = 2.0
# A refusal by rights or by admission stays the same until an operator changes something.
_REFUSED_SECONDS = 10.0
_WATCH_RETRY_SECONDS = 30.0
_MAX_UNANSWERED = 4
_WATCH_SECONDS = 0.5
"""How long a watch may take to show what was acknowledged, before it is read instead."""


class DesiredDocument(Record, frozen=True):
    """The document to publish, made from the state of ``revision``.

    ``content`` is everything but the stamp; a write is due when it differs from the last one's.
    ``stamped`` makes the document for a stamp in seconds; ``None``: there must be no document.
    After ``refresh_seconds``, or up to a tenth earlier, an unchanged document is written again, so
    that readers see its age.
    ``remains`` makes what readers shall have of a document that must not be there, while finalizers
    of others hold it. It shows the changes up to the row ``through`` of the journal.
    """

    revision: int
    content: object
    stamped: Callable[[int], Document] | None
    refresh_seconds: float
    remains: Callable[[int], Document] | None = None
    through: int = 0


def absent(revision: int, remains: Callable[[int], Document] | None = None) -> DesiredDocument:
    """Return that there must be no document."""
    return DesiredDocument(revision, None, None, math.inf, remains)


class PublishedDocument(Protocol):
    """A document that a publisher keeps in the store, with the decisions that belong to it.

    All methods but ``before_write`` and ``before_repair`` return at once.
    """

    namespace: str
    name: str

    @property
    def has_rival(self) -> bool:
        """Whether another agent has the same node name: its writes are not foreign
        (``docs/decisions/005``).
        """

    def desired(self) -> DesiredDocument | None:
        """Return the document to publish; ``None`` while the stored one must stay as it is."""

    def stamp_of(self, document: Document) -> int | None:
        """Return the time of a stored document; ``None`` for one that cannot be decoded."""

    def verify(self, document: Document) -> None:
        """Raise ``DocumentError`` if readers would refuse ``document``."""

    def blocks_updates(self, shown: Document) -> bool:
        """Return whether readers would refuse an update of the stored document.

        It is deleted before the next write.
        """

    async def before_write(self) -> None:
        """Wait until the journal has what is to be written, for a short time."""

    async def before_repair(self) -> None:
        """Find out whether the document is still ours, when another program wrote it."""

    def on_first_read(self, existing: Document | None) -> None:
        """Take over the document stored at the start; nothing is written or deleted before."""

    def on_foreign_write(self, foreign: Document) -> bool:
        """Apply a foreign write; return whether it was an operator's right."""

    def on_write_of_owner(self, before: Document | None, shown: Document | None) -> None:
        """Apply a change while nothing is to be published: the old and the new document."""

    def on_acknowledged(self, document: Document | None, revision: int, through: int) -> None:
        """Record that the store has ``document`` of ``revision``, which shows the changes up to
        the row ``through`` of the journal; ``None``: that it has none.
        """

    def on_shown(self) -> None:
        """Record that the store shows what is desired already: nothing is written."""

    def on_reconnected(self) -> None:
        """Note that the store is watched again after an interruption."""


class _WriteRequest(Record, frozen=True):
    """One request: to write ``document``, or where that is ``None`` to delete it."""

    document: Document | None
    content: object
    revision: int
    through: int
    stamp: int
    reason: str
    event_ms: int | None
    """When the oldest change was seen that it carries."""
    remains: Document | None = None


class _Pause(Record, frozen=True):
    """Nothing to do for ``seconds``, or until the event is set."""

    seconds: float
    until: asyncio.Event


def _same(document: Document | None, other: Document | None) -> bool:
    """Return whether both are equal in our keys; other keys belong to other programs."""
    return not differences(document, other)


class DocumentPublisher:
    """Publishes ``published`` to ``store``; calls ``progress`` at least every ``_MARK_SECONDS``.

    It is a document writer, see ``service/owned_documents/owned_document.py``.
    """

    def __init__(
        self,
        store: Store,
        published: PublishedDocument,
        wall_clock: Callable[[], int],
        progress: Callable[[], None],
    ) -> None:
        self.name = published.name
        self.namespace = published.namespace
        self._store = store
        self._published = published
        self._wall_clock = wall_clock
        self._progress = progress
        self._document = OwnedDocument(self.namespace, self.name)
        self._foreign = self._document.foreign
        self.record = Publication(self._foreign)
        self._stamps = Stamps()
        self.agreed = asyncio.Event()
        """Set once the store has what was desired, for the first time."""
        self._woken = asyncio.Event()
        self._reconnected = asyncio.Event()
        self._was_read = False
        self._must_read = True
        self._first_shown: Document | None = None
        self._in_flight: _WriteRequest | None = None
        self._unanswered: deque[_WriteRequest] = deque(maxlen=_MAX_UNANSWERED)
        """Writes without an answer since the last one that had one: each may have arrived."""
        self._acknowledged: _WriteRequest | None = None
        self._acknowledged_at = 0.0
        self._refresh_share = 1.0
        self._number_of_write: _WriteRequest | None = None
        self._number: int | None = None
        self._watched_version: str | None = None
        self._watched_document: Document | None = None
        self._awaits_watch = False
        self._interruption: Interrupted | None = None
        """The last interruption of the watch, until the document has been compared after it."""
        self._backoff = Backoff(_BACKOFF_FIRST_SECONDS, _BACKOFF_LAST_SECONDS)

    @property
    def is_settled(self) -> bool:
        """Whether no change waits to be published or is on its way."""
        return self.record.waiting_since_ms is None and self._in_flight is None

    @property
    def number(self) -> int | None:
        """The number of the last acknowledged write, negative where that was a deletion.

        ``None`` without one, and in a conflict: the stored document is another one then.
        """
        write = self._acknowledged
        if write is None or self._foreign.is_conflict:
            return None
        if write is not self._number_of_write:
            self._number_of_write, document = write, write.document
            stamp = -write.stamp if document is None else self._published.stamp_of(document)
            self._number = stamp
        return self._number

    def wake(self, event_ms: int) -> None:
        """Compare again, because of an event seen at ``event_ms`` (epoch milliseconds)."""
        self.record.record_event(event_ms)
        self._woken.set()

    def record_store_failure(self, error: StoreError) -> None:
        """Record that the store failed before the document could be read for the first time."""
        self._begin_trouble(str(error))

    async def run(self) -> NoReturn:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(), name=f"watch of {self.name}")
            while True:
                self._progress()
                # Before the turn: what comes during it is compared in the next one.
                self._woken.clear()
                self._reconnected.clear()
                pause = await self._turn()
                if pause is not None:
                    await self._wait(pause)

    async def _wait(self, pause: _Pause) -> None:
        remaining_seconds, deadline = pause.seconds, now_seconds() + pause.seconds
        # Also where the pause is too short to change the deadline: other tasks must run.
        while not pause.until.is_set() and remaining_seconds > 0:
            self._progress()
            pause_seconds = pause_until_mark(_MARK_SECONDS, remaining_seconds)
            await wait_for_event(pause.until, max(TICK_SECONDS, pause_seconds))
            remaining_seconds = deadline - now_seconds()

    async def _turn(self) -> _Pause | None:
        """Read or write once, whichever is due first.

        Returns ``None`` when there may be more to do.
        """
        if self._must_read:
            return await self._read()
        desired = self._published.desired()
        if desired is None:
            # The event is not for this document, or it must wait for an answer.
            self.record.waiting_since_ms = None
            self._works_again()
            if self._foreign.is_conflict:
                self._foreign.forget("it is not ours to write")
                self._report_conflict()
            return _Pause(_IDLE_SECONDS, self._woken)
        reason, due_seconds = self._next_write(desired)
        if due_seconds > 0:
            if reason == "refresh":
                self.record.waiting_since_ms = None
                self._works_again()
                self._published.on_shown()
            watch_seconds = self._seconds_for_watch()
            if watch_seconds <= 0:
                return await self._read()
            return _Pause(min(due_seconds, watch_seconds), self._woken)
        shown = self._document.stored
        # Without an earlier write of ours, ``_read`` does not look for what an operator changed.
        if reason == "first" and shown is not None and self._is_edited(shown):
            return None
        now_ms = self._wall_clock()
        stamp, early_seconds = self._stamps.next(now_ms, now_seconds())
        # A deletion carries no stamp that readers compare, so it does not wait for one.
        if early_seconds > 0 and desired.stamped is not None:
            return _Pause(early_seconds, self._woken)
        committed = await self._committed(desired)
        if committed is None:
            return None
        desired = committed
        document = None if desired.stamped is None else desired.stamped(stamp)
        remains = None if desired.remains is None else desired.remains(stamp)
        event_ms = self.record.waiting_since_ms
        return await self._write(
            _WriteRequest(
                *(document, desired.content, desired.revision, desired.through),
                *(stamp, reason, event_ms, remains),
            )
        )

    def _is_edited(self, shown: Document) -> bool:
        """Return whether an operator changed something since the start, before anything was
        desired.
        """
        first_shown, self._first_shown = self._first_shown, shown
        return not _same(shown, first_shown) and self._published.on_foreign_write(shown)

    async def _committed(self, desired: DesiredDocument) -> DesiredDocument | None:
        """Wait until the journal has ``desired``, or the newer document that has replaced it.

        So the events of a burst are written together, without delaying a single one. ``None`` when
        the stored document must stay after all.
        """
        for _ in range(_COMMITS):
            await self._published.before_write()
            newest = self._published.desired()
            if newest is None or newest.revision == desired.revision:
                return newest
            desired = newest
        await self._published.before_write()
        return desired

    def _next_write(self, desired: DesiredDocument) -> tuple[str, float]:
        """Return the reason for the next write, and in how many seconds it is due."""
        reason, due_seconds = self._difference(desired)
        now = now_seconds()
        if self._foreign.is_conflict and self._published.has_rival:
            self._forget_rival()
        elif self._foreign.end_if_over(now):
            self._report_conflict()
        if not self._foreign.is_conflict:
            return reason, due_seconds
        over_seconds = self._foreign.seconds_until_over(now)
        if due_seconds > 0:
            return reason, min(due_seconds, over_seconds)
        return "conflict", min(self._foreign.pause_seconds(now), over_seconds)

    def _forget_rival(self) -> None:
        self._foreign.forget("another agent with this node name wrote it")
        self._report_conflict()

    def _report_conflict(self) -> None:
        """Log and record that a conflict has begun or is over, if that is so."""
        self._foreign.report(log, self.name)
        if not self._foreign.is_conflict:
            self.record.conflict_since_ms = None
        elif self.record.conflict_since_ms is None:
            self.record.conflict_since_ms = self._wall_clock()

    def _difference(self, desired: DesiredDocument) -> tuple[str, float]:
        """Return the same as ``_next_write``, without regard to foreign writes."""
        if self._acknowledged is None:
            return "first", 0.0
        if desired.content != self._acknowledged.content:
            return "change", 0.0
        if self._document.differences(self._acknowledged.document):
            return "repair", 0.0
        refresh_seconds = self._refresh_share * desired.refresh_seconds
        return "refresh", max(0.0, self._acknowledged_at + refresh_seconds - now_seconds())

    def _seconds_for_watch(self) -> float:
        """Return for how many seconds the watch may still show the last write.

        A document that was deleted at once may have no event, and a watch may have been
        interrupted.
        """
        if not self._awaits_watch:
            return math.inf
        return self._acknowledged_at + _WATCH_SECONDS - now_seconds()

    # Requests.

    async def _write(self, write: _WriteRequest) -> _Pause | None:
        # There is nothing to delete: the store agrees without a request.
        if write.document is None and self._document.stored is None:
            self.record.waiting_since_ms = None
            self._works_again()
            self._agree(write)
            return None
        try:
            if write.document is not None:
                # Readers would drop such a document without a sign; the one that they have is
                # better.
                self._published.verify(write.document)
        except DocumentError as error:
            self.record.writes[INVALID] += 1
            self._begin_trouble(f"not written, its readers would refuse it: {error}")
            return _Pause(_REFUSED_SECONDS, self._woken)

        def is_overtaken() -> bool:
            # Only a refresh carries nothing new, so it alone gives way.
            newest = self._published.desired() if write.reason == "refresh" else None
            return newest is not None and newest.content != write.content

        # From here on it is about what this write does not carry.
        self.record.waiting_since_ms = None
        self._in_flight = write
        self._foreign.record_write(now_seconds())
        try:
            async with answered_within(WRITE_SECONDS):
                request = run_preemptibly(self._request(write), is_overtaken)
                version = await with_progress_marks(request, self._progress)
        except Preempted:
            self._unanswered.append(write)
            self._must_read = True
            return None
        except StoreError as error:
            self._unanswered.append(write)
            self._must_read = True
            # What it carried waits again, since the time when it was seen.
            if write.event_ms is not None:
                self.record.record_event(write.event_ms)
            # The store works, and another program was faster: read without a pause or a trouble.
            if isinstance(error, StoreConflict):
                self.record.writes[CONFLICT] += 1
                return None
            is_refused = isinstance(error, StoreRefused)
            self.record.writes[INVALID if is_refused else FAILED] += 1
            return self._trouble(str(error), refused=is_refused)
        finally:
            self._in_flight = None
        self._accept(write, version)
        return None

    async def _request(self, write: _WriteRequest) -> str:
        """Write the document in place of the stored one, or delete that; return the new version.

        A late request replaces and deletes nothing that was written after it. Except in a conflict:
        a program that writes all the time would always be between our read and our write.
        """
        document, demands = write.document, not self._foreign.is_conflict
        shown = self._document.stored
        # One that finalizers hold cannot be deleted now: it is updated whatever readers do.
        is_held = shown is not None and bool(shown.finalizers)
        if (
            document is not None
            and shown is not None
            and not is_held
            and self._published.blocks_updates(shown)
        ):
            await self._document.replace(self._store, None, demands=demands)
            self._document.record_stored(None)
        return await self._document.replace(
            self._store, document, demands=demands, remains=write.remains
        )

    async def _read(self) -> _Pause | None:
        # Before the request: a change while it is answered has to be read again.
        self._must_read = False
        is_watched, interruption = self.record.watch_trouble is None, self._interruption
        try:
            async with answered_within(READ_SECONDS):
                shown = await self._store.get(self.namespace, self.name)
        except StoreError as error:
            self._must_read = True
            return self._trouble(str(error), refused=isinstance(error, StoreRefused))
        before = self._document.stored
        self._document.record_stored(shown)
        await self._document.check_owners(self._store)
        # The read has shown what was awaited from the watch.
        self._awaits_watch = False
        if shown is not None:
            # Whoever wrote it: readers drop our next write unless its stamp is newer (decision 3).
            self._stamps.record_stored_stamp(self._published.stamp_of(shown))
        if not self._was_read:
            self._was_read = True
            self._first_shown = shown
            self._works_again()
            self._published.on_first_read(shown)
        # Before anything counts as foreign: it is a write of ours whose answer was lost.
        elif (write := self._arrived_unanswered(shown)) is not None:
            self._accept(write, "" if shown is None else shown.version)
        elif self._published.desired() is None:
            if not _same(before, shown):
                self._published.on_write_of_owner(before, shown)
        elif self._acknowledged is not None and self._is_news(shown, before):
            if self._is_lost_write(shown):
                log.warning(
                    "%s: the store lost the last write in an interruption; it is written again",
                    self.name,
                )
            else:
                await self._handle_foreign_write(before, shown)
        # An answer that was under way when the watch was interrupted is older than what comes back.
        if is_watched and self._interruption is interruption:
            self._interruption = None
        return None

    def _arrived_unanswered(self, shown: Document | None) -> _WriteRequest | None:
        """Return the write without an answer that the store shows, if there is one."""
        arrived = (write for write in reversed(self._unanswered) if _same(shown, write.document))
        return next(arrived, None)

    def _is_lost_write(self, shown: Document | None) -> bool:
        """Return whether an interrupted store shows nothing, or something older than our last
        write.

        That is neither a foreign write nor an operator's release. It is written again.
        """
        assert self._acknowledged is not None
        if self._interruption is None or self._published.desired() is None:
            return False
        if shown is None:
            return True
        stamp = self._published.stamp_of(shown)
        return stamp is not None and stamp < self._acknowledged.stamp

    def _is_news(self, shown: Document | None, before: Document | None) -> bool:
        """Return whether another program changed our keys since the last read."""
        assert self._acknowledged is not None
        if not self._document.differences(self._acknowledged.document):
            return False
        # A webhook changes each repair in the same way, so each answer counts as a change
        # (decision 13).
        is_answer = self._document.is_own_answer and self._foreign.is_write_intact
        is_changed = not _same(shown, before) or bool(self._document.dangling_owners)
        return is_answer or is_changed

    def _accept(self, write: _WriteRequest, version: str) -> None:
        if not self._document.acknowledge(write.document, version):
            self._must_read = True
        if write.document is not None:
            watched = self._watched_document
            # The watch may be faster than the answer; it has the keys of others, too.
            if watched is not None and watched.version == version:
                self._observe_same(watched, write.document)
            self._stamps.record_stored_stamp(write.stamp)
            self._stamps.record_write(now_seconds())
        self._unanswered.clear()
        self._awaits_watch = version != self._watched_version
        self._works_again()
        self.record.record_write(write.event_ms, self._wall_clock())
        self._agree(write)

    def _observe_same(self, watched: Document | None, written: Document | None) -> bool:
        """Take over what the watch shows, with keys of others, if it is what was ``written``."""
        is_same = _same(watched, written) and not self._document.must_check_owners(watched)
        if is_same:
            self._document.record_stored(watched)
        return is_same

    def _agree(self, write: _WriteRequest) -> None:
        """Record that the store has the document of ``write``."""
        self._acknowledged = write
        self._acknowledged_at = now_seconds()
        self._refresh_share = random.uniform(1 - _REFRESH_JITTER, 1)
        stamp = None if write.document is None else write.stamp
        self.record.record_agreement(self._wall_clock(), stamp, write.revision)
        self.agreed.set()
        self._published.on_acknowledged(write.document, write.revision, write.through)

    async def _handle_foreign_write(self, before: Document | None, shown: Document | None) -> None:
        """Repair a foreign write or deletion, in a conflict after a pause.

        An agent that has nothing to publish, such as one that gave way to another, does nothing.
        """
        if self._published.desired() is not None and self.record.conflict_since_ms is None:
            # Two agents with one name would repair each other's writes within milliseconds
            # (decision 5).
            await self._published.before_repair()
        if self._published.desired() is None:
            self._published.on_write_of_owner(before, shown)
            return
        if shown is not None and self._published.on_foreign_write(shown):
            return
        if self._published.has_rival:
            # While a rival lives, its writes count as our own (decision 13, rule 4).
            self._forget_rival()
            return
        if self._foreign.record_foreign_write(now_seconds()):
            await self._find_writer()
            await self._published.before_repair()
            if self._published.desired() is None:
                self._published.on_write_of_owner(before, shown)
                return
        if not self._foreign.is_conflict:
            change = "deleted or spoilt" if shown is None else "changed"
            log.warning("%s: another program %s it; it is repaired", self.name, change)
        self._report_conflict()

    async def _find_writer(self) -> None:
        """Find out which program writes the document besides us."""
        is_answer = self._document.is_own_answer and self._acknowledged is not None
        written = None if self._acknowledged is None else self._acknowledged.document
        # A webhook has no name in ``managedFields``; only what it changes can be shown
        # (decision 13).
        self._document.differing = self._document.differences(written) if is_answer else ()
        await self._document.find_writer(self._store)

    def _begin_trouble(self, reason: str) -> None:
        if self.record.trouble is None:
            self.record.trouble_since_ms = self._wall_clock()
            log.error("%s: cannot be published: %s; retried until it succeeds", self.name, reason)
        self.record.trouble = reason

    def _trouble(self, reason: str, *, refused: bool) -> _Pause:
        self._begin_trouble(reason)
        if refused:
            # Either pause ends early when the watch lists again, since the store is back then.
            return _Pause(_REFUSED_SECONDS, self._reconnected)
        return _Pause(self._backoff.next_seconds(), self._reconnected)

    def _works_again(self) -> None:
        self._backoff.reset()
        since_ms = self.record.trouble_since_ms
        self.record.trouble = self.record.trouble_since_ms = None
        if since_ms is not None:
            seconds = (self._wall_clock() - since_ms) / 1000
            log.warning("%s: the store answers again after %.1f s", self.name, seconds)

    # The watch.

    async def _watch(self) -> NoReturn:
        selection = Selection(self.namespace, self.name, owned=True)
        while True:
            try:
                async for event in self._store.watch(selection):
                    self._watched(event)
            except StoreError as error:
                if self.record.watch_trouble is None:
                    log.error("%s: cannot be watched: %s", self.name, error)
                self.record.begin_watch_trouble(str(error), self._wall_clock())
            # The watch connects again by itself; it ends only when waiting cannot help
            # (``Store.watch``).
            await asyncio.sleep(_WATCH_RETRY_SECONDS)
            # While there is no watch, only this read finds foreign writes.
            self._read_soon()

    def _watched(self, event: WatchEvent) -> None:
        if isinstance(event, Interrupted):
            self.record.begin_watch_trouble(event.reason, self._wall_clock())
            self._interruption = event
            return
        if isinstance(event, DocumentsListed):
            if self.record.watch_trouble is not None:
                self.record.end_watch_trouble()
                self._published.on_reconnected()
            self._reconnected.set()
            shown = next(iter(event.documents), None)
        else:
            shown = event.document if isinstance(event, Changed) else None
        self._watched_version = "" if shown is None else shown.version
        self._watched_document = shown
        if isinstance(event, Deleted):
            # An operator may have deleted what we were not allowed to.
            self._reconnected.set()
        if self._in_flight is not None:
            # The watch may show late what the request replaces; anything else would be missed.
            was_there = self._document.version
            if not _same(shown, self._in_flight.document) and (
                self._watched_version != was_there or isinstance(event, Deleted)
            ):
                self._read_soon()
        elif self._acknowledged is not None and self._observe_same(
            shown, self._acknowledged.document
        ):
            self._interruption = None
            self._awaits_watch = False
        elif shown is not None or self._document.stored is not None:
            self._read_soon()

    def _read_soon(self) -> None:
        self._must_read = True
        self._woken.set()
