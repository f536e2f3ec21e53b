"""Compares two runs of one journal: which code would have had another level, and when.

The findings are values for ``vigil replay --json`` and for its table. Times are in epoch
milliseconds, durations in seconds, days in UTC.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from agent.policy.state import Change
from agent.replay.level_history import DAY_MS, LevelHistory, Span
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from agent.policy.state import PolicyState
    from agent.replay.level_history import LevelReason, Sums
    from contract.observation import Subject


class IncompletePeriod(msgspec.Struct, frozen=True):
    """The journal is not complete from ``from_ms`` to ``until_ms``."""

    from_ms: int
    until_ms: int
    what: str


class Deviation(msgspec.Struct, frozen=True):
    """At row ``sequence`` the policy returns ``replayed`` instead of ``recorded``."""

    sequence: int
    at_ms: int
    what: str
    recorded: tuple[Change, ...] = ()
    replayed: tuple[Change, ...] = ()


class DaySums(msgspec.Struct, frozen=True):
    """One chip on one day.

    ``seconds`` are by level; unhealthy means: in that list of the document.
    """

    episodes: int
    upgrades: int
    releases: int
    seconds: Mapping[str, float]
    unhealthy_seconds: float
    network_unhealthy_seconds: float
    isolated_seconds: float


class LevelDifference(msgspec.Struct, frozen=True):
    """A code that would have had another level (``None``: none at all), and why each.

    ``times`` counts how often it began to differ or differed since the day before.
    """

    code: str
    recorded_level: str | None
    replayed_level: str | None
    recorded_because: str
    replayed_because: str
    times: int
    seconds: float


class Day(msgspec.Struct, frozen=True):
    """One subject (``chip 3``) on one day; only chips have sums."""

    day: str
    subject: str
    recorded: DaySums | None = None
    replayed: DaySums | None = None
    differences: tuple[LevelDifference, ...] = ()


class Findings(msgspec.Struct):
    """All findings, added while a journal is replayed.

    ``from_ms`` and ``until_ms`` limit what was replayed, ``None`` without a snapshot.
    ``deviations`` are the first of ``deviation_count``; ``checked`` rows were compared.
    """

    node: str = ""
    versions: list[str] = []
    from_ms: int | None = None
    until_ms: int | None = None
    pruned: bool = False
    rows: int = 0
    inputs: int = 0
    checked: int = 0
    deviation_count: int = 0
    deviations: list[Deviation] = []
    breaks: list[IncompletePeriod] = []
    days: tuple[Day, ...] = ()


class _DifferenceKind(Record, frozen=True):
    """What a difference is like; equal ones of a day are merged."""

    code: str
    recorded: LevelReason | None
    replayed: LevelReason | None


@dataclass
class _Total:
    times: int = 0
    ms: int = 0


class ReplayComparison:
    """The levels of both runs, and where they differ. ``replayed`` is ``None`` for one run."""

    def __init__(self, span: Span, *, two: bool) -> None:
        self._span = span
        self.recorded = LevelHistory(span)
        self.replayed = LevelHistory(span) if two else None
        self._runs = [run for run in (self.recorded, self.replayed) if run is not None]
        self._now_ms = 0
        self._open: dict[tuple[Subject, str], tuple[int, _DifferenceKind]] = {}
        self._totals: dict[tuple[int, Subject], dict[_DifferenceKind, _Total]] = {}

    def apply_changes(
        self, recorded: Sequence[Change], replayed: Sequence[Change], until_ms: int
    ) -> None:
        """Apply the changes of both runs up to ``until_ms``."""
        # By time, so that what changes at one time in both runs is compared once.
        both = heapq.merge(
            self._timed(recorded, until_ms, self.recorded),
            self._timed(replayed, until_ms, self.replayed),
            key=itemgetter(0),
        )
        for at_ms, changes in groupby(both, key=itemgetter(0)):
            touched: dict[tuple[Subject, str], None] = {}
            for _, ledger, change in changes:
                ledger.apply_change(change, at_ms)
                touched[change.subject, change.code] = None
            self._compare(touched, at_ms)
        self._now_ms = max(self._now_ms, until_ms)

    def align(self, recorded: PolicyState, replayed: PolicyState | None, at_ms: int) -> None:
        """Take over the states of both runs at ``at_ms``, where no changes lead to them."""
        # The host's clock may have been set back; sums must not get negative times.
        at_ms = self._now_ms = max(self._now_ms, at_ms)
        self.recorded.align(recorded, at_ms)
        if self.replayed is not None and replayed is not None:
            self.replayed.align(replayed, at_ms)
            self._compare([*self.recorded.codes(), *self.replayed.codes(), *self._open], at_ms)

    def add_chips(self, chips: Collection[int], at_ms: int) -> None:
        """Count the time of ``chips`` from ``at_ms`` on, unless it is counted already."""
        for run in self._runs:
            run.add_chips(chips, at_ms)

    def set_chips_in_use(self, chips: frozenset[int], at_ms: int) -> None:
        """From ``at_ms`` on, treat ``chips`` as those that pods have."""
        at_ms = self._now_ms = max(self._now_ms, at_ms)
        for run in self._runs:
            run.set_chips_in_use(chips, at_ms)

    def days(self) -> tuple[Day, ...]:
        """End both runs; return all sums and differences by day and subject."""
        for (subject, _), (since_ms, kind) in self._open.items():
            self._count(subject, kind, since_ms, self._now_ms)
        self._open.clear()
        keys = set(self._totals)
        for run in self._runs:
            run.close(self._now_ms)
            keys |= {key for key in run.sums if key[1].kind == "chip"}
        return tuple(self._day(day, subject) for day, subject in sorted(keys))

    def _timed(
        self, changes: Sequence[Change], until_ms: int, ledger: LevelHistory | None
    ) -> list[tuple[int, LevelHistory, Change]]:
        """Return changes in the order in which they were made; the clock may have been set back."""
        if ledger is None:
            return []
        timed = []
        at_ms = self._now_ms
        for change in changes:
            at_ms = max(at_ms, min(change.at_ms, until_ms))
            timed.append((at_ms, ledger, change))
        return timed

    def _compare(self, touched: Iterable[tuple[Subject, str]], at_ms: int) -> None:
        if self.replayed is None:
            return
        for subject, code in touched:
            recorded = self.recorded.reason_of(subject, code)
            other = self.replayed.reason_of(subject, code)
            before = self._open.get((subject, code))
            levels = (
                None if recorded is None else recorded.level,
                None if other is None else other.level,
            )
            if levels[0] == levels[1]:
                if before is not None:
                    del self._open[subject, code]
                    self._count(subject, before[1], before[0], at_ms)
                continue
            kind = _DifferenceKind(code, recorded, other)
            if before is not None:
                if before[1] == kind:
                    continue
                self._count(subject, before[1], before[0], at_ms)
            self._open[subject, code] = at_ms, kind

    def _count(self, subject: Subject, kind: _DifferenceKind, from_ms: int, to_ms: int) -> None:
        for day, passed_ms in self._span.split_by_day(from_ms, to_ms):
            total = self._totals.setdefault((day, subject), {}).setdefault(kind, _Total())
            total.times += 1
            total.ms += passed_ms

    def _day(self, day: int, subject: Subject) -> Day:
        totals = self._totals.get((day, subject), {})
        recorded = self.recorded.sums.get((day, subject))
        replayed = self.replayed and self.replayed.sums.get((day, subject))
        is_chip = subject.kind == "chip"
        return Day(
            day=datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat(),
            subject=str(subject),
            recorded=_day_sums(recorded) if is_chip and recorded else None,
            replayed=_day_sums(replayed) if is_chip and replayed else None,
            differences=tuple(
                sorted(
                    (_difference(kind, total) for kind, total in totals.items()),
                    key=lambda entry: (
                        *(entry.code, entry.recorded_level or "", entry.replayed_level or ""),
                        *(entry.recorded_because, entry.replayed_because),
                    ),
                )
            ),
        )


def _difference(kind: _DifferenceKind, total: _Total) -> LevelDifference:
    recorded, other = kind.recorded, kind.replayed
    return LevelDifference(
        kind.code,
        None if recorded is None else recorded.level,
        None if other is None else other.level,
        "" if recorded is None else recorded.because,
        "" if other is None else other.because,
        total.times,
        total.ms / 1000,
    )


def _day_sums(sums: Sums) -> DaySums:
    """Return ``sums`` with durations in seconds."""
    return DaySums(
        episodes=sums.episodes,
        upgrades=sums.upgrades,
        releases=sums.releases,
        seconds={level: ms / 1000 for level, ms in sorted(sums.level_ms.items())},
        unhealthy_seconds=sums.unhealthy_ms / 1000,
        network_unhealthy_seconds=sums.network_unhealthy_ms / 1000,
        isolated_seconds=sums.isolated_ms / 1000,
    )
