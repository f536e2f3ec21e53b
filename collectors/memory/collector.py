"""Memory of the host: pressure, and killed processes that the kernel's log does not report.

``/proc/pressure/memory`` where the kernel has it, otherwise the available memory. The collector of
the kernel's log reports kills, with the victim; here they are counted, in case it cannot be read.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
from msgspec import Meta

from collectors.answer_tracker import AnswerTracker
from collectors.base import Collector
from collectors.boot import boot_id
from collectors.memory.pressure import (
    OomKills,
    Pressure,
    PressureLimits,
    oom_kills,
    stalled_percent,
)
from collectors.saved_state import read_saved
from contract.codes.host_codes import HOST_MEMORY, KERNEL_LOG, MEMORY, MEMORY_PRESSURE, OOM_KILL
from contract.observation import Assertion, Gap, Observation, host_subject
from contract.settings import Section, check_at_most
from pacing.waiting import shared_pause, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collectors.base import CollectorContext
    from contract.observation import Report

_log = logging.getLogger(__name__)

_PROC = Path("/proc")
_SUBJECT = host_subject(HOST_MEMORY, 0)
# The log may follow the counter with a delay (``OomKills``).
_SOON_SECONDS = 2.0


class MemorySection(Section, frozen=True):
    """When memory of the host counts as short."""

    enabled: bool = True
    period_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 60.0
    stalled_percent: Annotated[float, Meta(gt=0, le=100)] = 20.0
    stalled_cleared_percent: Annotated[float, Meta(gt=0, le=100)] = 10.0
    available_percent: Annotated[float, Meta(gt=0, le=100)] = 3.0
    available_cleared_percent: Annotated[float, Meta(gt=0, le=100)] = 5.0

    def __post_init__(self) -> None:
        check_at_most(self, "stalled_cleared_percent", "stalled_percent")
        check_at_most(self, "available_percent", "available_cleared_percent")


class _SavedKills(msgspec.Struct, frozen=True):
    """How many kills of ``boot`` are accounted for."""

    boot: str
    accounted: int


class MemoryCollector(Collector[MemorySection]):
    """Reports short memory.

    All settings but the period are percent: of time stalled, of memory available.
    """

    name = MEMORY
    settings = MemorySection
    deadline_seconds = 5.0

    def __init__(
        self, section: MemorySection, context: CollectorContext, proc: Path = _PROC
    ) -> None:
        super().__init__(section, context)
        self._proc = proc
        self._boot = boot_id()
        self._was_short = (_SUBJECT, MEMORY_PRESSURE) in context.tracked
        self._pressure = Pressure(
            PressureLimits(section.stalled_percent, section.stalled_cleared_percent),
            PressureLimits(section.available_percent, section.available_cleared_percent),
            is_short=self._was_short,
        )
        self._kept = read_saved(context.saved_state, self.name, _SavedKills)
        self._kills = OomKills(self._accounted())
        self._answers = AnswerTracker(self.name)
        self._check_now = asyncio.Event()

    async def run(self) -> NoReturn:
        """Report until cancelled."""
        self.context.listen(self._observe)
        while True:
            self.context.progress()
            self._check()
            await self._wait()

    def _accounted(self) -> int | None:
        """Return the kills that earlier runs reported: none yet in a boot after the last run's."""
        if self._kept is None:
            return None
        return self._kept.accounted if self._kept.boot == self._boot else 0

    def _observe(self, reports: Sequence[Report]) -> None:
        """Apply kills in the kernel's log, and check at once when a part of it was lost."""
        for report in reports:
            if isinstance(report, Gap | Observation) and report.source == KERNEL_LOG:
                if isinstance(report, Gap):
                    self._check_now.set()
                elif report.code == OOM_KILL:
                    self._kills.count_logged_kill()

    async def _wait(self) -> None:
        """Wait until the next check is due."""
        pause = self.period_seconds
        if self._kills.is_suspicious:
            pause = min(pause, _SOON_SECONDS)
        await wait_for_event(self._check_now, shared_pause(pause))

    def _check(self) -> None:
        """Read the kernel's counters, and report what changed."""
        # Before the files are read: a gap that is reported meanwhile asks for another check.
        self._check_now.clear()
        now_ms = self.context.wall_clock()
        try:
            text = self._read_pressure()
            kills = oom_kills((self._proc / "vmstat").read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            reason = f"the kernel's figures about memory cannot be read: {error}"
            if begun := self._answers.observe_failure(reason, now_ms):
                _log.warning("%s: %s", self.name, reason)
                self.context.report(begun)
            return
        reports = self._answers.observe_answer(now_ms)
        is_short = self._pressure.is_short
        if is_short != self._was_short:
            self._was_short = is_short
            assertion = Assertion.PRESENT if is_short else Assertion.ABSENT
            reports.append(self._observation(MEMORY_PRESSURE, assertion, now_ms, text))
        lost = 0 if kills is None else self._kills.pop_unlogged_kills(kills)
        if lost:
            text = f"the kernel killed more processes than its log has: {lost} more"
            reports.append(self._observation(OOM_KILL, Assertion.ONCE, now_ms, text))
        if reports:
            self.context.report(reports)
        self._keep()

    def _read_pressure(self) -> str:
        """Read the pressure once; return it as text."""
        try:
            # A kernel that counts no pressure has no such file, or one that cannot be read.
            pressure = (self._proc / "pressure/memory").read_text(encoding="ascii")
        except OSError:
            pressure = ""
        stalled = stalled_percent(pressure)
        if stalled is not None:
            self._pressure.observe_stalls(stalled)
            return f"all processes waited for memory in {stalled:g} % of the last minute"
        available = _available_percent()
        self._pressure.observe_available(available)
        return f"{available:.1f} % of the memory is available"

    def _observation(self, code: str, assertion: Assertion, now_ms: int, text: str) -> Observation:
        return Observation(self.name, _SUBJECT, code, assertion, now_ms, text=text)

    def _keep(self) -> None:
        accounted = self._kills.accounted
        if accounted is None:
            return
        saved_kills = _SavedKills(self._boot, accounted)
        if saved_kills != self._kept:
            self._kept = saved_kills
            self.context.saved_state.write(msgspec.json.encode(saved_kills))


def _available_percent() -> float:
    # Only where the kernel counts no pressure: the call uses memory itself.
    import psutil

    memory = psutil.virtual_memory()
    return 100 * memory.available / memory.total
