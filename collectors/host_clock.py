"""The host's clock: whether it was set, and whether it lost its synchronisation.

The difference of the clock to the time since boot (which continues while the machine sleeps, and is
slewed with the clock) changes only when the clock is set. A clock that was never synchronised in
this boot is not a fault: many machines and containers have no synchronisation.

The kernel's flag ``STA_UNSYNC`` alone proves nothing: chronyd without ``rtcsync`` leaves it, so
that the kernel does not set the hardware's clock. But it renews the largest error, which the kernel
raises by 500 µs each second, up to 16 s (``kernel/time/ntp.c``). So an error below 4 s was renewed
less than 8,000 s ago.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import time
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import msgspec
from msgspec import Meta

from collectors.base import Collector
from collectors.boot import boot_id
from collectors.clock_programs import clock_answers
from collectors.saved_state import read_saved
from contract.codes.host_codes import CLOCK, CLOCK_STEP, CLOCK_UNSYNCHRONISED, HOST_CLOCK
from contract.observation import (
    NODE,
    Assertion,
    Observation,
    SourceAnswered,
    host_subject,
)
from contract.settings import Section
from pacing.waiting import shared_pause

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from collectors.base import CollectorContext
    from collectors.clock_programs import ClockAnswer
    from contract.observation import Report

_log = logging.getLogger(__name__)

_SUBJECT = host_subject(HOST_CLOCK, 0)
_STA_UNSYNC = 0x40
"""``timex.h``: the kernel's clock is not synchronised."""

_RENEWED_US = 4_000_000
"""The largest error below which a program keeps the clock, whatever the flag. chronyd accepts
sources up to 3 s (``maxdistance``) and polls at least every 1024 s, in which 0.5 s are added."""

_WORTH_SECONDS = 1.0
_ANSWER_SECONDS = 0.02
"""A program of this host answers within 1 ms, and everything waits for it."""

_TIMEX_BYTES = 512
"""More than the kernel's structure has on any machine."""


def offset_seconds() -> float:
    """Return the host's clock less the time since boot, in seconds."""
    offset = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return offset / 1e9


class _Timex(ctypes.Structure):
    """The beginning of ``struct timex``, up to the last field that is read."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * _TIMEX_BYTES),
    )


class KernelClock(NamedTuple):
    """What the kernel shows of its clock: the flag ``STA_UNSYNC``, and the largest error in µs."""

    is_flagged: bool
    largest_error_us: int

    @property
    def is_synchronised(self) -> bool:
        """Whether a program keeps the clock."""
        return not self.is_flagged or 0 <= self.largest_error_us < _RENEWED_US


def kernel_clock() -> KernelClock | None:
    """Return what the kernel shows of its clock; ``None`` where it shows nothing."""
    timex = _Timex()  # modes 0: nothing is set
    # The standard library has no ``adjtimex``.
    if ctypes.CDLL(None).adjtimex(ctypes.byref(timex)) < 0:
        return None
    return KernelClock(bool(timex.status & _STA_UNSYNC), timex.maxerror)


def is_synchronised() -> bool | None:
    """Return whether a program keeps the kernel's clock; ``None`` if not known."""
    clock = kernel_clock()
    return None if clock is None else clock.is_synchronised


class SavedClock(msgspec.Struct, frozen=True, omit_defaults=True):
    """The clock's offset in ``boot``, and whether it was synchronised in it."""

    boot: str
    offset: float
    was_synchronised: bool = False


class ClockSection(Section, frozen=True):
    """When the clock of the host counts as set."""

    enabled: bool = True
    period_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 60.0
    step_seconds: Annotated[float, Meta(ge=0.1, le=86_400)] = 10.0


class HostClockCollector(Collector[ClockSection]):
    """Reports a change of the clock by more than ``step_seconds`` between two checks."""

    name = CLOCK
    settings = ClockSection
    deadline_seconds = 5.0

    def __init__(
        self,
        section: ClockSection,
        context: CollectorContext,
        offset: Callable[[], float] = offset_seconds,
        synchronised: Callable[[], bool | None] = is_synchronised,
        answers: Callable[[float], Sequence[ClockAnswer]] = clock_answers,
    ) -> None:
        super().__init__(section, context)
        self._read_offset = offset
        self._read_synchronised = synchronised
        self._answers = answers
        self._boot = boot_id()
        saved = read_saved(context.saved_state, self.name, SavedClock)
        # The time since boot begins at zero again: an offset of another boot compares to nothing.
        if saved is not None and saved.boot != self._boot:
            saved = None
        self._kept = saved
        self._offset = offset() if saved is None else saved.offset
        self._was_synchronised = saved is not None and saved.was_synchronised
        self._is_lost = (_SUBJECT, CLOCK_UNSYNCHRONISED) in context.tracked

    async def run(self) -> NoReturn:
        """Report until cancelled."""
        self.context.report([SourceAnswered(self.name, NODE, self.context.wall_clock())])
        while True:
            self.context.progress()
            self._check()
            await asyncio.sleep(shared_pause(self.period_seconds))

    def _check(self) -> None:
        """Compare both clocks, and report what changed."""
        now_ms, offset = self.context.wall_clock(), self._read_offset()
        step, self._offset = offset - self._offset, offset
        reports: list[Report] = []
        if abs(step) >= self.section.step_seconds:
            text = f"the clock was set {'forward' if step > 0 else 'back'} by {abs(step):.1f} s"
            _log.warning("%s: %s", self.name, text)
            reports.append(self._observation(CLOCK_STEP, Assertion.ONCE, now_ms, text))
        synchronised = self._read_synchronised()
        self._was_synchronised |= synchronised is True
        is_lost = synchronised is False and self._was_synchronised
        if synchronised is not None and is_lost != self._is_lost:
            self._is_lost = is_lost
            assertion = Assertion.PRESENT if is_lost else Assertion.ABSENT
            text = self._lost() if is_lost else ""
            reports.append(self._observation(CLOCK_UNSYNCHRONISED, assertion, now_ms, text))
        if reports:
            self.context.report(reports)
        self._keep()

    def _lost(self) -> str:
        """Return that no program keeps the clock, and what such programs of this host answer."""
        answers = map(str, self._answers(_ANSWER_SECONDS))
        text = "the clock was synchronised in this boot and is not any more"
        text = "; ".join((text, *answers))
        _log.warning("%s: %s", self.name, text)
        return text

    def _keep(self) -> None:
        """Save what a later run in this boot compares with, if it changed by more than normal
        drift.
        """
        saved, now = self._kept, SavedClock(self._boot, self._offset, self._was_synchronised)
        if (
            saved is None
            or abs(saved.offset - now.offset) > _WORTH_SECONDS
            or saved.was_synchronised != now.was_synchronised
        ):
            self._kept = now
            self.context.saved_state.write(msgspec.json.encode(now))

    def _observation(self, code: str, assertion: Assertion, now_ms: int, text: str) -> Observation:
        return Observation(self.name, _SUBJECT, code, assertion, now_ms, text=text)
