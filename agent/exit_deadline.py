"""The end of the process, in time: a dead file system may hold one of its threads for ever."""

from __future__ import annotations

import logging
import os
import threading

from service.log import flush_log

log = logging.getLogger("agent.leaving")

_END_SECONDS = 4.0


class ExitDeadline:
    """Ends the process if it has not ended by itself soon after ``begin``."""

    def __init__(self) -> None:
        self._status = 1
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """From now on there is little time."""
        if self._timer is None:
            self._timer = threading.Timer(_END_SECONDS, self._leave)
            self._timer.daemon = True
            self._timer.start()

    def note_complete(self) -> None:
        """Let the exit status be 0: everything is where it belongs."""
        self._status = 0

    def cancel(self) -> None:
        """Nothing holds the process any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _leave(self) -> None:
        log.error("the end takes too long; leaving without it")
        flush_log()
        os._exit(self._status)
