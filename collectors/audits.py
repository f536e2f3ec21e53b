"""When audits are due: what the collectors of a driver's events and lists share.

An event changes when the next audit is due, so the wait for it must end early. Before the first
answer of the driver nothing can be audited, so what was tracked before is blind meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from contract.observation import SourceBlind, chip_subject
from pacing.waiting import BEHIND_SECONDS, await_with_ticks, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
    from typing import NoReturn

    from contract.observation import Subject

T = TypeVar("T")

NEVER = float("inf")
PROGRESS_SECONDS = 1.0
_DUE_SECONDS = 0.001
"""Timers may fire early by the resolution of their clock; a time this near counts as due."""


class AuditSchedule:
    """Runs audits when they are due. Times are seconds of the event loop's clock."""

    def __init__(self, progress: Callable[[], None], max_wait_seconds: float) -> None:
        self._progress = progress
        self._max_wait_seconds = max_wait_seconds
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._waking: asyncio.TimerHandle | None = None

    @property
    def is_woken(self) -> bool:
        """Whether what is due must be looked at again, because of an event."""
        return self._woken.is_set()

    def wake(self) -> None:
        """Look again at what is due, which an event has changed, once its document is on its way.

        A look takes the loop as long as a write does.
        """
        if self._waking is None:
            self._waking = self._loop.call_later(BEHIND_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._waking = None
        self._woken.set()

    def is_due(self, at: float) -> bool:
        """Return whether ``at`` has come."""
        return at - self._loop.time() < _DUE_SECONDS

    async def run(
        self, next_due: Callable[[], float], audit: Callable[[float], Awaitable[None]]
    ) -> NoReturn:
        """Call ``audit`` with the present time whenever ``next_due`` has come.

        Whoever changes what ``next_due`` returns calls ``wake``, or it is asked when it was due.
        The daemon is shown progress before each look, at least every ``max_wait_seconds``.
        """
        while True:
            self._progress()
            # Before the look: an event during it must not be lost.
            self._woken.clear()
            due = next_due()
            # Without an event nothing else is due than before the wait, so it is not looked again.
            while not self.is_due(due) and not self._woken.is_set():
                wait = min(due - self._loop.time(), self._max_wait_seconds)
                await wait_for_event(self._woken, wait)
                self._progress()
            if not self._woken.is_set():
                await audit(max(self._loop.time(), due))


class UnwatchedChips:
    """The codes of tracked chips that the driver has not shown since the start of a collector."""

    def __init__(
        self,
        source: str,
        tracked: Iterable[tuple[Subject, str]],
        chips: Iterable[int] = (),
    ) -> None:
        self._source = source
        self._codes: dict[Subject, set[str]] = {chip_subject(chip): set() for chip in chips}
        for subject, code in tracked:
            self._codes.setdefault(subject, set()).add(code)
        self._blind: set[Subject] = set()

    def subjects(self) -> list[Subject]:
        """Return the chips that are not watched yet."""
        return sorted(self._codes)

    def is_blind(self, subject: Subject) -> bool:
        """Return whether ``subject`` was reported blind."""
        return subject in self._blind

    def take(self, subject: Subject) -> set[str]:
        """Return the tracked codes of ``subject``, which is watched from now on."""
        return self._codes.pop(subject, set())

    def report_blind(
        self, reason: str, now_ms: int, *, by_driver: bool = False
    ) -> list[SourceBlind]:
        """Return that the remaining chips are blind, once for each of them."""
        silent = sorted(self._codes.keys() - self._blind)
        self._blind.update(silent)
        return [SourceBlind(self._source, chip, now_ms, reason, by_driver) for chip in silent]


async def first_answer(
    asking: Coroutine[Any, Any, T],
    progress: Callable[[], None],
    report_silence: Callable[[str], None],
) -> T:
    """Return the driver's first answer; until then call ``report_silence`` with the reason."""

    def wait_longer() -> None:
        progress()
        report_silence("the driver has not answered since the start")

    return await await_with_ticks(asking, PROGRESS_SECONDS, wait_longer)


async def run_together(tasks: Mapping[str, Coroutine[Any, Any, NoReturn]]) -> NoReturn:
    """Run ``tasks``, by their names, until one fails; raise its error alone."""
    try:
        async with asyncio.TaskGroup() as group:
            for name, work in tasks.items():
                group.create_task(work, name=name)
    except BaseExceptionGroup as errors:
        # The first failure has cancelled the others, and callers handle errors that are not in a
        # group.
        raise errors.exceptions[0] from None
    raise AssertionError("the tasks never end")
