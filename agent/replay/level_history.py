"""One run of a replay, from its changes: which level a code has when, and the sums per day."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.policy.state import ChangeKind, ChipState
from agent.policy.transaction import level_of
from contract.codes.chip_codes import is_network
from contract.codes.levels import ChipLevel, is_healthy, is_network_healthy, most_serious
from contract.observation import chip_subject
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from agent.policy.state import Change, PolicyState, SubjectState
    from contract.observation import Subject

DAY_MS = 86_400_000


class Span(Record, frozen=True):
    """The time that counts, from ``since_ms`` until before ``until_ms``; ``None``: no limit."""

    since_ms: int | None = None
    until_ms: int | None = None

    def __contains__(self, at_ms: int) -> bool:
        return (self.since_ms is None or at_ms >= self.since_ms) and (
            self.until_ms is None or at_ms < self.until_ms
        )

    def split_by_day(self, from_ms: int, to_ms: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a period by day (number since 1970, UTC), with their length in
        milliseconds.
        """
        if self.since_ms is not None:
            from_ms = max(from_ms, self.since_ms)
        if self.until_ms is not None:
            to_ms = min(to_ms, self.until_ms)
        while from_ms < to_ms:
            day = from_ms // DAY_MS
            end_ms = min(to_ms, (day + 1) * DAY_MS)
            yield day, end_ms - from_ms
            from_ms = end_ms


@dataclass
class Sums:
    """Sums of one subject on one day. ``level_ms``: milliseconds by level."""

    episodes: int = 0
    upgrades: int = 0
    releases: int = 0
    level_ms: dict[str, int] = field(default_factory=dict)
    unhealthy_ms: int = 0
    network_unhealthy_ms: int = 0
    isolated_ms: int = 0


class LevelReason(Record, frozen=True):
    """The level of a code and the reason for it."""

    level: str
    because: str


@dataclass
class _CurrentLevels:
    """The levels of one subject, unchanged since ``since_ms``."""

    since_ms: int
    codes: dict[str, LevelReason] = field(default_factory=dict)


class LevelHistory:
    """The present levels of one run, and the sums of its chips by day and subject."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._known: dict[Subject, _CurrentLevels] = {}
        self._counted: set[int] = set()
        self._in_use: frozenset[int] = frozenset()
        self.sums: dict[tuple[int, Subject], Sums] = {}

    def reason_of(self, subject: Subject, code: str) -> LevelReason | None:
        """Return the level that ``code`` has on ``subject`` now, with its reason.

        ``None`` for none.
        """
        levels = self._known.get(subject)
        return None if levels is None else levels.codes.get(code)

    def codes(self) -> Iterator[tuple[Subject, str]]:
        """Yield everything that has a level now."""
        for subject, levels in self._known.items():
            for code in levels.codes:
                yield subject, code

    def apply_change(self, change: Change, at_ms: int) -> None:
        """Apply one change of the policy at ``at_ms``, which is never before that of earlier
        calls.
        """
        levels = self._passed(change.subject, at_ms)
        before = levels.codes.get(change.code)
        ended = change.kind is ChangeKind.ENDED  # a level that a rule keeps has the rule's reason
        if change.new_level is None:
            levels.codes.pop(change.code, None)
        elif before is None or before.level != change.new_level or not ended:
            levels.codes[change.code] = LevelReason(change.new_level, change.because)
        if at_ms in self._span:
            sums = self._sums(at_ms // DAY_MS, change.subject)
            sums.episodes += change.kind is ChangeKind.BEGAN
            sums.upgrades += change.kind is ChangeKind.UPGRADED
            sums.releases += change.kind is ChangeKind.RELEASED

    def align(self, state: PolicyState, at_ms: int) -> None:
        """Take over the levels in ``state`` at ``at_ms``, where no changes lead to them."""
        for subject, subject_state in state.subjects():
            levels = _levels_of(subject_state)
            known_levels = self._known.get(subject)
            if known_levels is None or known_levels.codes != levels:
                self._passed(subject, at_ms).codes = levels

    def add_chips(self, chips: Collection[int], at_ms: int) -> None:
        """Count the time of these chips from ``at_ms`` on, unless it is counted already."""
        for chip in chips:
            if chip not in self._counted:
                self._passed(chip_subject(chip), at_ms)

    def set_chips_in_use(self, chips: frozenset[int], at_ms: int) -> None:
        """From ``at_ms`` on, treat these chips (physical ids) as those that pods have."""
        # The time up to now counts with the old use, where that changes.
        for subject in [
            subject_key for subject_key in self._known if subject_key.id in chips ^ self._in_use
        ]:
            self._passed(subject, at_ms)
        self._in_use = chips

    def close(self, at_ms: int) -> None:
        """End the run: present levels held until ``at_ms``."""
        for subject in self._known:
            self._passed(subject, at_ms)

    def _passed(self, subject: Subject, at_ms: int) -> _CurrentLevels:
        levels = self._known.get(subject)
        if levels is None:
            self._known[subject] = levels = _CurrentLevels(at_ms)
            if subject.kind == "chip":
                self._counted.add(subject.id)
        if at_ms > levels.since_ms:
            if subject.kind == "chip":
                self._count(subject, levels, at_ms)
            levels.since_ms = at_ms
        return levels

    def _count(self, subject: Subject, levels: _CurrentLevels, at_ms: int) -> None:
        in_use = subject.id in self._in_use
        level = _level(levels.codes)
        own = _level(
            {code: reason for code, reason in levels.codes.items() if not is_network(code)}
        )
        network = _level(
            {code: reason for code, reason in levels.codes.items() if is_network(code)}
        )
        for day, passed_ms in self._span.split_by_day(levels.since_ms, at_ms):
            sums = self._sums(day, subject)
            sums.level_ms[level] = sums.level_ms.get(level, 0) + passed_ms
            sums.unhealthy_ms += 0 if is_healthy(own, in_use) else passed_ms
            sums.network_unhealthy_ms += 0 if is_network_healthy(network) else passed_ms
            sums.isolated_ms += passed_ms if level is ChipLevel.MANUALLY_SEPARATE_NPU else 0

    def _sums(self, day: int, subject: Subject) -> Sums:
        return self.sums.setdefault((day, subject), Sums())


def _level(codes: Mapping[str, LevelReason]) -> ChipLevel:
    return most_serious(ChipLevel(reason.level) for reason in codes.values())


def _levels_of(subject_state: SubjectState) -> dict[str, LevelReason]:
    """Return the codes of one subject as its state has them, with those that only a rule holds."""
    levels = {}
    for fault in subject_state.faults.values():
        levels[fault.code] = LevelReason(fault.level, fault.because)
    if isinstance(subject_state, ChipState):
        for upgrade in subject_state.upgrades:
            level = level_of(subject_state, upgrade.code)
            if level == upgrade.level and upgrade.code not in subject_state.faults:
                levels[upgrade.code] = LevelReason(level, upgrade.because)
    return levels
