"""The differences that the shadow found: each once, since when, how often, and whether it is
over.
"""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from contract.pages.agent_status import Field, ReportedDifference, ShadowStatus, WriteResult
from service.log.shortened import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.shadow.comparison import ComparisonResult
    from agent.shadow.difference import DocumentDifference, Fact, Facts

log = logging.getLogger("agent.shadow")

_MAX_DIFFERENCES = 200
"""Distinct differences that are kept; the oldest that is over is removed first."""
_MAX_PLACES = 8


class DifferenceLog:
    """All results of one process. ``explain`` returns the id of a known defect."""

    def __init__(self, explain: Callable[[DocumentDifference, Facts], str | None]) -> None:
        self._explain = explain
        self._writes: Counter[WriteResult] = Counter()
        self._fields: Counter[Field] = Counter()
        self._book: dict[DocumentDifference, ReportedDifference] = {}
        self._places: dict[DocumentDifference, frozenset[str]] = {}
        self._last_write_ms: int | None = None

    def record(self, verdict: ComparisonResult, now_ms: int) -> list[ReportedDifference]:
        """Record ``verdict``; return the differences to report.

        A known difference is reported again when more fields of its device differ.
        """
        self._writes[verdict.result] += 1
        groups = {group[0]: group for group in _by_device(verdict.differences)}
        # A write has all facts, so a difference that it does not show is over.
        if verdict.result is not WriteResult.NOT_WRITTEN:
            self._last_write_ms = verdict.at_ms
            self._over(now_ms, lambda first: first not in groups)
        new = []
        for first, listed in groups.items():
            self._fields[first.fact.field] += 1
            reported = self._noted(verdict, first, listed)
            shown_places = self._places.get(first, frozenset())
            places = shown_places.union(group.fact.place for group in listed)
            if places != shown_places:
                self._places[first] = places
                new.append(reported)
                self._log(reported)
        self._forget()
        return new

    def close(self, agrees: Callable[[Fact], bool], now_ms: int) -> None:
        """End the differences that are over because our desired document follows what is
        written.
        """
        self._over(now_ms, lambda first: agrees(first.fact))

    def status(self, document: str, trouble: str | None) -> ShadowStatus:
        """Return all differences, those that are not over first, then the latest first."""
        reported = sorted(self._book.values(), key=lambda difference: -difference.last_ms)
        reported.sort(key=lambda difference: difference.over_at_ms is not None)
        return ShadowStatus(
            document,
            trouble,
            self._last_write_ms,
            {result: self._writes[result] for result in WriteResult},
            dict(self._fields),
            tuple(reported),
        )

    def _noted(
        self, verdict: ComparisonResult, first: DocumentDifference, listed: list[DocumentDifference]
    ) -> ReportedDifference:
        before = self._book.pop(first, None)
        reported = ReportedDifference(
            result=verdict.result,
            device=first.fact.device,
            field=first.fact.field,
            place=first.fact.place,
            theirs=first.theirs,
            ours=first.ours,
            reported=str(first),
            also=tuple(difference.fact.place for difference in listed[1:]),
            since_ms=verdict.at_ms,
            last_ms=verdict.at_ms,
            defect=self._explain(first, verdict.theirs) if before is None else before.defect,
        )
        if before is not None:
            since_ms = before.since_ms if before.over_at_ms is None else verdict.at_ms
            reported = msgspec.structs.replace(reported, since_ms=since_ms, seen=before.seen + 1)
        self._book[first] = reported
        return reported

    def _over(self, now_ms: int, is_over: Callable[[DocumentDifference], bool]) -> None:
        for first, reported in self._book.items():
            if reported.over_at_ms is None and is_over(first):
                self._book[first] = msgspec.structs.replace(reported, over_at_ms=now_ms)

    def _forget(self) -> None:
        while len(self._book) > _MAX_DIFFERENCES:
            over = (
                first for first, reported in self._book.items() if reported.over_at_ms is not None
            )
            oldest = next(over, next(iter(self._book)))
            del self._book[oldest], self._places[oldest]

    def _log(self, reported: ReportedDifference) -> None:
        also = ""
        if reported.also:
            also = f"; also {shortened(reported.also, _MAX_PLACES)}"
        if reported.defect is not None:
            also += f" (known defect {reported.defect})"
        description = (
            "has not followed us"
            if reported.result is WriteResult.NOT_WRITTEN
            else "wrote otherwise"
        )
        since = datetime.fromtimestamp(reported.since_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        log.warning(
            "the Device Plugin %s since %s: %s%s", description, since, reported.reported, also
        )


def _by_device(differences: Iterable[DocumentDifference]) -> list[list[DocumentDifference]]:
    """Return groups of one device each, which keep their order and begin with the first of all."""
    listed = list(differences)
    order = list(dict.fromkeys(difference.fact.device for difference in listed))
    listed.sort(key=lambda difference: order.index(difference.fact.device))
    return [
        list(group) for _, group in groupby(listed, key=lambda difference: difference.fact.device)
    ]
