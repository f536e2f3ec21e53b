"""Takes what the nodes tell, and what is published, into the history.

Nodes are told what is kept of what they told.

What comes while the disk is busy is taken together in the next commit. Beyond what memory is
meant for it is left: whoever told it tells it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import msgspec

from aggregator.notify.history_file import (
    FILE_NAME,
    HistoryFile,
    Taken,
    read_page,
    read_standing,
)
from contract.errors import StoreError
from contract.validation_texts import decode_text
from pacing.backoff import Backoff
from pacing.waiting import is_set_within
from service.database import is_damaged, move_aside
from service.tasks import in_thread
from service.trouble import Trouble
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from aggregator.notify.history_file import Standing
    from contract.pages.changes import FaultChange
    from contract.pages.history import HistoryPage, HistoryRange
    from service.clock import Clock
    from stores.base import EventChannel, HistoryAck, HistoryBatch

_log = logging.getLogger(__name__)

_MAX_BYTES = 256 << 20
_MAX_AGE_MS = 90 * 86_400_000
_PRUNE_SECONDS = 60.0
_HELD_BATCHES = 2_000
_HELD_EVENTS = 20_000
_ANSWER_SECONDS = 5.0
_GATHER_SECONDS = 1.0
"""What is published waits for so long: each commit waits for the disk, and nobody for this one."""
_TROUBLE = (sqlite3.Error, OSError)


class HistoryStatus(msgspec.Struct, frozen=True):
    """How the history is kept. ``trouble`` is ``None`` while it is.

    ``events`` were taken by this process, ``lost`` rows were gone from nodes' journals before they
    told them, ``refused`` tellings were not the next ones, ``left`` ones came while too many
    waited. ``published`` changes were taken, ``dropped`` ones came while too many waited.
    """

    stores: tuple[str, ...]
    trouble: str | None = None
    events: int = 0
    lost: int = 0
    refused: int = 0
    left: int = 0
    published: int = 0
    dropped: int = msgspec.field(default=0, name="unkept")


class ClusterHistory:
    """The history in ``directory``: what is published, and what is told over ``channels`` (by
    store)."""

    def __init__(
        self,
        directory: Path,
        channels: Mapping[str, EventChannel],
        clock: Clock,
    ) -> None:
        self._path = directory / FILE_NAME
        self._channels = channels
        self._clock = clock
        self._waiting: deque[tuple[str, HistoryBatch]] = deque()
        self._waiting_events = 0
        self._came = asyncio.Event()
        self._came.set()  # a file that cannot be opened is said at once
        self._file: HistoryFile | None = None
        self._trouble = Trouble(
            _log,
            "history %s: %s; what nodes tell stays with them, what is published waits",
            "history %s: is kept again",
            self._path,
            level=logging.ERROR,
        )
        self._events = self._lost = self._refused = self._left = 0
        self._changes: deque[FaultChange] = deque()
        self._published = self._dropped = 0
        self._begins_with: Standing | None = None
        self._gathering: asyncio.TimerHandle | None = None

    async def run(self) -> NoReturn:
        """Take what is told until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for url, channel in self._channels.items():
                    tasks.create_task(self._listen(url, channel), name=f"tellings of {url}")
                tasks.create_task(self._keep(), name="history")
        finally:
            if self._gathering is not None:
                self._gathering.cancel()
            if self._changes:
                with contextlib.suppress(*_TROUBLE):
                    self._take([], tuple(self._changes), 0)
            self._close()
        raise AssertionError("the tasks never end")

    def status(self) -> HistoryStatus:
        """How it is now."""
        return HistoryStatus(
            stores=tuple(self._channels),
            trouble=self._trouble.reason,
            events=self._events,
            lost=self._lost,
            refused=self._refused,
            left=self._left,
            published=self._published,
            dropped=self._dropped,
        )

    async def standing(self) -> Standing | None:
        """What an earlier run has kept as published; ``None`` where that is not known."""
        try:
            return await asyncio.to_thread(read_standing, self._path)
        except _TROUBLE as error:
            _log.warning(
                "history %s: what was published before is not known: %s", self._path, error
            )
            return None

    def begin(self, standing: Standing) -> None:
        """This is published now; it counts where the history does not know."""
        self._begins_with = standing
        self._came.set()

    def note(self, changes: Iterable[FaultChange]) -> None:
        """Take what changed in what is published; never waits for the disk. A process that is
        killed takes the last second of it along.
        """
        for change in changes:
            if len(self._changes) >= _HELD_EVENTS:
                self._dropped += 1
            else:
                self._changes.append(change)
        if self._changes and self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(_GATHER_SECONDS, self._gathered)

    def _gathered(self) -> None:
        self._gathering = None
        self._came.set()

    async def page(self, asked: HistoryRange) -> HistoryPage:
        """A part of the history. Raises ``StoreError`` while it cannot be read."""
        try:
            return await asyncio.to_thread(read_page, self._path, asked)
        except (*_TROUBLE, msgspec.MsgspecError) as error:
            raise StoreError(f"{self._path} cannot be read: {decode_text(error)}") from error

    async def _listen(self, url: str, channel: EventChannel) -> NoReturn:
        async for event in channel.batches():
            if isinstance(event, Interrupted):
                continue  # the watch of the store says so; nodes tell again
            size = max(1, len(event.events))
            if len(self._waiting) >= _HELD_BATCHES or self._waiting_events > _HELD_EVENTS:
                self._left += 1
                continue
            self._waiting.append((url, event))
            self._waiting_events += size
            self._came.set()
        raise StoreError(f"the tellings of {url} ended")

    async def _keep(self) -> NoReturn:
        backoff = Backoff()
        next_prune_ms = 0
        while True:
            await is_set_within(self._came, _PRUNE_SECONDS)
            self._came.clear()
            batches = tuple(self._waiting)
            self._waiting.clear()
            self._waiting_events = 0
            changes = tuple(self._changes)
            try:
                rows = [one for _, one in batches]
                taken = await in_thread(partial(self._take, rows, changes, self._clock().wall_ms))
                if self._clock().steady_ms >= next_prune_ms:
                    more = await in_thread(partial(self._prune, self._clock().wall_ms))
                    pause_ms = 50 if more else int(_PRUNE_SECONDS * 1000)
                    next_prune_ms = self._clock().steady_ms + pause_ms
            except _TROUBLE as error:
                # Whoever told it is not answered, and tells it again.
                await self._in_trouble(error, backoff)
                continue
            self._trouble.end()
            backoff.reset()
            self._events += taken.events
            self._lost += taken.lost
            self._refused += taken.refused
            await self._answer(batches, taken.acks)

    def _take(
        self, batches: list[HistoryBatch], changes: tuple[FaultChange, ...], now_ms: int
    ) -> Taken:
        if self._file is None:
            self._file = HistoryFile(self._path)
        if self._begins_with is not None:
            self._file.begin(self._begins_with)
            self._begins_with = None
        taken = self._file.take(batches, now_ms) if batches else Taken(())
        if changes:
            self._file.note(changes)
            for _ in changes:
                self._changes.popleft()
            self._published += len(changes)
        return taken

    def _prune(self, now_ms: int) -> bool:
        assert self._file is not None
        oldest_ms = now_ms - _MAX_AGE_MS
        return self._file.prune(older_than_ms=oldest_ms, max_bytes=_MAX_BYTES)

    async def _answer(
        self, batches: tuple[tuple[str, HistoryBatch], ...], acks: tuple[HistoryAck, ...]
    ) -> None:
        """Say over the way that a node's telling came what is kept of it."""
        ways = {(one.node, one.journal): url for url, one in batches}
        # A node that does not hear this tells again, and is answered again.
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                for one in acks:
                    await self._channels[ways[one.node, one.journal]].acknowledge(one)

    async def _in_trouble(self, error: Exception, backoff: Backoff) -> None:
        self._trouble.begin(str(error))
        await in_thread(partial(self._put_away, is_damaged(error), self._clock().wall_ms))
        await asyncio.sleep(backoff.next_seconds())
        self._came.set()

    def _put_away(self, broken: bool, now_ms: int) -> None:
        """With a new file the nodes tell again what their journals still have."""
        self._close()
        if broken:
            with contextlib.suppress(OSError):
                aside = move_aside(self._path, now_ms)
                _log.error("history %s: is broken; moved to %s", self._path, aside.name)

    def _close(self) -> None:
        with contextlib.suppress(*_TROUBLE):
            if self._file is not None:
                self._file.close()
        self._file = None
