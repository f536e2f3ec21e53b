"""What is refused at which place of a store: logged when it begins and ends, counted by reason."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

import msgspec

from contract.refusal import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_log = logging.getLogger(__name__)

MAX_PLACES = 1000
"""Anybody who may write can make up places: beyond this they are counted and not named."""

_LINES, _PERIOD_MS = 5, 60_000


class Refused(msgspec.Struct, frozen=True):
    """What is refused now: its place in the store, why, and what is wrong with it."""

    place: str
    reason: Reason
    what: str


class Spacing:
    """Decides which refusals get lines in the log: the first few of a place in each minute.

    So a writer of good and bad documents in turn fills no disk with the log of another program.
    """

    def __init__(self) -> None:
        self._logged_ms: dict[str, deque[int]] = {}

    def allows(self, place: str, now_ms: int) -> bool:
        """Return whether the refusal that begins at ``place`` at this steady time is logged."""
        logged = self._logged_ms.get(place)
        if logged is None:
            if len(self._logged_ms) >= MAX_PLACES:
                self._forget_old(now_ms)
            if len(self._logged_ms) >= MAX_PLACES:
                return False
            logged = self._logged_ms[place] = deque(maxlen=_LINES)
        # ``logged[0]`` is the oldest of the last lines (``maxlen``): a sliding window.
        elif len(logged) == _LINES and now_ms < logged[0] + _PERIOD_MS:
            return False
        logged.append(now_ms)
        return True

    def _forget_old(self, now_ms: int) -> None:
        self._logged_ms = {
            place: logged
            for place, logged in self._logged_ms.items()
            if now_ms < logged[-1] + _PERIOD_MS
        }


def _steady_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Refusals:
    """What is refused of the heartbeats and messages of one store."""

    def __init__(self, steady_ms: Callable[[], int] = _steady_ms) -> None:
        self._steady_ms = steady_ms
        self._now: dict[str, Refused] = {}
        self._named: set[str] = set()
        """Places whose refusal is in the log, and its end is not yet."""
        self._spacing = Spacing()
        self._counts: Counter[Reason] = Counter()

    @property
    def counts(self) -> Mapping[Reason, int]:
        """How often something was refused since the process began, by reason."""
        return self._counts

    @property
    def now(self) -> tuple[Refused, ...]:
        """What is refused now, in the order of the places."""
        return tuple(self._now[place] for place in sorted(self._now))

    def refuse(self, place: str, reason: Reason, message: str) -> None:
        """Count what came to ``place``; it is refused, and what was good there stays."""
        self._counts[reason] += 1
        # Counted all the same, so that a metric shows what no log names.
        if place not in self._now and len(self._now) >= MAX_PLACES:
            return
        begins = place not in self._now
        self._now[place] = Refused(place, reason, message)
        if begins and self._spacing.allows(place, self._steady_ms()):
            self._named.add(place)
            _log.warning("%s is left out: %s", place, message)

    def find(self, place: str, reason: Reason, message: str) -> None:
        """Do as ``refuse``, for a caller that checks again and again and finds the same still
        there.
        """
        if self._now.get(place) != Refused(place, reason, message):
            self._now.pop(place, None)  # something else is wrong: that begins now
            self.refuse(place, reason, message)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is refused now."""
        return not self._now

    def keep(self, is_there: Callable[[str], bool]) -> None:
        """Record that something is at these places only; what was refused elsewhere is gone."""
        for place in [refused for refused in self._now if not is_there(refused)]:
            self.accept(place)

    def accept(self, place: str) -> None:
        """Record that what is at ``place`` now is good, or gone."""
        if self._now.pop(place, None) is not None and place in self._named:
            self._named.discard(place)
            _log.info("%s is good again", place)
