"""The journal: everything that was reported, decided and published, in order.

``append`` never blocks. A thread commits what was appended; another one syncs it to the disk within
about a second. A journal that fails keeps in memory what it can, and writes it as soon as the disk
accepts it. The caller sets how long a publication waits for a commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from agent.journal.file import (
    FILE_NAME,
    MAX_AGE_MS,
    MAX_BYTES,
    JournalFile,
    moved_aside,
    sync_to_disk,
)
from agent.journal.rows import JournalRow, RowKind, body_of
from contract.errors import JournalError
from contract.pages.agent_status import JournalStatus
from contract.plural import plural
from pacing.repeating_thread import repeat_in_thread
from service.log.ongoing_failure import OngoingFailure
from service.log.paced_lines import PERIOD_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

log = logging.getLogger("agent.journal")

_MAX_HELD_BYTES = 8 << 20
_RETRY_SECONDS = 0.5
_SYNC_SECONDS = 1.0
_PRUNE_SECONDS = 60.0
_CLOSE_SECONDS = 2.0
_ROW_BYTES = 64
# SQLite without memory is a ``MemoryError``.
_TROUBLE = (sqlite3.Error, OSError, JournalError, MemoryError)
HANGS_SECONDS = 5.0


class Journal:
    """The journal of one agent, used from one event loop.

    ``on_recovered`` is called on the loop when rows may be missing behind the journal's trouble:
    the owner then appends a snapshot, which makes the journal complete again.
    """

    def __init__(
        self,
        directory: Path,
        *,
        first_sequence: int,
        wall_clock: Callable[[], int],
        on_recovered: Callable[[], None],
        max_bytes: int = MAX_BYTES,
        held_bytes: int = _MAX_HELD_BYTES,
    ) -> None:
        self._path = directory / FILE_NAME
        self.acknowledged: int | None = None
        """The sequence up to which an aggregator has the changes: retention may delete them.

        ``None`` where none is sent them.
        """
        self._wall_clock = wall_clock
        self._on_recovered = on_recovered
        self._on_changes: list[Callable[[int], None]] = []
        self._max_bytes = max_bytes
        self._held_bytes_limit = held_bytes
        self._loop = asyncio.get_running_loop()
        self._next_sequence = first_sequence
        self._committed = first_sequence - 1
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._gaps = 0
        self._dropped_logged = 0
        self._trouble: str | None = None
        self._trouble_since_ms: int | None = None
        self._slow = SlowCommits(self._path)
        # Shared with the threads, guarded by the condition.
        lock = threading.Lock()
        self._condition = threading.Condition(lock)
        self._sync_due = threading.Condition(lock)
        """The syncing thread waits for it: it must not wake up for rows that are not written."""
        self._queue: deque[JournalRow] = deque()
        self._queued_bytes = 0
        self._dropped = 0
        self._unacknowledged = 0
        self._written = 0
        self._unsynced = OngoingFailure(
            log,
            "journal %s: cannot be synced to the disk: %s",
            "journal %s: is synced to the disk again",
            self._path,
            level=logging.ERROR,
        )
        self._dirty = False
        self._closing = False
        self._renaming = False
        # Used by the writing thread alone.
        self._file: JournalFile | None = None
        self._next_prune = time.monotonic() + _PRUNE_SECONDS
        self._threads: list[threading.Thread] = []
        self._start_threads()

    def _start_threads(self) -> None:
        self._threads = [
            repeat_in_thread(self._write_next, "journal"),
            repeat_in_thread(self._sync_next, "journal-sync"),
        ]

    def notify(self, on_changes: Callable[[int], None]) -> None:
        """Call ``on_changes`` on the loop with the number of committed rows of changes."""
        self._on_changes.append(on_changes)

    def append(self, entries: Iterable[tuple[RowKind, str]], at_ms: int) -> int:
        """Queue ``entries`` (kind, JSON) for the next commit.

        Returns the sequence of the last one.
        """
        with self._condition:
            for kind, body in entries:
                self._queue.append(JournalRow(self._next_sequence, at_ms, kind, body))
                self._queued_bytes += len(body) + _ROW_BYTES
                self._next_sequence += 1
            # The oldest rows go: the snapshot after the trouble replaces what a restart needs of
            # them.
            while self._queued_bytes > self._held_bytes_limit and len(self._queue) > 1:
                self._queued_bytes -= len(self._queue.popleft().body) + _ROW_BYTES
                self._dropped += 1
            self._condition.notify()
        return self._next_sequence - 1

    def rename(self) -> None:
        """Give the journal another name, which the thread does soon: all changes are
        unacknowledged.
        """
        self.acknowledged = 0
        with self._condition:
            self._renaming = True
            self._condition.notify()

    @property
    def last_sequence(self) -> int:
        """The sequence of the row appended last."""
        return self._next_sequence - 1

    async def committed(self, sequence: int, within_seconds: float) -> bool:
        """Wait until ``sequence`` is committed, at most ``within_seconds``; return whether it is.

        Returns at once while the journal is known to be in trouble. ``False`` leaves a gap mark.
        """
        if self._committed >= sequence:
            return True
        if self._trouble is not None:
            return False
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((sequence, waiter))
        try:
            async with asyncio.timeout(within_seconds):
                await waiter
        except TimeoutError:
            if self._trouble is None:
                self._slow.begin_slow_commit(within_seconds)
                self._mark(f"a commit takes longer than {within_seconds * 1000:.0f} ms")
            return False
        return self._committed >= sequence

    def status(self) -> JournalStatus:
        """Return the state of the journal now."""
        with self._condition:
            return JournalStatus(
                trouble=self._trouble,
                trouble_since_ms=self._trouble_since_ms,
                gaps=self._gaps,
                rows_written=self._written,
                rows_held=len(self._queue),
                rows_dropped=self._dropped,
                unsynced=self._unsynced.reason,
                changes_unacknowledged=self._unacknowledged,
            )

    async def close(self) -> bool:
        """Commit and sync the rows in memory; return whether all are written.

        Gives up after two seconds.

        A thread that hangs in the kernel is left behind: it must not block the end of the process.
        """
        self._slow.close()
        with self._condition:
            self._closing = True
            self._condition.notify()
            self._sync_due.notify()
        # Not through the loop's executor: its threads block the end of a process.
        for pause_seconds in [0.005] * int(_CLOSE_SECONDS / 0.005):
            if not any(thread.is_alive() for thread in self._threads):
                break
            await asyncio.sleep(pause_seconds)
        with self._condition:
            return not self._queue and not any(thread.is_alive() for thread in self._threads)

    # On the loop.

    def _begin_trouble(self, reason: str) -> None:
        # A slow commit has marked its gap without an error in the log.
        if self._trouble is None or self._slow.end_commit():
            log.error("journal %s: %s; publishing continues without it", self._path, reason)
            self._mark(reason)

    def _mark(self, reason: str) -> None:
        """Begin a gap, and release all callers that wait for a commit."""
        if self._trouble is None:
            self._trouble_since_ms = self._wall_clock()
            self._gaps += 1
        self._trouble = reason
        self._release_waiters(self._next_sequence)

    def _release_waiters(self, sequence: int) -> None:
        """Release the callers that wait for the commit of ``sequence`` or of one before it."""
        while self._waiters and self._waiters[0][0] <= sequence:
            waiter = self._waiters.popleft()[1]
            # Its caller may have given up after the 20 ms of decision 2.
            if not waiter.done():
                waiter.set_result(None)

    def _rows_committed(self, sequence: int, dropped: int, changes: int) -> None:
        self._committed = sequence
        if changes:
            for on_changes in self._on_changes:
                on_changes(changes)
        self._release_waiters(sequence)
        if self._trouble is None or self._closing:
            return
        now_ms = self._wall_clock()
        lost = dropped - self._dropped_logged
        self._dropped_logged = dropped
        if not self._slow.end_commit() or lost:
            log.warning(
                "journal %s: rows are committed again (%s lost)", self._path, plural(lost, "row")
            )
        gap = {"since_ms": self._trouble_since_ms, "reason": self._trouble, "rows_lost": lost}
        self._trouble = self._trouble_since_ms = None
        self.append([(RowKind.GAP, body_of(gap))], now_ms)
        self._on_recovered()

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        # The loop is closed when the process ends before this thread does.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    # On the writing thread.

    def _write_next(self) -> bool:
        """Wait for rows, and commit them; return whether there may be more."""
        with self._condition:
            if not self._queue and not self._closing and not self._renaming:
                self._condition.wait(max(0.0, self._next_prune - time.monotonic()))
            is_over = not self._queue and self._closing
        if not is_over and not self._write_waiting():
            with self._condition:
                is_over = self._closing or self._condition.wait_for(
                    lambda: self._closing, _RETRY_SECONDS
                )
        if is_over:
            self._close_file()
        return not is_over

    def _write_waiting(self) -> bool:
        """Commit the rows that wait, and do what else is due; return whether the disk did it."""
        with self._condition:
            # Copied, not taken: they stay in the queue until a commit has succeeded.
            rows = tuple(self._queue)
        try:
            if self._file is None:
                self._file = JournalFile(self._path)
            elif not self._file.is_in_place():
                # SQLite would go on writing into a file that no restart finds.
                raise JournalError("the file was removed or replaced")
            if rows:
                self._file.write(rows)
                self._dequeue(rows)
            if self._renaming:
                self._file.rename()
                self._renaming = False
            if time.monotonic() >= self._next_prune:
                may_be_more = self._prune(self._file)
                # Rows that wait are committed between two parts of a long deletion.
                pause_seconds = 0.05 if may_be_more else _PRUNE_SECONDS
                self._next_prune = time.monotonic() + pause_seconds
        except _TROUBLE as error:
            self._call(self._begin_trouble, str(error) or "there is no memory")
            self._close_file()
            moved_aside(self._path, error, self._wall_clock())
            return False
        return True

    def _dequeue(self, rows: tuple[JournalRow, ...]) -> None:
        with self._condition:
            last = rows[-1].sequence
            while self._queue and self._queue[0].sequence <= last:
                self._queued_bytes -= len(self._queue.popleft().body) + _ROW_BYTES
            self._written += len(rows)
            dropped = self._dropped
        changes = sum(row.kind == RowKind.CHANGES for row in rows)
        self._call(self._rows_committed, last, dropped, changes)
        # Behind the callback: a publication waits for that.
        with self._condition:
            if not self._dirty:
                self._dirty = True
                self._sync_due.notify()

    def _prune(self, file: JournalFile) -> bool:
        """Delete some old rows; return whether there may be more to delete."""
        pruned = file.prune(
            older_than_ms=self._wall_clock() - MAX_AGE_MS,
            max_bytes=self._max_bytes,
            acknowledged=self.acknowledged,
        )
        if pruned.unacknowledged and not self._unacknowledged:
            log.error(
                "journal %s: is full; changes that no aggregator acknowledged are deleted",
                self._path,
            )
        with self._condition:
            self._unacknowledged += pruned.unacknowledged
        return pruned.may_be_more

    def _close_file(self) -> None:
        file, self._file = self._file, None
        with contextlib.suppress(*_TROUBLE):
            if file is not None:
                file.close()

    # On the syncing thread.

    def _sync_next(self) -> bool:
        """Wait for commits, and sync them; return whether there may be more."""
        with self._condition:
            self._sync_due.wait_for(lambda: self._closing or self._dirty)
            # All commits of this time share one sync.
            self._sync_due.wait_for(lambda: self._closing, _SYNC_SECONDS)
            closing, dirty = self._closing, self._dirty
            self._dirty = False
        if closing:
            # The last commit comes before the last sync.
            self._threads[0].join()
        if dirty or closing:
            self._sync()
        return not closing

    def _sync(self) -> None:
        try:
            sync_to_disk(self._path)
        except _TROUBLE as error:
            self._unsynced.record_failure(str(error))
            with self._condition:
                self._dirty = True
        else:
            self._unsynced.end()


class SlowCommits:
    """Times and counts the slow commits of the journal at ``path``, from one event loop.

    A publication does not wait for them. A busy disk takes more than 20 ms for many commits, each
    of which costs a gap mark and no more (decision 2): one line a minute. One that hangs is an
    ERROR.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began: float | None = None
        self._hang: asyncio.TimerHandle | None = None
        self._minute: asyncio.TimerHandle | None = None
        self._count = 0
        self._longest_seconds = 0.0

    def begin_slow_commit(self, waited_seconds: float) -> None:
        """Record that a commit is not done after ``waited_seconds``."""
        loop = asyncio.get_running_loop()
        self._began = loop.time() - waited_seconds
        self._hang = loop.call_later(HANGS_SECONDS - waited_seconds, self._hangs)

    def end_commit(self) -> bool:
        """End the time of the slow commit; return whether there was one that did not hang."""
        if self._hang is None or self._began is None:
            return False
        seconds = asyncio.get_running_loop().time() - self._began
        self._hang.cancel()
        self._hang = None
        self._count += 1
        self._longest_seconds = max(self._longest_seconds, seconds)
        if self._minute is None:
            self._log_state()
        return True

    def close(self) -> None:
        """Log the slow commits since the last line, and stop the timers."""
        for timer in (self._hang, self._minute):
            if timer is not None:
                timer.cancel()
        self._hang = self._minute = None
        if self._count:
            self._write()

    def _log_state(self) -> None:
        self._minute = None
        if self._count:
            self._write()
            self._minute = asyncio.get_running_loop().call_later(PERIOD_SECONDS, self._log_state)

    def _write(self) -> None:
        log.warning(
            "journal %s: %s, the longest took %.0f ms; publishing continued meanwhile",
            self._path,
            plural(self._count, "slow commit"),
            self._longest_seconds * 1000,
        )
        self._count = 0
        self._longest_seconds = 0.0

    def _hangs(self) -> None:
        self._hang = None
        log.error(
            "journal %s: a commit takes longer than %.0f s; publishing continues without it",
            self._path,
            HANGS_SECONDS,
        )
