"""Writes lines beside the event loop: the program never waits for the reader of its log.

Lines wait in a bounded queue for a thread of their own. That thread may wait in a write for as long
as there is no reader: a container runtime that hangs, a journal that is stopped. Meanwhile the
oldest lines are kept, because they name the cause, and newer ones are dropped and counted.
``logging.handlers.QueueHandler`` has no bound in bytes and ends only when all was written.
"""

from __future__ import annotations

import atexit
import os
import select
import threading
import time
from typing import TYPE_CHECKING

from pacing.repeating_thread import repeat_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BYTES = 1 << 18
"""The most bytes that wait, about 2,000 lines."""
# All flushes together: a daemon with a stuck reader must end in time for its supervisor.
_END_SECONDS = 1.0
# A descriptor that fails, such as one that was closed, is not tried for each line.
_RETRY_SECONDS = 5.0


class LogWriter:
    """Writes to ``descriptor``. Its methods may be called from any thread and return at once.

    ``notice`` makes the line that names how many lines were dropped; it is written after the lines
    that were kept. ``flush`` is the exception: it waits.
    """

    def __init__(self, descriptor: int, notice: Callable[[int], bytes]) -> None:
        self._descriptor = descriptor
        self._notice = notice
        self._changed = threading.Condition()
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._unnamed = 0
        self._is_writing = False
        self._fails = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._patience_seconds = _END_SECONDS
        self.dropped = 0
        """Lines that were never written, since the start."""

    def put(self, text: bytes) -> None:
        """Have ``text``, one or more whole lines, written or counted as dropped."""
        if self._is_closed:
            return
        with self._changed:
            # Until it is named how many were dropped, newer lines would be out of order.
            if self._unnamed or self._bytes + len(text) > MAX_BYTES:
                self._drop(text)
            else:
                self._waiting.append(text)
                self._bytes += len(text)
            if self._thread is None:
                # A daemon thread: one that hangs in a write must not keep the interpreter from its
                # end.
                self._thread = repeat_in_thread(self._write_next, "log")
                # Registered with the first line, so a process that logs nothing has no thread to
                # wait for.
                atexit.register(self._close)
            self._changed.notify_all()

    def flush(self) -> bool:
        """Wait until all is written; return whether it is. All calls together wait at most 1 s."""
        begin = time.monotonic()
        with self._changed:
            is_done = self._changed.wait_for(self._has_nothing_to_do, self._patience_seconds)
        # What one call waited is taken from the next: the limit is for the life of the process.
        self._patience_seconds = max(0.0, self._patience_seconds - (time.monotonic() - begin))
        return is_done and not self._unnamed

    def _has_nothing_to_do(self) -> bool:
        idle = not self._waiting and not self._unnamed and not self._is_writing
        return idle or self._fails

    def _close(self) -> None:
        """Close at the end of the interpreter: threads stop anywhere, also where they hold the
        lock.
        """
        self.flush()
        self._is_closed = True

    def _drop(self, text: bytes) -> None:
        lines = text.count(b"\n")
        self._unnamed += lines
        self.dropped += lines

    def _write_next(self) -> bool:
        """Wait for lines, and write them; always return ``True``."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._unnamed)
            text, named = b"".join(self._waiting), 0
            # The notice comes after the lines that were kept, because those are older.
            if not self._waiting:
                text, named = self._notice(self._unnamed), self._unnamed
                self._unnamed = 0
            self._waiting.clear()
            self._is_writing = True
        is_written = self._write(text)
        with self._changed:
            self._is_writing = False
            # The notice was never counted among the bytes that wait.
            self._bytes -= 0 if named else len(text)
            if not is_written:
                self._unnamed += named
                if not named:
                    self._drop(text)
            self._fails = not is_written
            self._changed.notify_all()
        if not is_written:
            time.sleep(_RETRY_SECONDS)
        return True

    def _write(self, text: bytes) -> bool:
        """Write all of it, however long that takes; return whether that was possible."""
        rest = memoryview(text)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            # Standard error may be non-blocking (``standard_streams``); only this thread waits for
            # it.
            except BlockingIOError:
                ready = select.poll()
                ready.register(self._descriptor, select.POLLOUT)
                ready.poll()
            except (OSError, MemoryError):
                return False
        return True
