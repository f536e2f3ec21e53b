"""Whether another program writes what we would have written, by times alone. No I/O.

The real Device Plugin writes in cycles: an occurrence up to 1 s, a recovery 2 s, the decision of a
rule or the end of a one-off event 5 s after ours. A write may carry the old state of one chip with
the new one of another (``device-plugin#1.7``, 2.1). So a write is right if each of its groups of
facts is one that we desired at some time from a while before it until shortly after it. A write
that is not yet right is judged when our own state had time to follow. A desired document that is
not written is a difference, too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from agent.shadow.difference import (
    ISOLATION,
    DocumentDifference,
    Fact,
    Facts,
    Groups,
    differences,
    facts_of,
    grouped,
    in_order,
    is_mixture,
    nearest,
    unreadable,
)
from contract.errors import DocumentError
from contract.pages.agent_status import Field, WriteResult
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stores.base import Document

BEFORE_MS = 7_000
"""The longest of its cycles, and the second in which it may not write again."""
AFTER_MS = 2_000
"""Our next audit finds what a query of the Device Plugin finds.

Events reach both at the same time.
"""
LINGER_MS = 6_000
"""We may keep for longer what it removes in its next cycle: a one-off event for five seconds, an
unconfirmed fault for six. At our own start everything takes longer.
"""
MISSING_MS = 15_000
"""Its longest cycle, and the ten seconds for which it tries to write."""
REFRESH_MS = 330_000
"""It writes unchanged content again every five minutes."""
_MAX_AGE_MS = 30_000
_PENDING = 100
"""With more writes than that in a few seconds the oldest is judged before its time."""

_ONLY_REFRESHED = frozenset(
    {
        Field.SWITCH_CODE_LEVEL,
        Field.SUPER_POD_ID,
        Field.SERVER_INDEX,
        Field.RACK_ID,
        Field.LABELS,
        Field.KEYS,
        Field.DESCRIPTION,
    }
)
"""Changes of these alone do not make it write (device-plugin#1.7)."""
_ABSENT = DocumentDifference(Fact(Field.DOCUMENT), None, "written")
_OLD = DocumentDifference(Fact(Field.UPDATE_TIME), "older than 5 min", "written every 5 min")


class ComparisonResult(Record, frozen=True):
    """``differences`` of the write at ``at_ms``, or what is not written since then.

    ``theirs`` are all facts of the document, as far as it can be decoded.
    """

    result: WriteResult
    at_ms: int
    differences: tuple[DocumentDifference, ...] = ()
    theirs: Facts = msgspec.field(default_factory=dict)


@dataclass
class _Desired:
    """What we desired from ``since_ms`` on; decoded only when it is compared."""

    since_ms: int
    document: Document
    lingers: bool
    _facts: Facts | None = None

    @property
    def facts(self) -> Facts:
        if self._facts is None:
            self._facts = facts_of(self.document)
        return self._facts


@dataclass
class _SeenWrite:
    """A write that was seen at ``at_ms`` and can be any state from ``from_ms`` on."""

    at_ms: int
    from_ms: int
    facts: Facts
    decided: ComparisonResult | None = None


@dataclass
class _Missing:
    """What we desire and is not written, since when, and how long that is normal."""

    difference: DocumentDifference
    since_ms: int
    normal_ms: int

    @property
    def due_ms(self) -> int:
        return self.since_ms + self.normal_ms


@dataclass
class ShadowComparison:
    """The latest desired documents, the stored one, and the writes that are not judged yet.

    All times are epoch milliseconds and never go back.
    """

    _desired: deque[_Desired] = field(default_factory=deque)
    _pending: deque[_SeenWrite] = field(default_factory=deque)
    _results: list[ComparisonResult] = field(default_factory=list)
    _shown: Facts = field(default_factory=dict)
    _is_comparable: bool = False
    _shown_at_ms: int = 0
    _interrupted_since_ms: int | None = None
    _logged: set[DocumentDifference] = field(default_factory=set)

    def set_desired(self, at_ms: int, document: Document, *, lingers: bool = False) -> None:
        """Record that we desire ``document`` from ``at_ms`` on, without its time stamps.

        ``lingers``: something in it may be over for other programs.
        """
        self._desired.append(_Desired(at_ms, document, lingers))
        while len(self._desired) > 1 and self._desired[1].since_ms < at_ms - _MAX_AGE_MS:
            self._desired.popleft()

    def clear_desired(self) -> None:
        """Record that we have no desired document any more: nothing is compared until there
        is one.
        """
        self._desired.clear()
        self._pending = deque(write for write in self._pending if write.decided is not None)

    def observe_absence(self, at_ms: int) -> None:
        """Record that the store shows no document, and that none was seen before."""
        self._shows(at_ms, {}, comparable=True)

    def observe_write(self, at_ms: int, document: Document) -> None:
        """Record that another program wrote ``document``, which was seen at ``at_ms``."""
        since_ms = at_ms if self._interrupted_since_ms is None else self._interrupted_since_ms
        if not self._desired:
            self._pending.clear()  # too old to compare once we have a desired document
        try:
            facts = facts_of(document)
        except DocumentError as error:
            self._shows_nothing(
                ComparisonResult(WriteResult.UNREADABLE, at_ms, (unreadable(error),))
            )
            return
        self._shows(at_ms, facts, comparable=True)
        self._pending.append(_SeenWrite(at_ms, since_ms - BEFORE_MS, facts))

    def observe_deletion(self, at_ms: int) -> None:
        """Record that another program deleted the document."""
        self._shows_nothing(ComparisonResult(WriteResult.DELETED, at_ms, (_ABSENT,)))

    def observe_interruption(self, at_ms: int) -> None:
        """Record that from ``at_ms`` on writes may be missed, until the next one that is seen."""
        if self._interrupted_since_ms is None:
            self._interrupted_since_ms = at_ms

    @property
    def is_interrupted(self) -> bool:
        """Whether writes may have been missed."""
        return self._interrupted_since_ms is not None

    def end_interruption(self, at_ms: int) -> None:
        """Record that the watch is complete again.

        The Device Plugin has the usual time to follow.
        """
        if self._interrupted_since_ms is not None:
            self._shown_at_ms = at_ms
        self._interrupted_since_ms = None

    def pop_results(self, now_ms: int) -> list[ComparisonResult]:
        """Return and remove the results so far, each once and in order."""
        while self._pending and (done := self._judged(self._pending[0], now_ms)) is not None:
            self._pending.popleft()
            self._report(done)
        self._report_missing(now_ms)
        results, self._results = self._results, []
        return results

    def agrees(self, fact: Fact) -> bool:
        """Return whether the store shows of ``fact`` what we desire now."""
        if not self._is_comparable or not self._shown or not self._desired or fact == _OLD.fact:
            return False
        return self._shown.get(fact) == self._desired[-1].facts.get(fact)

    def next_deadline_ms(self) -> int | None:
        """Return when ``pop_results`` may have more although nothing happens (epoch ms).

        ``None`` for never.
        """
        if not self._desired:
            return None
        deadlines = [self._due_ms(self._pending[0])] if self._pending else []
        if self._interrupted_since_ms is None and self._is_comparable:
            deadlines += [missing.due_ms for missing in self._missing()]
        return min(deadlines, default=None)

    # A write.

    def _due_ms(self, write: _SeenWrite) -> int:
        began_ms = self._desired[0].since_ms
        if write.at_ms < began_ms:
            return began_ms + LINGER_MS
        lingers = any(
            desired.lingers for desired in self._between(write.at_ms, write.at_ms + AFTER_MS)
        )
        return write.at_ms + (LINGER_MS if lingers else AFTER_MS)

    def _judged(self, write: _SeenWrite, now_ms: int) -> ComparisonResult | None:
        if write.decided is not None or not self._desired:
            return write.decided
        until_ms = self._due_ms(write)
        window = [grouped(item.facts) for item in self._between(write.from_ms, until_ms)]
        wrong = list(_wrong(grouped(write.facts), window))
        if not wrong:
            return ComparisonResult(WriteResult.SAME, write.at_ms)
        if now_ms < until_ms and len(self._pending) <= _PENDING:
            return None
        nearest_differences = [item for theirs, ours in wrong for item in nearest(theirs, ours)]
        return ComparisonResult(
            WriteResult.DIFFERENT, write.at_ms, tuple(in_order(nearest_differences)), write.facts
        )

    def _between(self, from_ms: int, until_ms: int) -> list[_Desired]:
        """Return the documents that we desired at some time in the period.

        Where that was nothing, what we desire now.
        """
        between = [
            desired
            for desired, following in pairwise(self._desired)
            if desired.since_ms <= until_ms and following.since_ms > from_ms
        ]
        last = self._desired[-1]
        if last.since_ms <= until_ms or not between:
            between.append(last)
        return between

    # Desired documents that are not written.

    def _report_missing(self, now_ms: int) -> None:
        if self._interrupted_since_ms is not None or not self._is_comparable or not self._desired:
            return
        self._logged = {item for item in self._logged if not self.agrees(item.fact)}
        due = [item for item in self._missing() if item.due_ms <= now_ms]
        if due:
            since_ms = min(item.since_ms for item in due)
            reported = tuple(in_order(item.difference for item in due))
            self._report(ComparisonResult(WriteResult.NOT_WRITTEN, since_ms, reported, self._shown))

    def _missing(self) -> list[_Missing]:
        """Return the differences of now that were not reported."""
        if not self._shown:
            since_ms = max(self._desired[0].since_ms, self._shown_at_ms)
            missing = [_Missing(_ABSENT, since_ms, MISSING_MS)]
        else:
            missing = [
                _Missing(
                    item,
                    max(self._differs_since_ms(item.fact), self._shown_at_ms),
                    REFRESH_MS if item.fact.field in _ONLY_REFRESHED else MISSING_MS,
                )
                for item in differences(self._shown, self._desired[-1].facts)
            ]
            missing.append(_Missing(_OLD, self._shown_at_ms, REFRESH_MS))
        logged = {_report_key(item.fact) for item in self._logged}
        return [item for item in missing if _report_key(item.difference.fact) not in logged]

    def _differs_since_ms(self, fact: Fact) -> int:
        """Return since when (epoch ms) what we desire of ``fact`` differs from what is shown."""
        since_ms = self._desired[-1].since_ms
        for desired in reversed(self._desired):
            if desired.facts.get(fact) == self._shown.get(fact):
                break
            since_ms = desired.since_ms
        return since_ms

    def _shows(self, at_ms: int, facts: Facts, *, comparable: bool) -> None:
        self._shown, self._is_comparable, self._shown_at_ms = facts, comparable, at_ms
        self._interrupted_since_ms = None
        self._logged.clear()

    def _shows_nothing(self, verdict: ComparisonResult) -> None:
        self._shows(verdict.at_ms, {}, comparable=False)
        self._pending.append(_SeenWrite(verdict.at_ms, verdict.at_ms, {}, verdict))

    def _report(self, verdict: ComparisonResult) -> None:
        self._logged.update(verdict.differences)
        self._results.append(verdict)


def _report_key(fact: Fact) -> tuple[str, Field | None]:
    """Return the key under which a difference is reported once: its device, or its field without
    one.
    """
    return (fact.device, None if fact.device else fact.field)


def _wrong(theirs: Groups, window: list[Groups]) -> Iterator[tuple[Facts, list[Facts]]]:
    """Yield the groups of ``theirs`` that are in none of ``window``, each with what it could have
    been.

    The separation of a chip is written with its levels or before them, never after them.
    """
    # In a fixed order, unlike a set, so that equal comparisons are reported alike.
    for group in dict.fromkeys(group for state in (theirs, *window) for group in state):
        states = window
        if group[1] == ISOLATION:
            chip = (group[0], "")
            first = _first(theirs.get(chip, {}), [state.get(chip, {}) for state in window])
            states = window[first:]
        facts, desired = theirs.get(group, {}), [state.get(group, {}) for state in states]
        if facts not in desired and not is_mixture(facts, desired):
            yield facts, desired


def _first(facts: Facts, desired: list[Facts]) -> int:
    return desired.index(facts) if facts in desired else 0
