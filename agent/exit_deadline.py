"""A deadline for the end of the process: a dead file system may block one of its threads
for ever.
"""

from __future__ import annotations

import logging
import os
import threading

from service.log.setup import flush_log

log = logging.getLogger("agent.leaving")

_END_SECONDS = 4.0


class ExitDeadline:
    """End the process if it has not ended by itself ``_END_SECONDS`` after ``start_timer``."""

    def __init__(self) -> None:
        self._status = 1
        self._timer: threading.Timer | None = None

    def start_timer(self) -> None:
        """Start the timer of the deadline."""
        if self._timer is None:
            self._timer = threading.Timer(_END_SECONDS, self._leave)
            self._timer.daemon = True
            self._timer.start()

    def note_complete(self) -> None:
        """Make the exit status at the deadline 0: all data is written."""
        self._status = 0

    def cancel(self) -> None:
        """Stop the timer: the process ends by itself."""
        if self._timer is not None:
            self._timer.cancel()

    def _leave(self) -> None:
        log.error("the shutdown takes longer than its deadline; the process ends without it")
        flush_log()
        # ``sys.exit`` would end the thread of this timer alone.
        os._exit(self._status)
