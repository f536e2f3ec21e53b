"""Which task is stuck: what ``/healthz`` and the service manager's watchdog answer from.

A task with a pace reports its progress; no report for longer than its timeout is a stall. A task
that waits for events has no pace: it reports when it is busy, and being busy for too long is a
stall. Time in which the whole process was stopped (SIGSTOP, a suspended host) is not a stall of a
task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pacing.waiting import await_with_ticks, shared_pause

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

T = TypeVar("T")

log = logging.getLogger("service.stalls")

BUSY_SECONDS = 60.0
_POLL_SECONDS = 2.5
_MARK_SECONDS = 10.0
STANDSTILL_SECONDS = 5.0
"""A loop that is later than this ran nothing at all: less is a busy machine."""


def _seconds_since_boot() -> float:
    """Return the seconds of a clock that runs while the host is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def with_progress_marks(work: Coroutine[Any, Any, T], mark: Callable[[], None]) -> T:
    """Wait for ``work``, which ends by itself, and call ``mark`` from time to time meanwhile."""
    mark()
    return await await_with_ticks(work, _MARK_SECONDS, mark)


class Watchdog:
    """What each task must have done by when. ``steady_seconds`` is a clock that is never set."""

    def __init__(
        self,
        steady_seconds: Callable[[], float] = time.monotonic,
        since_boot_seconds: Callable[[], float] = _seconds_since_boot,
    ) -> None:
        self._steady_seconds = steady_seconds
        self._since_boot_seconds = since_boot_seconds
        self._looked_at: float | None = None
        self._since: dict[str, float] = {}
        self._timeout_seconds: dict[str, float] = {}

    def register(self, task: str, timeout_seconds: float) -> Callable[[], None]:
        """Return what ``task`` calls at least once in ``timeout_seconds`` while all is well."""
        self._timeout_seconds[task] = timeout_seconds

        def mark() -> None:
            self._since[task] = self._steady_seconds()

        mark()
        return mark

    @contextlib.contextmanager
    def busy(self, activity: str) -> Iterator[None]:
        """Record that ``activity`` is done inside, which should not take more than a minute."""
        self.register(activity, BUSY_SECONDS)
        try:
            yield
        finally:
            del self._since[activity], self._timeout_seconds[activity]

    def stalled(self) -> dict[str, float]:
        """Return the tasks that are overdue, with the seconds since they made progress."""
        now = self._steady_seconds()
        self._leave_out_standstill(now)
        silence = {task: now - since for task, since in self._since.items()}
        return {
            task: seconds
            for task, seconds in sorted(silence.items())
            if seconds > self._timeout_seconds[task]
        }

    async def watch(self, resumed: Callable[[], None]) -> NoReturn:
        """Detect times in which the whole process was stopped; call ``resumed`` after each.

        Without this task such time is a stall of every task.
        """
        while True:
            began = self._since_boot_seconds()
            self._looked_at = self._steady_seconds()
            await asyncio.sleep(shared_pause(_POLL_SECONDS))
            self._leave_out_standstill(self._steady_seconds())
            seconds = self._since_boot_seconds() - began
            if seconds > STANDSTILL_SECONDS:
                log.warning(
                    "the whole process stood still for %.0f s: was it stopped, or its host "
                    "suspended?",
                    seconds,
                )
                resumed()

    def _leave_out_standstill(self, now: float) -> None:
        """Leave out a time in which the whole process was stopped, if one has just ended."""
        if self._looked_at is None:
            return
        seconds = now - self._looked_at
        if seconds > STANDSTILL_SECONDS:
            self._since = {task: min(now, since + seconds) for task, since in self._since.items()}
            self._looked_at = now
