"""Memory of the host: how short it is, and the processes killed for it. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_FULL = re.compile(r"^full .*\bavg60=(\d+(?:\.\d+)?)", re.MULTILINE | re.ASCII)
_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE | re.ASCII)


def stalled_percent(pressure: str) -> float | None:
    """Return the share of the last minute in which all processes waited for memory, in percent.

    ``pressure`` is the text of ``/proc/pressure/memory``.
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

    By the share of time in which all processes stall; where the kernel does not count that, by the
    available share in percent, at two checks in a row.
    """

    def __init__(
        self, stalled: PressureLimits, available: PressureLimits, *, is_short: bool
    ) -> None:
        self._stalled = stalled
        self._available = available
        self._checks = 0
        self.is_short = is_short

    def observe_stalls(self, percent: float) -> None:
        """Apply that all processes stalled for ``percent`` of the last minute."""
        limit = self._stalled.cleared if self.is_short else self._stalled.raised
        self.is_short = percent >= limit

    def observe_available(self, percent: float) -> None:
        """Apply that ``percent`` of all memory was available."""
        limit = self._available.cleared if self.is_short else self._available.raised
        self._checks = self._checks + 1 if percent < limit else 0
        # The available share is of one instant, unlike the stalls of a whole minute.
        self.is_short = self._checks > 0 if self.is_short else self._checks > 1


class OomKills:
    """Kills that the kernel counted and its log did not report.

    ``accounted``: how many kills of this boot earlier runs reported; ``None``: what the first check
    counts is history. The log may follow the counter with a delay, so a difference counts when the
    next check finds it, too.
    """

    def __init__(self, accounted: int | None) -> None:
        self.accounted = accounted
        self._suspected = 0

    def count_logged_kill(self) -> None:
        """Count a kill that the log reported."""
        if self.accounted is not None:
            self.accounted += 1

    def pop_unlogged_kills(self, total: int) -> int:
        """Return how many of ``total``, which the kernel has counted, no log reported."""
        if self.accounted is None or self.accounted >= total:
            self.accounted = total
            self._suspected = 0
            return 0
        unlogged = min(self._suspected, total - self.accounted)
        self.accounted += unlogged
        self._suspected = total - self.accounted
        return unlogged

    @property
    def is_suspicious(self) -> bool:
        """Whether another check is due soon."""
        return self._suspected > 0
