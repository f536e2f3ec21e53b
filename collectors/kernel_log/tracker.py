"""The tracked state of the kernel from its log: what holds, how far it was read. Pure.

The kernel logs that a CPU is stuck or a task hangs, again and again as long as it lasts, and never
that it is over. So such a code holds until it was not repeated for ``hold_seconds``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from contract.codes.host_codes import HOST_CODES
from contract.observation import Assertion, Gap, Observation, host_subject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collectors.kernel_log.messages import MessageMatch
    from contract.observation import Report, Subject


class SavedLogPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position in the log, and what holds, for the next process.

    ``boot`` is the boot of which ``sequence`` is the last record that was read (``None``: there was
    none yet). ``logged_ms`` is when each code that holds was logged last (epoch milliseconds).
    """

    boot: str
    sequence: int | None = None
    logged_ms: dict[str, int] = msgspec.field(default_factory=dict, name="said_ms")


class LogTime(NamedTuple):
    """A time by the host's clock (epoch milliseconds) and by a monotonic clock (seconds)."""

    wall_ms: int
    steady: float


class KernelLogTracker:
    """The codes that hold, each for ``hold_seconds`` after its last message."""

    def __init__(
        self,
        source: str,
        tracked: Iterable[str],
        kept: SavedLogPosition | None,
        hold_seconds: float,
    ) -> None:
        self._source = source
        self._hold_seconds = hold_seconds
        self._tracked = set(tracked)
        self._kept_ms = {} if kept is None else kept.logged_ms
        self._logged: dict[str, LogTime] = {}

    def begin(self, now: LogTime, *, same_boot: bool) -> list[Report]:
        """End what held in another boot: the log of this boot is read next."""
        for code in self._tracked:
            logged_ms = self._kept_ms.get(code, now.wall_ms) if same_boot else 0
            age = max(0.0, (now.wall_ms - logged_ms) / 1000)
            self._logged[code] = LogTime(logged_ms, now.steady - age)
        self._tracked.clear()
        return [] if same_boot else self.expire(now)

    def observe(self, message: MessageMatch, now: LogTime, age_seconds: float) -> list[Report]:
        """Apply a message that the kernel logged ``age_seconds`` ago; return what to report."""
        raised_ms = now.wall_ms - round(age_seconds * 1000)
        if HOST_CODES[message.code].is_event:
            return [self._observation(message, Assertion.ONCE, now, raised_ms)]
        is_new = message.code not in self._logged
        self._logged[message.code] = LogTime(raised_ms, now.steady - age_seconds)
        return [self._observation(message, Assertion.OCCUR, now, raised_ms)] if is_new else []

    def expire(self, now: LogTime) -> list[Report]:
        """End and return what was not repeated for long enough by now."""
        gone = [code for code in self._logged if self._ends(code) <= now.steady]
        for code in gone:
            del self._logged[code]
        return [
            Observation(self._source, _subject(code), code, Assertion.ABSENT, now.wall_ms)
            for code in gone
        ]

    def next_end(self) -> float | None:
        """Return when the next code ends unless it is repeated (monotonic seconds).

        ``None`` for never.
        """
        return min(map(self._ends, self._logged), default=None)

    def logged_ms(self) -> dict[str, int]:
        """Return when each code that holds was logged last, to be saved."""
        return {code: logged.wall_ms for code, logged in self._logged.items()}

    def _ends(self, code: str) -> float:
        return self._logged[code].steady + self._hold_seconds

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
