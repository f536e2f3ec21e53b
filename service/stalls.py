"""Which task is stuck: what ``/healthz`` and the service manager's watchdog answer from.

A task with a pace says that it goes on; silence for longer than its patience is a stall. A task
that waits for events has no pace: it says when it is busy, and being busy for too long is a stall.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUSY_SECONDS = 60.0


class Stalls:
    """What each task must have done by when. ``steady_seconds`` is a clock that is never set."""

    def __init__(self, steady_seconds: Callable[[], float] = time.monotonic) -> None:
        self._steady_seconds = steady_seconds
        self._since: dict[str, float] = {}
        self._patience: dict[str, float] = {}

    def of(self, task: str, patience_seconds: float) -> Callable[[], None]:
        """What ``task`` calls at least once in ``patience_seconds`` while all is well."""
        self._patience[task] = patience_seconds

        def mark() -> None:
            self._since[task] = self._steady_seconds()

        mark()
        return mark

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """``what`` is being done inside, and should not take more than a minute."""
        self.of(what, BUSY_SECONDS)
        try:
            yield
        finally:
            del self._since[what], self._patience[what]

    def stalled(self) -> dict[str, float]:
        """The tasks that are overdue, and for how many seconds they have made no progress."""
        now = self._steady_seconds()
        silence = {task: now - since for task, since in self._since.items()}
        return {
            task: seconds
            for task, seconds in sorted(silence.items())
            if seconds > self._patience[task]
        }
