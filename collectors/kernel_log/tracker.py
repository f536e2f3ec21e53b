"""The tracked state of the kernel from its log: what holds, how far it was read. Pure.

The kernel logs that a CPU is stuck or a task hangs, and never that it is over. So such a code holds
until it was not repeated for ``hold_seconds``, in which the kernel could have repeated it. An oops
and an uncorrectable memory error hold until the machine is restarted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from contract.codes.host_codes import HOST_CODES, KERNEL_OOPS, MEMORY_ERROR
from contract.observation import Assertion, Gap, Observation, host_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from collectors.kernel_log.messages import MessageMatch
    from contract.observation import Report, Subject


_UNTIL_RESTART = frozenset((KERNEL_OOPS, MEMORY_ERROR))


class SavedLogPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position in the log, and what holds, for the next process.

    ``boot`` is the boot of which ``sequence`` is the last record that was read (``None``: there was
    none yet). ``logged_ms`` is since when each code that holds is silent (epoch milliseconds).
    ``cpus`` are those of each lockup.
    """

    boot: str
    sequence: int | None = None
    logged_ms: dict[str, int] = {}
    cpus: dict[str, list[int]] = {}


class LogTime(NamedTuple):
    """A time by the host's clock (epoch milliseconds) and by a monotonic clock (seconds)."""

    wall_ms: int
    steady: float


class KernelLogTracker:
    """The codes that hold, each for ``silence_seconds`` of it after its last message."""

    def __init__(
        self,
        source: str,
        tracked: Iterable[str],
        saved: SavedLogPosition | None,
        silence_seconds: Callable[[str], float],
    ) -> None:
        self._source = source
        self._silence_seconds = silence_seconds
        self._tracked = set(tracked)
        self._kept_ms = {} if saved is None else saved.logged_ms
        self._logged: dict[str, LogTime] = {}

    def start_boot_log(self, now: LogTime, *, same_boot: bool) -> list[Report]:
        """End what held in another boot: the log of this boot is read next."""
        if not same_boot:
            gone = sorted(self._tracked)
            self._tracked.clear()
            return self._ended(gone, now)
        for code in self._tracked:
            logged_ms = self._kept_ms.get(code, now.wall_ms)
            # The wall clock may have been set back since the last process saved it.
            age = max(0.0, (now.wall_ms - logged_ms) / 1000)
            self._logged[code] = LogTime(logged_ms, now.steady - age)
        self._tracked.clear()
        return []

    def observe_message(
        self, message: MessageMatch, now: LogTime, age_seconds: float
    ) -> list[Report]:
        """Apply a message that the kernel logged ``age_seconds`` ago; return what to report."""
        raised_ms = now.wall_ms - round(age_seconds * 1000)
        if HOST_CODES[message.code].is_event:
            return [self._observation(message, Assertion.ONCE, now, raised_ms)]
        is_new = message.code not in self._logged
        self._logged[message.code] = LogTime(raised_ms, now.steady - age_seconds)
        return [self._observation(message, Assertion.OCCUR, now, raised_ms)] if is_new else []

    def expire(self, now: LogTime, can_end: Callable[[str], bool] = lambda _: True) -> list[Report]:
        """End and return what was not repeated for long enough by now.

        The silence of a code that ``can_end`` refuses begins anew.
        """
        due = [code for code in self._logged if self._ends(code) <= now.steady]
        gone = [code for code in due if can_end(code)]
        self.restart_silence([code for code in due if code not in gone], now)
        for code in gone:
            del self._logged[code]
        return self._ended(gone, now)

    def restart_silence(self, codes: Iterable[str], now: LogTime) -> None:
        """Count the silence of those of ``codes`` that hold from now on."""
        for code in self._logged.keys() & set(codes):
            self._logged[code] = now

    @property
    def lasting(self) -> frozenset[str]:
        """The codes that hold."""
        return frozenset(self._logged)

    def _ended(self, codes: Iterable[str], now: LogTime) -> list[Report]:
        return [
            Observation(self._source, _subject(code), code, Assertion.ABSENT, now.wall_ms)
            for code in codes
        ]

    def next_end(self) -> float | None:
        """Return when the next code ends unless it is repeated (monotonic seconds).

        ``None`` for never.
        """
        end = min(map(self._ends, self._logged), default=math.inf)
        return end if end < math.inf else None

    def logged_ms(self) -> dict[str, int]:
        """Return since when each code that holds is silent, to be saved."""
        return {code: logged.wall_ms for code, logged in self._logged.items()}

    def _ends(self, code: str) -> float:
        if code in _UNTIL_RESTART:
            return math.inf
        return self._logged[code].steady + self._silence_seconds(code)

    def _observation(
        self, message: MessageMatch, assertion: Assertion, now: LogTime, raised_ms: int
    ) -> Observation:
        return Observation(
            source=self._source,
            subject=_subject(message.code),
            code=message.code,
            assertion=assertion,
            seen_at_ms=now.wall_ms,
            driver_raised_at_ms=raised_ms,
            text=message.text,
        )


def _subject(code: str) -> Subject:
    return host_subject(HOST_CODES[code].part, 0)


class Position:
    """The position in the log: which records are new, and how many were lost."""

    def __init__(self, source: str, sequence: int | None) -> None:
        self._source = source
        self._overrun = False
        self._newest: int | None = None
        self.sequence = sequence

    def record_overrun(self) -> None:
        """Record that records were overwritten before they were read."""
        self._overrun = True

    def is_news(self, sequence: int) -> bool:
        """Return whether this record was not read before."""
        self._newest = sequence
        return self.sequence is None or sequence > self.sequence

    def record_read(self, sequence: int, now_ms: int) -> list[Report]:
        """Record that a record was read; return a gap before it."""
        before, self.sequence = self.sequence, sequence
        lost = 0 if before is None else sequence - before - 1
        overrun, self._overrun = self._overrun, False
        if not lost and not (overrun and before is not None):
            return []
        count = f"{lost} records" if lost else "records"
        return [
            Gap(self._source, now_ms, f"{count} of the kernel's log were lost before {sequence}")
        ]

    def finish_reading(self) -> bool:
        """Record that all was read; return whether the log is another one than before.

        That is so in a machine that was set back to an earlier state. Reading continues from there.
        """
        newest = self._newest
        if newest is None or self.sequence is None or newest >= self.sequence:
            return False
        self.sequence = newest
        return True
