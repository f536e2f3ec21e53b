"""Stores journal rows that nodes send, and published changes, in the history.

Each node receives an acknowledgement up to which row of its journal is stored. What arrives while
the disk is busy is stored together in the next commit. Beyond a limit of memory it is ignored: the
node sends it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections import deque
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, NoReturn, TypeVar

import msgspec

from aggregator.notify.history_file import (
    FILE_NAME,
    HistoryFile,
    StoredBatches,
    move_older_aside,
    read_changes,
    read_levels_at,
    read_page,
    read_published_levels,
    read_runs,
    read_spans,
)
from contract.errors import StoreError
from contract.pages.faults import names_of
from contract.pages.history import PublishedFault, PublishedPage, RecordedSpan
from contract.validation_texts import decode_text
from pacing.backoff import Backoff
from pacing.waiting import wait_for_event
from service.files.database import is_damaged, move_aside
from service.log.ongoing_failure import OngoingFailure
from service.tasks import in_thread
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from aggregator.notify.history_file import PublishedLevels
    from contract.pages.changes import FaultChange
    from contract.pages.history import HistoryPage, HistoryRange
    from service.clock import Clock
    from stores.base import EventChannel, HistoryAck, HistoryBatch

_log = logging.getLogger(__name__)

T = TypeVar("T")

_PRUNE_SECONDS = 60.0
_MAX_HELD_BATCHES = 2_000
_MAX_HELD_EVENTS = 20_000
_ANSWER_TIMEOUT_SECONDS = 5.0
_GATHER_SECONDS = 1.0
"""How long published changes are gathered: each commit waits for the disk, and no reader for this
one.
"""
_TROUBLE = (sqlite3.Error, OSError)


class HistoryStatus(msgspec.Struct):
    """State of the history. ``trouble`` is why it cannot be written, ``None`` while it can.

    ``events`` were stored by this process, ``lost`` rows were deleted from nodes' journals before
    they were sent, ``refused`` batches were not the next ones, ``left`` batches came while too many
    waited. ``published`` changes were stored, ``dropped`` changes came while too many waited.
    """

    stores: tuple[str, ...]
    trouble: str | None = None
    events: int = 0
    lost: int = 0
    refused: int = 0
    left: int = 0
    published: int = 0
    dropped: int = 0


class ClusterHistory:
    """The history in ``directory``: published changes, and batches from ``channels`` (by store
    URL).
    """

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
        self._came.set()  # so that a file that cannot be opened is logged at once
        self._file: HistoryFile | None = None
        self._trouble = OngoingFailure(
            _log,
            "history %s: %s; rows of journals stay at their nodes, published changes wait",
            "history %s: can be written again",
            self._path,
            level=logging.ERROR,
        )
        self._changes: deque[FaultChange] = deque()
        self._runs: dict[str, str | None] = {}
        """Runs of jobs that are to be stored, by uid."""
        self._began_ms = 0
        """Since when this process records everything; 0 before it is set."""
        self._status = HistoryStatus(tuple(channels))
        self._begins_with: PublishedLevels | None = None
        self._gathering: asyncio.TimerHandle | None = None
        # Before any reader: published levels of the old file would hide what happened since.
        self._move_older_aside()

    def _move_older_aside(self) -> None:
        """Move a file of an earlier schema aside. The new one has no recorded span before now,
        and nodes send again what their journals still have.
        """
        # A file that cannot be read is in trouble when it is opened for writing, and logged then.
        with contextlib.suppress(*_TROUBLE):
            aside = move_older_aside(self._path, self._clock().wall_ms)
            if aside is not None:
                _log.warning(
                    "history %s: has the schema of an earlier release; moved to %s. "
                    "A new history begins now",
                    *(self._path, aside),
                )

    async def run(self) -> NoReturn:
        """Receive and store until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for url, channel in self._channels.items():
                    tasks.create_task(
                        self._receive(url, channel), name=f"receive history over {url}"
                    )
                tasks.create_task(self._write(), name="history")
        finally:
            if self._gathering is not None:
                self._gathering.cancel()
            if self._changes or self._runs:
                with contextlib.suppress(*_TROUBLE):
                    now_ms = self._clock().wall_ms
                    self._store([], tuple(self._changes), self._runs, now_ms)
            self._close()
        raise AssertionError("the tasks never end")

    def status(self) -> HistoryStatus:
        """Return the state of the history now."""
        return msgspec.structs.replace(self._status, trouble=self._trouble.reason)

    async def published_levels(self) -> PublishedLevels | None:
        """Return the levels that an earlier run has published; ``None`` where that is not known."""
        try:
            return await asyncio.to_thread(read_published_levels, self._path)
        except _TROUBLE as error:
            _log.warning(
                "history %s: what was published before is not known: %s", self._path, error
            )
            return None

    def begin_levels(self, levels: PublishedLevels) -> None:
        """Set what is published now; it counts where the history has no published levels."""
        self._begins_with = levels
        self._came.set()

    def begin_span(self) -> None:
        """Set that everything is recorded from now on."""
        self._began_ms = self._began_ms or self._clock().wall_ms

    def record(self, changes: Iterable[FaultChange]) -> None:
        """Queue published changes; never waits for the disk.

        A process that is killed loses those of the last second.
        """
        for change in changes:
            if len(self._changes) >= _MAX_HELD_EVENTS:
                self._status.dropped += 1
            else:
                self._changes.append(change)
        self._gather()

    def keep_runs(self, runs: Mapping[str, str | None]) -> None:
        """Queue the runs of jobs, by uid; never waits for the disk."""
        self._runs.update(runs)
        self._gather()

    def _gather(self) -> None:
        if (self._changes or self._runs) and self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(_GATHER_SECONDS, self._gathered)

    def _gathered(self) -> None:
        self._gathering = None
        self._came.set()

    async def page(self, query: HistoryRange) -> HistoryPage:
        """Return a part of the history. Raises ``StoreError`` while it cannot be read."""
        return await self._read(partial(read_page, self._path, query))

    async def changes(self, nodes: Collection[str], since_ms: int) -> list[FaultChange]:
        """Return how the published state of nodes changed, the oldest first.

        Raises ``StoreError`` while that cannot be read.
        """
        waiting = [
            change for change in self._changes if change.node in nodes and change.at_ms >= since_ms
        ]
        stored = await self._read(partial(read_changes, self._path, nodes, since_ms))
        return [*stored, *(change for change in waiting if change not in stored)]

    async def runs(self) -> dict[str, str]:
        """Return the runs of jobs by uid. Raises ``StoreError`` while they cannot be read."""
        return await self._read(partial(read_runs, self._path))

    async def published_at(self, at_ms: int, node: str | None = None) -> PublishedPage:
        """Return what was published at a time, of ``node`` or of all nodes.

        Raises ``StoreError`` while it cannot be read. Changes of the last second may wait for the
        disk; they count as later ones.
        """
        levels = await self._read(partial(read_levels_at, self._path, at_ms, node))
        codes = sorted({code for faults in levels.values() for _, code in faults})
        spans = await self._spans(self._clock().wall_ms)
        return PublishedPage(
            at_ms=at_ms,
            is_recorded=any(began <= at_ms <= until for began, until in spans),
            recorded_since_ms=min((began for began, _ in spans), default=None),
            faults=tuple(
                PublishedFault(node, *key, level)
                for node, faults in sorted(levels.items())
                for key, level in sorted(faults.items())
            ),
            names={code: names for code in codes if (names := names_of(code))["summary"]},
            recorded=tuple(starmap(RecordedSpan, spans)),
        )

    async def _spans(self, now_ms: int) -> list[tuple[int, int]]:
        """Return from when until when all was recorded, in order; by this process until ``now_ms``.

        Spans that overlap are one.
        """
        spans = await self._read(partial(read_spans, self._path))
        # A process that dropped changes has gaps, whatever its span is.
        if self._began_ms and not self._status.dropped:
            spans.append((self._began_ms, now_ms))
        return _joined(spans)

    async def has_all(self, since_ms: int, until_ms: int) -> bool:
        """Return whether everything between two times (wall) was recorded.

        Raises ``StoreError`` while that cannot be read.
        """
        now_ms = self._clock().wall_ms
        spans = await self._spans(now_ms)
        until_ms = min(until_ms, now_ms)
        return since_ms >= until_ms or any(
            began <= since_ms and until_ms <= until for began, until in spans
        )

    async def _read(self, read: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(read)
        except (*_TROUBLE, msgspec.MsgspecError) as error:
            raise StoreError(f"{self._path} cannot be read: {decode_text(error)}") from error

    async def _receive(self, url: str, channel: EventChannel) -> NoReturn:
        async for event in channel.batches():
            if isinstance(event, Interrupted):
                continue  # the store logs that; nodes send again
            size = max(1, len(event.events))
            # The node sends again what was not acknowledged, so nothing is lost by this.
            if len(self._waiting) >= _MAX_HELD_BATCHES or self._waiting_events > _MAX_HELD_EVENTS:
                self._status.left += 1
                continue
            self._waiting.append((url, event))
            self._waiting_events += size
            self._came.set()
        raise StoreError(f"the history channel of {url} ended")

    async def _write(self) -> NoReturn:
        backoff = Backoff()
        next_prune_ms = 0
        while True:
            await wait_for_event(self._came, _PRUNE_SECONDS)
            # Before the batches are taken: one that arrives during the write starts another round.
            self._came.clear()
            batches = tuple(self._waiting)
            self._waiting.clear()
            self._waiting_events = 0
            now_ms, changes = self._clock().wall_ms, tuple(self._changes)
            runs, self._runs = self._runs, {}
            try:
                rows = [batch for _, batch in batches]
                stored = await in_thread(partial(self._store, rows, changes, runs, now_ms))
                if self._clock().steady_ms >= next_prune_ms:
                    assert self._file is not None
                    more = await in_thread(partial(self._file.prune, self._clock().wall_ms))
                    pause_ms = 50 if more else int(_PRUNE_SECONDS * 1000)
                    next_prune_ms = self._clock().steady_ms + pause_ms
            except _TROUBLE as error:
                # The nodes get no acknowledgement, and send again.
                self._runs = runs | self._runs
                await self._in_trouble(error, backoff)
                continue
            self._trouble.end()
            backoff.reset()
            self._status.events += stored.events
            self._status.lost += stored.lost
            self._status.refused += stored.refused
            await self._answer(batches, stored.acks)

    def _store(
        self,
        batches: list[HistoryBatch],
        changes: tuple[FaultChange, ...],
        runs: Mapping[str, str | None],
        now_ms: int,
    ) -> StoredBatches:
        if self._file is None:
            self._file = HistoryFile(self._path)
        if self._begins_with is not None:
            self._file.begin_levels(self._begins_with)
            self._begins_with = None
        stored = self._file.store_batches(batches, now_ms) if batches else StoredBatches(())
        if changes:
            self._file.store_changes(changes)
            # Only after the commit: changes that could not be stored stay queued.
            for _ in changes:
                self._changes.popleft()
            self._status.published += len(changes)
        if runs:
            self._file.store_runs(runs)
        if self._began_ms:
            self._file.extend_span(self._began_ms, now_ms)
        return stored

    async def _answer(
        self, batches: tuple[tuple[str, HistoryBatch], ...], acks: tuple[HistoryAck, ...]
    ) -> None:
        """Acknowledge over the channel of each batch what is stored of its journal."""
        channels = {(batch.node, batch.journal): url for url, batch in batches}
        # A node that does not receive this sends again, and is answered again.
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_ANSWER_TIMEOUT_SECONDS):
                for ack in acks:
                    await self._channels[channels[ack.node, ack.journal]].acknowledge(ack)

    async def _in_trouble(self, error: Exception, backoff: Backoff) -> None:
        self._trouble.record_failure(str(error))
        await in_thread(
            partial(self._close_after_trouble, is_damaged(error), self._clock().wall_ms)
        )
        await asyncio.sleep(backoff.next_seconds())
        self._came.set()

    def _close_after_trouble(self, broken: bool, now_ms: int) -> None:
        """Close the file, and move it aside where it is broken.

        With a new file the nodes send again what their journals still have.
        """
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


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in their order, those that overlap as one."""
    joined: list[tuple[int, int]] = []
    for began, until in sorted(spans):
        if joined and began <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], until)
        else:
            joined.append((began, until))
    return joined
