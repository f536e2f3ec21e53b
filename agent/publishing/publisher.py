"""Publishes one document until the store shows it, and keeps it that way.

Level-triggered: what is wanted is compared with what was acknowledged last and with what the store
shows. What is wanted may be that there is no document. One request is in flight at a time; what
changes meanwhile goes out together in the next one. The watch of the own document only says that it
is time to read it again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from agent.publishing.publication import Lag, Publication
from agent.publishing.update_time import Stamps
from contract.errors import DocumentError, StoreConflict, StoreError, StoreRefused
from pacing.backoff import Backoff
from pacing.waiting import is_set_within
from service.foreign_parts import differences
from service.owned_document import Overtaken, OwnedDocument, made_unless
from service.stalls import going_on
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
    from collections.abc import Awaitable, Callable

    from stores.base import Store, WatchEvent

log = logging.getLogger("agent.publisher")

_IDLE_SECONDS = 300.0
_TICK_SECONDS = 0.001
"""Timers may fire early by the resolution of their clock; what is left is not spun away."""
_MARK_SECONDS = 10.0
_COMMITS = 3
_BACKOFF_FIRST_SECONDS = 0.1
_BACKOFF_LAST_SECONDS = 2.0
_REFUSED_SECONDS = 10.0
_WATCH_AGAIN_SECONDS = 30.0
_UNSEEN_SECONDS = 0.5
"""How long a watch may take to show what was acknowledged, before it is read instead."""


@dataclass(frozen=True)
class DesiredDocument:
    """What is to be published, made from the state of ``revision``.

    ``content`` is everything but the stamp; a write is due when it differs from the last one's.
    ``stamped`` makes the document for a stamp in seconds; ``None``: there must be no document.
    After ``refresh_seconds`` an unchanged document is written again, so that readers see its age.
    """

    revision: int
    content: object
    stamped: Callable[[int], Document] | None
    refresh_seconds: float


def absent(revision: int) -> DesiredDocument:
    """There must be no document."""
    return DesiredDocument(revision, None, None, math.inf)


@dataclass(frozen=True)
class PublisherCallbacks:
    """What the publisher asks of its daemon and tells it.

    All but ``before_write`` and ``before_repair`` return at once.

    ``wanted`` is ``None`` while what is there must stay as it is. ``stamp_of`` reads the time of a
    stored document; ``None`` for one that makes no sense. ``verify`` raises ``DocumentError``.
    ``before_repair`` finds out whether the writing is still ours, when somebody else wrote.
    ``has_rival`` says whether another agent has the same node name: what it writes is no
    stranger's (``docs/decisions/005``).
    ``on_first_read`` gets what was stored at start; nothing is written or deleted before.
    ``on_others_write`` gets each later change while nothing is to be published: what was there, and
    what is.
    ``on_foreign`` gets what somebody else wrote and says whether that was an operator's right.
    ``on_acknowledged`` gets the document, ``None`` for its absence, and the revision.
    ``on_shown`` says that what is wanted now is what the store shows already: nothing is written.
    ``on_reconnected`` says that the store is watched again after an interruption.
    ``is_in_the_way`` says of what is shown that its readers would not take an update of it: it is
    deleted before the next write.
    """

    wanted: Callable[[], DesiredDocument | None]
    stamp_of: Callable[[Document], int | None]
    verify: Callable[[Document], None]
    before_write: Callable[[], Awaitable[None]]
    before_repair: Callable[[], Awaitable[None]]
    on_first_read: Callable[[Document | None], None]
    on_foreign: Callable[[Document], bool]
    on_acknowledged: Callable[[Document | None, int], None]
    on_shown: Callable[[], None]
    wall_clock: Callable[[], int]
    progress: Callable[[], None]
    is_in_the_way: Callable[[Document], bool] = lambda _: False
    has_rival: Callable[[], bool] = lambda: False
    on_others_write: Callable[[Document | None, Document | None], None] = lambda *_: None
    on_reconnected: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class _Write:
    """One request: to put ``document``, or where that is ``None`` to delete it."""

    document: Document | None
    content: object
    revision: int
    stamp: int
    reason: str
    begun_ms: int
    lag: Lag | None


@dataclass(frozen=True)
class _Pause:
    """Nothing to do for ``seconds``, or until the event is set."""

    seconds: float
    until: asyncio.Event


def _same(one: Document | None, other: Document | None) -> bool:
    """Equal in what is ours: the rest is other people's business."""
    return not differences(one, other)


class DocumentPublisher:
    """Publishes ``namespace/name`` to ``store``.

    It is a document writer, see ``service/owned_document.py``.
    """

    def __init__(self, store: Store, namespace: str, name: str, edges: PublisherCallbacks) -> None:
        self.name = name
        self._store = store
        self.namespace = namespace
        self._document = OwnedDocument(namespace, name)
        self._foreign = self._document.foreign
        self.record = Publication(self._foreign)
        self._edges = edges
        self._stamps = Stamps()
        self._woken = asyncio.Event()
        self._reconnected = asyncio.Event()
        self._was_read = False
        self._read_again = True
        self._looked_at: Document | None = None
        self._flying: _Write | None = None
        self._unsure: _Write | None = None
        self._acknowledged: _Write | None = None
        self._acknowledged_at = 0.0
        self._numbered: _Write | None = None
        self._number: int | None = None
        self._watched_version: str | None = None
        self._watched_document: Document | None = None
        self._is_unseen = False
        self._may_have_forgotten = False
        """Whether the store was away since what it shows was last judged."""
        self._backoff = Backoff(_BACKOFF_FIRST_SECONDS, _BACKOFF_LAST_SECONDS)

    @property
    def is_settled(self) -> bool:
        """Whether no change waits to be published or is on its way."""
        return self.record.waiting is None and self._flying is None

    @property
    def number(self) -> int | None:
        """The number of the last acknowledged write, negative where that was a deletion.

        ``None`` without one, and in a conflict: what is there then is not what was written.
        """
        write = self._acknowledged
        if write is None or self._foreign.is_conflict:
            return None
        if write is not self._numbered:
            self._numbered, document = write, write.document
            stamp = -write.stamp if document is None else self._edges.stamp_of(document)
            self._number = stamp
        return self._number

    def wake(self, event_ms: int) -> None:
        """Something that was seen at ``event_ms`` (epoch milliseconds) may want a write."""
        self.record.wakes(event_ms, self._edges.wall_clock())
        self._woken.set()

    def waits_for_store(self, error: StoreError) -> None:
        """Record that the store failed before the document could be read for the first time."""
        self._begin_trouble(str(error))

    async def run(self) -> NoReturn:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(), name=f"watch of {self.name}")
            while True:
                self._edges.progress()
                self._woken.clear()
                self._reconnected.clear()
                pause = await self._turn()
                if pause is not None:
                    await self._wait(pause)

    async def _wait(self, pause: _Pause) -> None:
        deadline = _now() + pause.seconds
        while not pause.until.is_set() and (left := deadline - _now()) > 0:
            self._edges.progress()
            await is_set_within(pause.until, max(_TICK_SECONDS, min(left, _MARK_SECONDS)))

    async def _turn(self) -> _Pause | None:
        """Read or write once, whatever comes first; ``None`` when there may be more to do."""
        if self._read_again:
            return await self._read()
        wanted = self._edges.wanted()
        if wanted is None:
            # What woke us is not for this document, or it must wait for something unknown.
            self.record.waiting = None
            if self._foreign.is_conflict:
                self._foreign.forget("it is not ours to write")
                self._report_conflict()
            return _Pause(_IDLE_SECONDS, self._woken)
        reason, due_seconds = self._why_write(wanted)
        if due_seconds > 0:
            if reason == "refresh":
                self.record.waiting = None
                self._edges.on_shown()
            unseen_seconds = self._unseen_seconds()
            if unseen_seconds <= 0:
                return await self._read()
            return _Pause(min(due_seconds, unseen_seconds), self._woken)
        shown = self._document.there
        if reason == "first" and shown is not None and self._is_edited(shown):
            return None
        now_ms = self._edges.wall_clock()
        stamp, early_seconds = self._stamps.next(now_ms, _now())
        if early_seconds > 0 and wanted.stamped is not None:
            return _Pause(early_seconds, self._woken)
        committed = await self._committed(wanted)
        if committed is None:
            return None
        wanted = committed
        document = None if wanted.stamped is None else wanted.stamped(stamp)
        lag = self.record.waiting
        return await self._write(
            _Write(document, wanted.content, wanted.revision, stamp, reason, now_ms, lag)
        )

    def _is_edited(self, shown: Document) -> bool:
        """Whether an operator changed something since the start, before anything was wanted."""
        looked_at, self._looked_at = self._looked_at, shown
        return not _same(shown, looked_at) and self._edges.on_foreign(shown)

    async def _committed(self, wanted: DesiredDocument) -> DesiredDocument | None:
        """Wait for the journal to have ``wanted``, or what has followed meanwhile.

        So the events of a burst go out together, without a wait that a single one would feel.
        ``None`` when what is there must stay after all.
        """
        for _ in range(_COMMITS):
            await self._edges.before_write()
            newest = self._edges.wanted()
            if newest is None or newest.revision == wanted.revision:
                return newest
            wanted = newest
        await self._edges.before_write()
        return wanted

    def _why_write(self, wanted: DesiredDocument) -> tuple[str, float]:
        """The reason for the next write, and in how many seconds it is due."""
        reason, due_seconds = self._what_differs(wanted)
        now = _now()
        if self._foreign.is_conflict and self._edges.has_rival():
            self._forget_rival()
        elif self._foreign.ended(now):
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
            self.record.conflict_since_ms = self._edges.wall_clock()

    def _what_differs(self, wanted: DesiredDocument) -> tuple[str, float]:
        """The same as if nobody else wrote."""
        if self._acknowledged is None:
            return "first", 0.0
        if wanted.content != self._acknowledged.content:
            return "change", 0.0
        if self._document.differences(self._acknowledged.document):
            return "repair", 0.0
        return "refresh", max(0.0, self._acknowledged_at + wanted.refresh_seconds - _now())

    def _unseen_seconds(self) -> float:
        """For how long a watch may still show the last write. Who deletes a document at once may
        leave it nothing to show, and a watch may have been interrupted."""
        if not self._is_unseen:
            return math.inf
        return self._acknowledged_at + _UNSEEN_SECONDS - _now()

    # Requests.

    async def _write(self, write: _Write) -> _Pause | None:
        if write.document is None and self._document.there is None:
            self.record.waiting = None
            self._agree(write)
            return None
        try:
            if write.document is not None:
                self._edges.verify(write.document)
        except DocumentError as error:
            self.record.writes[write.reason, "invalid"] += 1
            self._begin_trouble(f"not written, its readers would refuse it: {error}")
            return _Pause(_REFUSED_SECONDS, self._woken)

        def is_overtaken() -> bool:
            newest = self._edges.wanted() if write.reason == "refresh" else None
            return newest is not None and newest.content != write.content

        self.record.waiting = None
        self._flying = write
        self._foreign.wrote(_now())
        try:
            async with answered_within(WRITE_SECONDS):
                request = made_unless(self._request(write.document), is_overtaken)
                version = await going_on(request, self._edges.progress)
        except Overtaken:
            self._unsure = write
            self._read_again = True
            return None
        except StoreError as error:
            self._unsure = write
            self._read_again = True
            if write.lag is not None:
                self.record.waits_again(write.lag)
            if isinstance(error, StoreConflict):
                self.record.writes[write.reason, "conflict"] += 1
                return None
            self.record.writes[write.reason, "failed"] += 1
            return self._trouble(str(error), refused=isinstance(error, StoreRefused))
        finally:
            self._flying = None
        self._accept(write, version)
        return None

    async def _request(self, document: Document | None) -> str:
        """Put ``document`` in the place of what is shown, or delete that; the new version.

        One that arrives late replaces and deletes nothing that was written after it. Except in a
        conflict: who writes all the time would always be there between our look and our write.
        """
        demands = not self._foreign.is_conflict
        shown = self._document.there
        if document is not None and shown is not None and self._edges.is_in_the_way(shown):
            await self._document.replace(self._store, None, demands=demands)
            self._document.observe(None)
        return await self._document.replace(self._store, document, demands=demands)

    async def _read(self) -> _Pause | None:
        # Before the request: what changes while it is answered has to be read again.
        self._read_again = False
        is_watched = self.record.watch_trouble is None
        try:
            async with answered_within(READ_SECONDS):
                shown = await self._store.get(self.namespace, self.name)
        except StoreError as error:
            self._read_again = True
            return self._trouble(str(error), refused=isinstance(error, StoreRefused))
        before = self._document.there
        self._document.observe(shown)
        self._is_unseen = False
        if shown is not None:
            self._stamps.saw(self._edges.stamp_of(shown))
        if not self._was_read:
            self._was_read = True
            self._looked_at = shown
            self._works_again()
            self._edges.on_first_read(shown)
        elif self._unsure is not None and _same(shown, self._unsure.document):
            self._accept(self._unsure, "" if shown is None else shown.version)
        elif self._edges.wanted() is None:
            if not _same(before, shown):
                self._edges.on_others_write(before, shown)
        elif self._acknowledged is not None and self._is_news(shown, before):
            if self._is_forgotten(shown):
                log.warning("%s: the store came back without its last write", self.name)
            else:
                await self._was_changed(before, shown)
        if is_watched:
            self._may_have_forgotten = False
        return None

    def _is_forgotten(self, shown: Document | None) -> bool:
        """Whether a store that was away shows nothing, or something older than our last write.

        That is nobody's foreign write, and no operator's release. It is written again.
        """
        assert self._acknowledged is not None
        if not self._may_have_forgotten or self._edges.wanted() is None:
            return False
        if shown is None:
            return True
        stamp = self._edges.stamp_of(shown)
        return stamp is not None and stamp < self._acknowledged.stamp

    def _is_news(self, shown: Document | None, before: Document | None) -> bool:
        """Whether somebody else changed what is ours since the last look."""
        assert self._acknowledged is not None
        if _same(shown, self._acknowledged.document):
            return False
        is_answer = self._document.is_own_answer and self._foreign.stands
        return is_answer or not _same(shown, before)

    def _accept(self, write: _Write, version: str) -> None:
        if not self._document.acknowledge(write.document, version):
            self._read_again = True
        if write.document is not None:
            watched = self._watched_document
            if watched is not None and watched.version == version:
                self._observe_same(watched, write.document)
            self._stamps.saw(write.stamp)
            self._stamps.wrote(_now())
        self._unsure = None
        self._is_unseen = version != self._watched_version
        self._works_again()
        self.record.acknowledged(write.reason, write.lag, write.begun_ms, self._edges.wall_clock())
        self._agree(write)

    def _observe_same(self, watched: Document | None, written: Document | None) -> bool:
        """Take in what the watch shows, with what others added, if it is what was ``written``."""
        is_same = _same(watched, written)
        if is_same:
            self._document.observe(watched)
        return is_same

    def _agree(self, write: _Write) -> None:
        """The store shows what ``write`` wants."""
        self._acknowledged = write
        self._acknowledged_at = _now()
        stamp = None if write.document is None else write.stamp
        self.record.agrees(self._edges.wall_clock(), stamp, write.revision)
        self._edges.on_acknowledged(write.document, write.revision)

    async def _was_changed(self, before: Document | None, shown: Document | None) -> None:
        """Somebody else wrote or deleted the document: repaired, in a conflict after a pause.

        Who has nothing to publish, such as an agent that gave way to another, leaves it alone.
        """
        if self._edges.wanted() is not None and self.record.conflict_since_ms is None:
            await self._edges.before_repair()
        if self._edges.wanted() is None:
            self._edges.on_others_write(before, shown)
            return
        if shown is not None and self._edges.on_foreign(shown):
            return
        if self._edges.has_rival():
            self._forget_rival()
            return
        if self._foreign.saw(_now()):
            await self._find_writer()
            await self._edges.before_repair()
            if self._edges.wanted() is None:
                self._edges.on_others_write(before, shown)
                return
        if not self._foreign.is_conflict:
            what = "deleted or spoilt" if shown is None else "changed"
            log.warning("%s: somebody else %s it; it is repaired", self.name, what)
        self._report_conflict()

    async def _find_writer(self) -> None:
        """Find out who writes the document besides us."""
        is_answer = self._document.is_own_answer and self._acknowledged is not None
        written = None if self._acknowledged is None else self._acknowledged.document
        self._document.differing = self._document.differences(written) if is_answer else ()
        await self._document.find_writer(self._store)

    def _begin_trouble(self, reason: str) -> None:
        if self.record.trouble is None:
            self.record.trouble_since_ms = self._edges.wall_clock()
            log.error("%s: cannot be published: %s; tried until it can", self.name, reason)
        self.record.trouble = reason

    def _trouble(self, reason: str, *, refused: bool) -> _Pause:
        self._begin_trouble(reason)
        if refused:
            return _Pause(_REFUSED_SECONDS, self._reconnected)
        return _Pause(self._backoff.next_seconds(), self._reconnected)

    def _works_again(self) -> None:
        self._backoff.reset()
        since_ms = self.record.trouble_since_ms
        self.record.trouble = self.record.trouble_since_ms = None
        if since_ms is not None:
            seconds = (self._edges.wall_clock() - since_ms) / 1000
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
                self.record.watch_fails(str(error), self._edges.wall_clock())
            await asyncio.sleep(_WATCH_AGAIN_SECONDS)
            self._look_again()

    def _watched(self, event: WatchEvent) -> None:
        if isinstance(event, Interrupted):
            self.record.watch_fails(event.reason, self._edges.wall_clock())
            self._may_have_forgotten = True
            return
        if isinstance(event, DocumentsListed):
            if self.record.watch_trouble is not None:
                self.record.watch_works()
                self._edges.on_reconnected()
            self._reconnected.set()
            shown = next(iter(event.documents), None)
        else:
            shown = event.document if isinstance(event, Changed) else None
        self._watched_version = "" if shown is None else shown.version
        self._watched_document = shown
        if isinstance(event, Deleted):
            # Who was told to delete what we may not has done so.
            self._reconnected.set()
        if self._flying is not None:
            # What the request replaces may be shown late; anything else, nobody would see later.
            was_there = self._document.version
            if not _same(shown, self._flying.document) and (
                self._watched_version != was_there or isinstance(event, Deleted)
            ):
                self._look_again()
        elif self._acknowledged is not None and self._observe_same(
            shown, self._acknowledged.document
        ):
            self._may_have_forgotten = False
            self._is_unseen = False
        elif shown is not None or self._document.there is not None:
            self._look_again()

    def _look_again(self) -> None:
        self._read_again = True
        self._woken.set()


def _now() -> float:
    """Seconds of a steady clock."""
    return asyncio.get_running_loop().time()
