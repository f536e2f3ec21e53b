"""The tracked state of codes that a driver reports by events and lists. Pure: times are passed in.

The rules are those of ``docs/packages/collectors.md`` ("Chip faults"). Two clocks are used: ``at``
and ``queried_at`` are seconds of a monotonic clock and decide what is compared; ``now_ms`` is the
host's wall clock and is only written into reports.

PRESENT after RECOVER: the observation has ``seen_at_ms`` of the audit and ``driver_raised_at_ms``
of the occurrence that did not end after all, if that is known. Its episode continues, with its
first time. If a list without the code came in between, the recovery was true and the observation is
``anew``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from contract.observation import Assertion, Observation, Subject
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from contract.codes.levels import Severity
    from contract.observation import Report

LAG_SECONDS = 2.0
"""How long the driver's list may lag behind its events, doubled for safety."""

Key: TypeAlias = tuple[Subject, str]
"""The subject that a code is about, and the code."""


class ListedCode(Record, frozen=True):
    """What a list contains of a code besides that it holds."""

    severity: Severity | None = None
    driver_raised_at_ms: int | None = None


_NOTHING = ListedCode()


@dataclass
class CodeState:
    """A code that is present, or that recovered and was not audited since."""

    present: bool
    driver_raised_at_ms: int | None = None
    event_at: float | None = None
    event: tuple[int | None, int | None, Severity | None] | None = None
    held: Observation | None = None
    audited: bool = True
    recovered: bool = False

    def comparable(self, queried_at: float) -> bool:
        """Return whether an answer asked at ``queried_at`` covers this code."""
        return self.event_at is None or queried_at >= self.event_at + LAG_SECONDS


class ListTracker:
    """The tracked codes of one source."""

    def __init__(self, source: str, tracked: Iterable[Key]) -> None:
        self._source = source
        self.states = {key: CodeState(present=True) for key in tracked}
        self._was_complete = False

    def next_check(self) -> float | None:
        """Return when the list must be asked because of events; it may have been tried already."""
        return self.check_of(self.states)

    def check_of(self, keys: Iterable[Key]) -> float | None:
        """Return when ``keys`` must be audited because of events."""
        first: float | None = None
        for key in keys:
            state = self.states.get(key)
            if state is None or state.audited or state.event_at is None:
                continue
            if first is None or state.event_at < first:
                first = state.event_at
        return None if first is None else first + LAG_SECONDS

    def expect(self, key: Key, at: float) -> None:
        """Apply a report about ``key``: an audit shows whether it lasts."""
        state = self.states.setdefault(key, CodeState(present=False))
        state.event_at = at
        state.audited = False

    def note_changes(
        self, began: Mapping[Key, int], ended: Mapping[Key, int], now: float, now_ms: int
    ) -> None:
        """Apply changes of an earlier process, by their times (epoch milliseconds).

        Within its lag the list may still have what ended, and not yet what ``began`` and holds.
        """
        # What holds has begun behind its last end.
        for changes, recovered in ((ended, True), (began, False)):
            for key, at_ms in changes.items():
                # A clock that was set back makes a change of the future.
                age_seconds = max(now_ms - at_ms, 0) / 1000
                if age_seconds < LAG_SECONDS:
                    self.expect(key, now - age_seconds)
                    self.states[key].recovered = recovered

    def apply_event(self, seen: Observation, at: float, *, list_is_blind: bool) -> list[Report]:
        """Apply an OCCUR or RECOVER event; return what to report.

        While the list is blind, a recovery is held back.
        """
        key = seen.subject, seen.code
        if seen.assertion is Assertion.RECOVER:
            return self._recovered(seen, at, list_is_blind)
        reports: list[Report] = []
        identity = (seen.serial, seen.driver_raised_at_ms, seen.severity)
        self.expect(key, at)
        state = self.states[key]
        if state.held is not None:
            # The recovery that is held back happened before this occurrence.
            reports.append(state.held)
            state.held = None
            state.present = False
        # The same event once more is a duplicate, and no new occurrence.
        repeated = state.present and state.event == identity
        state.present = True
        state.driver_raised_at_ms = seen.driver_raised_at_ms
        state.event = identity
        state.recovered = False
        if not repeated:
            reports.append(seen)
        return reports

    def _recovered(self, seen: Observation, at: float, list_is_blind: bool) -> list[Report]:
        key = seen.subject, seen.code
        self.expect(key, at)
        state = self.states[key]
        state.event = None
        state.recovered = True
        # No list could show that the recovery is wrong, so it waits for one that can.
        if state.present and list_is_blind:
            state.held = seen
            return []
        state.present = False
        return [seen]

    def observe_list(
        self,
        listed: Mapping[Key, ListedCode | None],
        queried_at: float,
        now_ms: int,
        *,
        complete: bool = True,
        apart: frozenset[Key] = frozenset(),
    ) -> list[Report]:
        """Apply the driver's list, the answer to a query made at ``queried_at``.

        Returns what to report.

        A list that is not ``complete`` has no information about missing codes; ``apart`` are keys
        that are judged elsewhere. Listed codes are reported in the driver's order, which is the
        order of codes in device-info (``docs/spec/device-plugin.md#1.3``).
        """
        reports: list[Report] = []
        for key in (*sorted(self.states.keys() - listed.keys()), *listed):
            if key in apart:
                continue
            is_new = key not in self.states
            state = self.states.setdefault(key, CodeState(present=False))
            if state.held is not None:
                reports += self._release(key, state, key in listed, queried_at)
            elif key not in listed and not complete:
                if state.comparable(queried_at):
                    self._end_audit(key, state)
            elif state.comparable(queried_at):
                entry = listed.get(key) or _NOTHING
                # The last complete list lacked it, so it did end in between.
                anew = is_new and self._was_complete
                reports += self._compare(key, state, key in listed, entry, now_ms, anew=anew)
        self._was_complete = complete
        return reports

    def _end_audit(self, key: Key, state: CodeState) -> None:
        state.audited = True
        if not state.present:
            del self.states[key]

    def _release(self, key: Key, state: CodeState, listed: bool, queried_at: float) -> list[Report]:
        """Decide about a recovery that waited for an answer."""
        recovery = state.held
        assert recovery is not None
        state.held = None
        if state.comparable(queried_at):
            state.audited = True
            if listed:
                return []
            del self.states[key]
        else:
            state.present = False
        return [recovery]

    def _compare(
        self,
        key: Key,
        state: CodeState,
        listed: bool,
        entry: ListedCode,
        now_ms: int,
        *,
        anew: bool,
    ) -> list[Report]:
        state.audited = True
        if listed == state.present:
            if not listed:
                del self.states[key]
            return []
        if listed:
            state.present = True
            text = "still listed after its recovery" if state.recovered else ""
            seen = self.observation(key, Assertion.PRESENT, now_ms, state, text, entry)
            return [replace(seen, anew=anew)]
        del self.states[key]
        return [self.observation(key, Assertion.ABSENT, now_ms, state)]

    def observation(
        self,
        key: Key,
        assertion: Assertion,
        now_ms: int,
        state: CodeState,
        text: str = "",
        entry: ListedCode = _NOTHING,
    ) -> Observation:
        """Return what an audit found about ``key``."""
        return Observation(
            source=self._source,
            subject=key[0],
            code=key[1],
            assertion=assertion,
            seen_at_ms=now_ms,
            severity=entry.severity,
            driver_raised_at_ms=entry.driver_raised_at_ms or state.driver_raised_at_ms,
            text=text,
        )
