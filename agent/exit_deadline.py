"""A deadline for the end of the process: a dead file system may block one of its threads
for ever.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time

from service.log.setup import flush_log

log = logging.getLogger("agent.leaving")

_END_SECONDS = 4.0


class ExitDeadline:
    """End the process if it has not ended by itself ``_END_SECONDS`` after ``start_timer``.

    The thread is there from the beginning: an agent that ends because it lacks memory could start
    none, and would end never.
    """

    def __init__(self) -> None:
        self._status = 1
        self._begun = threading.Event()
        self._is_cancelled = False
        threading.Thread(target=self._wait, name="exit deadline", daemon=True).start()

    @property
    def has_begun(self) -> bool:
        """Whether the process is ending."""
        return self._begun.is_set()

    def start_timer(self) -> None:
        """Start the timer of the deadline, unless it was started before."""
        self._begun.set()

    def note_complete(self) -> None:
        """Make the exit status at the deadline 0: all data is written."""
        self._status = 0

    def cancel(self) -> None:
        """Stop the timer: the process ends by itself."""
        self._is_cancelled = True
        self._begun.set()

    def _wait(self) -> None:
        self._begun.wait()
        if self._is_cancelled:
            return
        time.sleep(_END_SECONDS)
        if not self._is_cancelled:
            self._leave()

    def _leave(self) -> None:
        with contextlib.suppress(MemoryError):
            log.error("the shutdown takes longer than its deadline; the process ends without it")
            flush_log()
        # ``sys.exit`` would end this thread alone.
        os._exit(self._status)
