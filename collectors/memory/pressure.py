"""Memory of the host: how hard it is to get, and who was killed for it. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_FULL = re.compile(r"^full .*\bavg60=(\d+(?:\.\d+)?)", re.MULTILINE | re.ASCII)
_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE | re.ASCII)


def stalled_percent(pressure: str) -> float | None:
    """Return the share of the last minute in which everybody waited for memory
    (``/proc/pressure``).
    """
    match = _FULL.search(pressure)
    return None if match is None else float(match[1])


def oom_kills(vmstat: str) -> int | None:
    """Return how many processes the kernel has killed since boot, in ``/proc/vmstat``."""
    match = _OOM_KILLS.search(vmstat)
    return None if match is None else int(match[1])


class PressureLimits(NamedTuple):
    """Percent from which there is pressure, and from which there is none any more."""

    raised: float
    cleared: float


class Pressure:
    """Whether memory is short.

    By the share of time in which everybody stalls; where the kernel does not count that, by what is
    available in percent, at two looks in a row.
    """

    def __init__(
        self, stalled: PressureLimits, available: PressureLimits, *, is_short: bool
    ) -> None:
        self._stalled = stalled
        self._available = available
        self._looks = 0
        self.is_short = is_short

    def saw_stalls(self, percent: float) -> None:
        """Everybody stalled for ``percent`` of the last minute."""
        limit = self._stalled.cleared if self.is_short else self._stalled.raised
        self.is_short = percent >= limit

    def saw_available(self, percent: float) -> None:
        """So much of all memory could be had."""
        limit = self._available.cleared if self.is_short else self._available.raised
        self._looks = self._looks + 1 if percent < limit else 0
        self.is_short = self._looks > 0 if self.is_short else self._looks > 1


class OomKills:
    """Kills that the kernel counted and its log did not tell.

    ``accounted``: how many kills of this boot earlier runs knew of; ``None``: what is counted at
    the first look is history. The log may tell a moment after the counter, so a difference counts
    when the next look finds it, too.
    """

    def __init__(self, accounted: int | None) -> None:
        self.accounted = accounted
        self._suspected = 0

    def count_fault(self) -> None:
        """The log told of one."""
        if self.accounted is not None:
            self.accounted += 1

    def counted(self, total: int) -> int:
        """The kernel has counted ``total``: how many of them nobody told of."""
        if self.accounted is None or self.accounted >= total:
            self.accounted = total
            self._suspected = 0
            return 0
        found = min(self._suspected, total - self.accounted)
        self.accounted += found
        self._suspected = total - self.accounted
        return found

    @property
    def is_suspicious(self) -> bool:
        """Whether another look is wanted soon."""
        return self._suspected > 0
