"""Whether what somebody else writes is what we would have written, by times alone. No I/O.

The real Device Plugin writes in cycles: an occurrence up to 1 s, a recovery 2 s, the decision of a
rule or the end of a one-off event 5 s after ours, and a write may carry the old state of one chip
with the new one of another (``device-plugin#1.7``, 2.1). So a write is right if each of its
groups of facts is one that we wanted at some time from a while before it until shortly after it. A
write that is not yet right is judged when our own state had the time to follow. What we want and
nobody writes is a difference, too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from agent.shadow.difference import (
    ISOLATION,
    DocumentDifference,
    Fact,
    Facts,
    Field,
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stores.base import Document

BEFORE_MS = 7_000
"""The longest of its cycles, and the second in which it may not write again."""
AFTER_MS = 2_000
"""What it finds in a query our next audit finds; what it hears we hear at the same time."""
LINGER_MS = 6_000
"""What it removes in its next cycle we may keep for longer: a one-off event for five seconds, a
fault in doubt for six. At our own start everything takes longer."""
MISSING_MS = 15_000
"""Its longest cycle, and the ten seconds for which it tries to write."""
REFRESH_MS = 330_000
"""It writes what did not change again every five minutes."""
_KEPT_MS = 30_000
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
"""Changes of these alone are no reason for it to write (device-plugin#1.7)."""
_ABSENT = DocumentDifference(Fact(Field.DOCUMENT), None, "written")
_OLD = DocumentDifference(Fact(Field.UPDATE_TIME), "older than 5 min", "written every 5 min")


class WriteResult(StrEnum):
    """What came of a write, or of waiting for one; the label ``result`` of the metrics."""

    SAME = "same"
    DIFFERENT = "different"
    UNREADABLE = "unreadable"
    DELETED = "deleted"
    NOT_WRITTEN = "not_written"


@dataclass(frozen=True)
class ComparisonResult:
    """``differences`` of the write at ``at_ms``, or what is not written since then.

    ``theirs`` is all that the document says, as far as it can be read.
    """

    result: WriteResult
    at_ms: int
    differences: tuple[DocumentDifference, ...] = ()
    theirs: Facts = field(default_factory=dict)


@dataclass
class _Wish:
    """What we want from ``since_ms`` on; taken apart only when it is compared."""

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
class _Write:
    """A write that was seen at ``at_ms`` and can be any state from ``from_ms`` on."""

    at_ms: int
    from_ms: int
    facts: Facts
    decided: ComparisonResult | None = None


@dataclass
class _Missing:
    """What we want and nobody writes, since when, and for how long that is no wonder."""

    difference: DocumentDifference
    since_ms: int
    patience_ms: int

    @property
    def due_ms(self) -> int:
        return self.since_ms + self.patience_ms


@dataclass
class ShadowComparison:
    """What we wanted lately, what the store shows, and the writes that are not judged yet.

    All times are epoch milliseconds and never go back.
    """

    _wishes: deque[_Wish] = field(default_factory=deque)
    _pending: deque[_Write] = field(default_factory=deque)
    _verdicts: list[ComparisonResult] = field(default_factory=list)
    _shown: Facts = field(default_factory=dict)
    _is_comparable: bool = False
    _shown_at_ms: int = 0
    _dark_since_ms: int | None = None
    _logged: set[DocumentDifference] = field(default_factory=set)

    def wants(self, at_ms: int, document: Document, *, lingers: bool = False) -> None:
        """From ``at_ms`` on ``document`` is what we would have in the store, times set aside.

        ``lingers``: something in it may be over for everybody else.
        """
        self._wishes.append(_Wish(at_ms, document, lingers))
        while len(self._wishes) > 1 and self._wishes[1].since_ms < at_ms - _KEPT_MS:
            self._wishes.popleft()

    def wants_nothing(self) -> None:
        """We can say nothing of this node any more: nothing is compared until we want something."""
        self._wishes.clear()
        self._pending = deque(write for write in self._pending if write.decided is not None)

    def begins(self, at_ms: int) -> None:
        """The store shows no document, and none was seen before."""
        self._shows(at_ms, {}, comparable=True)

    def wrote(self, at_ms: int, document: Document) -> None:
        """Somebody wrote ``document``; it was seen at ``at_ms``."""
        dark = at_ms if self._dark_since_ms is None else self._dark_since_ms
        if not self._wishes:
            self._pending.clear()  # by the time we know anything it will be long ago
        try:
            facts = facts_of(document)
        except DocumentError as error:
            self._shows_nothing(
                ComparisonResult(WriteResult.UNREADABLE, at_ms, (unreadable(error),))
            )
            return
        self._shows(at_ms, facts, comparable=True)
        self._pending.append(_Write(at_ms, dark - BEFORE_MS, facts))

    def deleted(self, at_ms: int) -> None:
        """Somebody deleted the document."""
        self._shows_nothing(ComparisonResult(WriteResult.DELETED, at_ms, (_ABSENT,)))

    def interrupted(self, at_ms: int) -> None:
        """From ``at_ms`` on writes may happen unseen, until the next one that is seen."""
        if self._dark_since_ms is None:
            self._dark_since_ms = at_ms

    @property
    def is_dark(self) -> bool:
        """Whether writes may have happened that nobody saw."""
        return self._dark_since_ms is not None

    def sees_again(self, at_ms: int) -> None:
        """Nothing happened unseen, or it was told; whoever writes has the usual time to follow."""
        if self._dark_since_ms is not None:
            self._shown_at_ms = at_ms
        self._dark_since_ms = None

    def verdicts(self, now_ms: int) -> list[ComparisonResult]:
        """What is decided by now, each once and in order."""
        while self._pending and (done := self._judged(self._pending[0], now_ms)) is not None:
            self._pending.popleft()
            self._report(done)
        self._look_for_missing(now_ms)
        found, self._verdicts = self._verdicts, []
        return found

    def agrees(self, fact: Fact) -> bool:
        """Whether the store shows of ``fact`` what we want now."""
        if not self._is_comparable or not self._shown or not self._wishes or fact == _OLD.fact:
            return False
        return self._shown.get(fact) == self._wishes[-1].facts.get(fact)

    def next_deadline_ms(self) -> int | None:
        """When ``verdicts`` may have more to say although nothing happens."""
        if not self._wishes:
            return None
        deadlines = [self._due_ms(self._pending[0])] if self._pending else []
        if self._dark_since_ms is None and self._is_comparable:
            deadlines += [one.due_ms for one in self._missing()]
        return min(deadlines, default=None)

    # A write.

    def _due_ms(self, write: _Write) -> int:
        began_ms = self._wishes[0].since_ms
        if write.at_ms < began_ms:
            return began_ms + LINGER_MS
        lingers = any(wish.lingers for wish in self._between(write.at_ms, write.at_ms + AFTER_MS))
        return write.at_ms + (LINGER_MS if lingers else AFTER_MS)

    def _judged(self, write: _Write, now_ms: int) -> ComparisonResult | None:
        if write.decided is not None or not self._wishes:
            return write.decided
        until_ms = self._due_ms(write)
        window = [grouped(wish.facts) for wish in self._between(write.from_ms, until_ms)]
        wrong = list(_wrong(grouped(write.facts), window))
        if not wrong:
            return ComparisonResult(WriteResult.SAME, write.at_ms)
        if now_ms < until_ms and len(self._pending) <= _PENDING:
            return None
        found = [one for theirs, ours in wrong for one in nearest(theirs, ours)]
        return ComparisonResult(
            WriteResult.DIFFERENT, write.at_ms, tuple(in_order(found)), write.facts
        )

    def _between(self, from_ms: int, until_ms: int) -> list[_Wish]:
        """What we wanted at some time in between; where that was nothing, what we want now."""
        found = [
            one
            for one, following in pairwise(self._wishes)
            if one.since_ms <= until_ms and following.since_ms > from_ms
        ]
        last = self._wishes[-1]
        if last.since_ms <= until_ms or not found:
            found.append(last)
        return found

    # What nobody writes.

    def _look_for_missing(self, now_ms: int) -> None:
        if self._dark_since_ms is not None or not self._is_comparable or not self._wishes:
            return
        self._logged = {one for one in self._logged if not self.agrees(one.fact)}
        due = [one for one in self._missing() if one.due_ms <= now_ms]
        if due:
            since_ms = min(one.since_ms for one in due)
            found = tuple(in_order(one.difference for one in due))
            self._report(ComparisonResult(WriteResult.NOT_WRITTEN, since_ms, found, self._shown))

    def _missing(self) -> list[_Missing]:
        """What differs now, of whom nothing was told."""
        if not self._shown:
            since_ms = max(self._wishes[0].since_ms, self._shown_at_ms)
            found = [_Missing(_ABSENT, since_ms, MISSING_MS)]
        else:
            found = [
                _Missing(
                    one,
                    max(self._differs_since_ms(one.fact), self._shown_at_ms),
                    REFRESH_MS if one.fact.field in _ONLY_REFRESHED else MISSING_MS,
                )
                for one in differences(self._shown, self._wishes[-1].facts)
            ]
            found.append(_Missing(_OLD, self._shown_at_ms, REFRESH_MS))
        logged = {_whose(one.fact) for one in self._logged}
        return [one for one in found if _whose(one.difference.fact) not in logged]

    def _differs_since_ms(self, fact: Fact) -> int:
        """Since when what we want of ``fact`` is not what is shown."""
        since_ms = self._wishes[-1].since_ms
        for wish in reversed(self._wishes):
            if wish.facts.get(fact) == self._shown.get(fact):
                break
            since_ms = wish.since_ms
        return since_ms

    def _shows(self, at_ms: int, facts: Facts, *, comparable: bool) -> None:
        self._shown, self._is_comparable, self._shown_at_ms = facts, comparable, at_ms
        self._dark_since_ms = None
        self._logged.clear()

    def _shows_nothing(self, verdict: ComparisonResult) -> None:
        self._shows(verdict.at_ms, {}, comparable=False)
        self._pending.append(_Write(verdict.at_ms, verdict.at_ms, {}, verdict))

    def _report(self, verdict: ComparisonResult) -> None:
        self._logged.update(verdict.differences)
        self._verdicts.append(verdict)


def _whose(fact: Fact) -> tuple[str, Field | None]:
    """What is told of one device is told once; the rest of it follows from that."""
    return (fact.device, None if fact.device else fact.field)


def _wrong(theirs: Groups, window: list[Groups]) -> Iterator[tuple[Facts, list[Facts]]]:
    """The groups of ``theirs`` that are in none of ``window``, each with what it could have been.

    The isolation of a chip is written with its levels or before them, never after them.
    """
    for group in dict.fromkeys(group for state in (theirs, *window) for group in state):
        states = window
        if group[1] == ISOLATION:
            chip = (group[0], "")
            first = _first(theirs.get(chip, {}), [state.get(chip, {}) for state in window])
            states = window[first:]
        facts, wanted = theirs.get(group, {}), [state.get(group, {}) for state in states]
        if facts not in wanted and not is_mixture(facts, wanted):
            yield facts, wanted


def _first(facts: Facts, wanted: list[Facts]) -> int:
    return wanted.index(facts) if facts in wanted else 0
