"""What is believed about one chip, and how events and audits change it. Pure: times are passed in.

The rules are those of ``docs/architecture.md`` ("The collector"). Two clocks are used: ``at`` and
``asked_at`` are seconds of a clock that never jumps and decide what is compared; ``now_ms`` is the
host's wall clock and is only written into reports.

PRESENT after RECOVER: the observation has ``seen_at_ms`` of the audit and ``driver_raised_at_ms``
of the occurrence that did not end after all, if that is known. Whoever keeps episodes continues
the recovered one, with its first time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from contract.codes import CARD_DROP
from contract.observation import Assertion, Observation, SourceAnswered, SourceBlind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.levels import Severity
    from contract.observation import Report, Subject

LAG_SECONDS = 2.0
"""How long the driver's list may lag behind its events, doubled for safety."""


class Query(Enum):
    """What an audit asks a chip."""

    CODES = auto()
    HEALTH = auto()


@dataclass
class _Code:
    """A code that is present, or that recovered and was not audited since."""

    present: bool
    driver_raised_at_ms: int | None = None
    event_at: float | None = None
    event: tuple[int | None, int | None, Severity | None] | None = None
    held: Observation | None = None
    audited: bool = True

    def comparable(self, asked_at: float) -> bool:
        """Whether an answer asked at ``asked_at`` says anything about this code."""
        return self.event_at is None or asked_at >= self.event_at + LAG_SECONDS


class ChipBeliefs:
    """What one source believes about one chip."""

    def __init__(
        self, source: str, chip: Subject, believed: Iterable[str], card_lost_after_seconds: float
    ) -> None:
        self._source = source
        self._chip = chip
        self._card_lost_after_seconds = card_lost_after_seconds
        self._codes = {code: _Code(present=True) for code in believed}
        self._failing: dict[Query, str] = {}
        self._answered: set[Query] = set()
        self._blind = False
        self._said_answered = False
        self._dropped = False
        self._silent_since: float | None = None
        self._silent_too_long = False
        self._drop_listed = False
        self._asked_at = {Query.CODES: float("-inf"), Query.HEALTH: float("-inf")}

    @property
    def present(self) -> frozenset[str]:
        """Codes that are believed to be present."""
        return frozenset(code for code, state in self._codes.items() if state.present)

    @property
    def blind(self) -> bool:
        """Whether the last that was said of the chip is that it gives no answer."""
        return self._blind

    def next_check(self, query: Query) -> float | None:
        """When ``query`` must be asked because of events; it may have been tried already."""
        waiting = (
            state.event_at + LAG_SECONDS
            for code, state in self._codes.items()
            if state.event_at is not None
            and not state.audited
            and (query is Query.CODES or code == CARD_DROP)
        )
        return min(waiting, default=None)

    def event(self, seen: Observation, at: float) -> list[Report]:
        """An event arrived: OCCUR, RECOVER or ONCE."""
        if seen.assertion is Assertion.ONCE:
            return [seen]
        state = self._codes.get(seen.code)
        if seen.assertion is Assertion.RECOVER:
            return self._recovered(seen, state, at)
        reports: list[Report] = []
        identity = (seen.serial, seen.driver_raised_at_ms, seen.severity)
        if state is None:
            state = self._codes[seen.code] = _Code(present=False)
        if state.held is not None:
            reports.append(state.held)
            state.held = None
            state.present = False
        repeated = state.present and state.event == identity
        state.present = True
        state.driver_raised_at_ms = seen.driver_raised_at_ms
        state.event = identity
        state.event_at = at
        state.audited = False
        if not repeated:
            reports.append(seen)
        return reports

    def _recovered(self, seen: Observation, state: _Code | None, at: float) -> list[Report]:
        if state is None:
            state = self._codes[seen.code] = _Code(present=False)
        state.event = None
        state.event_at = at
        state.audited = False
        if state.present and self._code_query_is_blind():
            state.held = seen
            return []
        state.present = False
        return [seen]

    def _code_query_is_blind(self) -> bool:
        return Query.CODES in self._failing or Query.CODES not in self._answered

    def codes_answered(self, codes: Iterable[str], asked_at: float, now_ms: int) -> list[Report]:
        """The driver listed ``codes`` in answer to a query made at ``asked_at``."""
        listed = frozenset(codes)
        reports = self._answer(Query.CODES, asked_at, now_ms)
        for code in sorted((listed | self._codes.keys()) - {CARD_DROP}):
            state = self._codes.setdefault(code, _Code(present=False))
            if state.held is not None:
                reports += self._release(code, state, code in listed, asked_at)
            elif state.comparable(asked_at):
                reports += self._compare(code, state, code in listed, now_ms)
        self._drop_listed = CARD_DROP in listed
        return reports + self._judge_drop(now_ms)

    def health_answered(self, ready: bool, asked_at: float, now_ms: int) -> list[Report]:
        """The health query was answered; not ``ready`` is a card that dropped."""
        self._dropped = not ready
        return self._answer(Query.HEALTH, asked_at, now_ms) + self._judge_drop(now_ms)

    def failed(
        self, query: Query, reason: str, at: float, now_ms: int, *, by_chip: bool
    ) -> list[Report]:
        """A query got no answer; ``by_chip`` tells whether the chip itself failed to give it.

        A missing driver process or missing rights are not the chip's.
        """
        self._failing[query] = reason
        if not by_chip:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = at
        reports: list[Report] = []
        if not self._blind and not self._dropped:
            self._blind = True
            reports.append(SourceBlind(self._source, self._chip, now_ms, reason))
        if self._silent_since is None or len(self._failing) < len(Query):
            return reports
        if at - self._silent_since >= self._card_lost_after_seconds:
            self._silent_too_long = True
            reports += self._judge_drop(now_ms)
        return reports

    def _answer(self, query: Query, asked_at: float, now_ms: int) -> list[Report]:
        self._failing.pop(query, None)
        self._answered.add(query)
        self._asked_at[query] = asked_at
        self._silent_since = None
        self._silent_too_long = False
        complete = not self._failing and len(self._answered) == len(Query)
        if (complete or self._dropped) and (self._blind or not self._said_answered):
            self._blind = False
            self._said_answered = True
            return [SourceAnswered(self._source, self._chip, now_ms)]
        return []

    def _release(self, code: str, state: _Code, listed: bool, asked_at: float) -> list[Report]:
        """Decide about a recovery that waited for an answer."""
        held = state.held
        assert held is not None
        state.held = None
        if state.comparable(asked_at):
            state.audited = True
            if listed:
                return []
            del self._codes[code]
        else:
            state.present = False
        return [held]

    def _compare(self, code: str, state: _Code, listed: bool, now_ms: int) -> list[Report]:
        state.audited = True
        if listed == state.present:
            if not listed:
                del self._codes[code]
            return []
        if listed:
            state.present = True
            text = "" if state.event_at is None else "still listed after its recovery"
            return [self._observation(code, Assertion.PRESENT, now_ms, state, text)]
        del self._codes[code]
        return [self._observation(code, Assertion.ABSENT, now_ms, state)]

    def _judge_drop(self, now_ms: int) -> list[Report]:
        """Whether the card dropped: by its list, its health answer or its silence."""
        state = self._codes.get(CARD_DROP) or _Code(present=False)
        codes_count = state.comparable(self._asked_at[Query.CODES])
        health_counts = state.comparable(self._asked_at[Query.HEALTH])
        state.audited = state.audited or (codes_count and health_counts)
        if (
            self._silent_too_long
            or (self._dropped and health_counts)
            or (self._drop_listed and codes_count)
        ):
            state.held = None
            if state.present:
                return []
            state.present = True
            self._codes[CARD_DROP] = state
            return [self._observation(CARD_DROP, Assertion.PRESENT, now_ms, state)]
        if self._dropped or self._drop_listed or not self._healthy():
            return []
        if state.held is not None:
            held = state.held
            del self._codes[CARD_DROP]
            return [held]
        # An occurrence that the driver told is for its list to take back.
        codes_agree = codes_count and Query.CODES not in self._failing
        if state.present and health_counts and (codes_agree or state.event is None):
            del self._codes[CARD_DROP]
            return [self._observation(CARD_DROP, Assertion.ABSENT, now_ms, state)]
        if not state.present and state.audited:
            self._codes.pop(CARD_DROP, None)
        return []

    def _healthy(self) -> bool:
        return Query.HEALTH in self._answered and Query.HEALTH not in self._failing

    def _observation(
        self, code: str, assertion: Assertion, now_ms: int, state: _Code, text: str = ""
    ) -> Observation:
        return Observation(
            source=self._source,
            subject=self._chip,
            code=code,
            assertion=assertion,
            seen_at_ms=now_ms,
            driver_raised_at_ms=state.driver_raised_at_ms,
            text=text,
        )
