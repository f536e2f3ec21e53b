"""The tracked state of one chip, and how events and audits change it. Pure: times are passed in.

Codes follow the rules of ``driver_list_tracker``; this module adds what only chips have: two
queries, and cards that drop.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import TYPE_CHECKING

from collectors.answer_tracker import AnswerTracker
from collectors.driver_list_tracker import CodeState, ListTracker
from contract.codes.chip_codes import CARD_DROP
from contract.observation import Assertion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from collectors.driver_list_tracker import Key
    from contract.observation import Observation, Report, Subject


class ChipQuery(IntEnum):
    """The two queries with which an audit asks a chip. Numbers are hashed faster than names."""

    CODES = auto()
    HEALTH = auto()


QUERIES = tuple(ChipQuery)
"""All of them: an Enum is iterated and measured by Python code."""


class ChipTracker:
    """The tracked codes of one chip, of one source."""

    def __init__(
        self, source: str, chip: Subject, tracked: Iterable[str], card_lost_after_seconds: float
    ) -> None:
        self._chip = chip
        self._card_lost_after_seconds = card_lost_after_seconds
        self._drop = chip, CARD_DROP
        self._codes = ListTracker(source, ((chip, code) for code in tracked))
        self._failing: dict[ChipQuery, str] = {}
        self._answered: set[ChipQuery] = set()
        self._answers = AnswerTracker(source, chip)
        self._dropped = False
        self._silent_since: float | None = None
        self._silent_too_long = False
        self._drop_listed = False
        self._asked_at = {ChipQuery.CODES: float("-inf"), ChipQuery.HEALTH: float("-inf")}

    @property
    def present(self) -> frozenset[str]:
        """Codes that are tracked as present."""
        return frozenset(code for (_, code), state in self._codes.states.items() if state.present)

    @property
    def blind(self) -> bool:
        """Whether the last report of the chip is that it gives no answer."""
        return self._answers.is_answering is False

    def next_check(self, query: ChipQuery) -> float | None:
        """Return when ``query`` must be asked because of events; it may have been tried already."""
        # Mostly a chip has no codes, and an agent at rest asks this more often than anything else.
        if not self._codes.states:
            return None
        if query is ChipQuery.CODES:
            return self._codes.next_check()
        return self._codes.check_of([self._drop])

    def note_changes(
        self, began: Mapping[Key, int], ended: Mapping[Key, int], now: float, now_ms: int
    ) -> None:
        """Apply changes of an earlier process that are about this chip."""
        self._codes.note_changes(self._own(began), self._own(ended), now, now_ms)

    def _own(self, changes: Mapping[Key, int]) -> dict[Key, int]:
        return {key: at_ms for key, at_ms in changes.items() if key[0] == self._chip}

    def apply_event(self, seen: Observation, at: float) -> list[Report]:
        """Apply an OCCUR, RECOVER or ONCE event; return what to report."""
        # It has no recovery and is in no list, so there is nothing to track.
        if seen.assertion is Assertion.ONCE:
            return [seen]
        return self._codes.apply_event(seen, at, list_is_blind=self._code_query_is_blind())

    def _code_query_is_blind(self) -> bool:
        # Before the first list, too, nothing could show that a recovery is wrong.
        return ChipQuery.CODES in self._failing or ChipQuery.CODES not in self._answered

    def observe_codes(self, codes: Iterable[str], queried_at: float, now_ms: int) -> list[Report]:
        """Apply ``codes``, which the driver listed when it was asked at ``queried_at``.

        Returns what to report.
        """
        listed = tuple(codes)
        reports = self._answer(ChipQuery.CODES, queried_at, now_ms)
        keys = dict.fromkeys((self._chip, code) for code in listed if code != CARD_DROP)
        # Both queries can show a drop, so both are judged together (``_judge_drop``).
        apart = frozenset({self._drop})
        reports += self._codes.observe_list(keys, queried_at, now_ms, apart=apart)
        self._drop_listed = CARD_DROP in listed
        return reports + self._judge_drop(now_ms)

    def observe_health(self, ready: bool, queried_at: float, now_ms: int) -> list[Report]:
        """Apply the answer to the health query; not ``ready`` is a card that dropped."""
        self._dropped = not ready
        return self._answer(ChipQuery.HEALTH, queried_at, now_ms) + self._judge_drop(now_ms)

    def observe_failure(
        self,
        query: ChipQuery,
        reason: str,
        at: float,
        now_ms: int,
        *,
        by_chip: bool,
        hangs: bool = False,
    ) -> list[Report]:
        """Apply a query without an answer; ``by_chip`` is whether the chip itself gave none.

        A missing driver process or missing rights are not the chip's. When a call ``hangs``, the
        cause may be the chip or the driver.
        """
        self._failing[query] = reason
        # Time in which no call could reach the chip is not its own silence.
        if not by_chip:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = at
        reports: list[Report] = []
        # A card that dropped has a fault; it is not blind.
        if not self._dropped:
            reports += self._answers.observe_failure(reason, now_ms, by_driver=hangs or not by_chip)
        # A chip that answers one of its queries is still there.
        if self._silent_since is None or len(self._failing) < len(QUERIES):
            return reports
        if at - self._silent_since >= self._card_lost_after_seconds:
            self._silent_too_long = True
            reports += self._judge_drop(now_ms)
        return reports

    def _answer(self, query: ChipQuery, queried_at: float, now_ms: int) -> list[Report]:
        self._failing.pop(query, None)
        self._answered.add(query)
        self._asked_at[query] = queried_at
        # Any answer shows that the chip is there: its silence begins anew.
        self._silent_since = None
        self._silent_too_long = False
        complete = not self._failing and len(self._answered) == len(QUERIES)
        return self._answers.observe_answer(now_ms) if complete or self._dropped else []

    def _shows_drop(self) -> bool:
        by_answer = self._dropped or self._drop_listed or self._silent_too_long
        return by_answer or self._drop in self._codes.states

    def _judge_drop(self, now_ms: int) -> list[Report]:
        """Return what changed about the drop of the card: by its list, its health answer or its
        silence.
        """
        # Mostly nothing shows a drop, and an agent at rest judges every chip in each round.
        if not self._shows_drop():
            return []
        state = self._codes.states.get(self._drop) or CodeState(present=False)
        codes_count = state.comparable(self._asked_at[ChipQuery.CODES])
        health_counts = state.comparable(self._asked_at[ChipQuery.HEALTH])
        state.audited = state.audited or (codes_count and health_counts)
        by_answer = (self._dropped and health_counts) or (self._drop_listed and codes_count)
        if self._silent_too_long or by_answer:
            state.held = None
            if state.present:
                return []
            state.present = True
            self._codes.states[self._drop] = state
            return [self._codes.observation(self._drop, Assertion.PRESENT, now_ms, state)]
        if self._dropped or self._drop_listed or not self._healthy():
            return []
        return self._judge_return(state, now_ms, codes_count, health_counts)

    def _judge_return(
        self, state: CodeState, now_ms: int, codes_count: bool, health_counts: bool
    ) -> list[Report]:
        """Return what the answers of a healthy card mean for its drop, whose state is ``state``."""
        # Only the driver's list ends an occurrence that the driver reported.
        codes_agree = codes_count and ChipQuery.CODES not in self._failing
        if state.held is not None:
            recovery = state.held
            del self._codes.states[self._drop]
            return [recovery]
        if state.present and health_counts and (codes_agree or state.event is None):
            del self._codes.states[self._drop]
            return [self._codes.observation(self._drop, Assertion.ABSENT, now_ms, state)]
        if not state.present and state.audited:
            self._codes.states.pop(self._drop, None)
        return []

    def _healthy(self) -> bool:
        return ChipQuery.HEALTH in self._answered and ChipQuery.HEALTH not in self._failing
