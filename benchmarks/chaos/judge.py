"""Judges what was shown in an episode by what was true. Pure.

It imports neither agent nor aggregator. It knows when each fault began and ended, the level of each
code in the fault configuration in force, and when which subject is excused. Each sample is what one
document showed at one time. For each fault in each document, outside of excuses::

    a fault that holds since BOUND is in every sample
    a fault that is over since BOUND is in no sample
    a fault that was seen gone after its end is in no later sample, at once
    a level in a sample is that of the code, BOUND after the fault began
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BOUND_SECONDS = 6.0
"""An audit finds what no event reported: its period in these episodes is 4 s."""


class Wrong(StrEnum):
    """What the judge calls wrong."""

    MISSING = "a fault that holds is missing"
    LATCHED = "a fault that is over is shown"
    RETURNED = "a fault that was over and gone is shown again"
    LEVEL = "a level is wrong"
    INVENTED = "a chip that never failed is named"
    LOST = "a node is lost whose agent runs"


class Fault(msgspec.Struct, frozen=True):
    """The truth about a fault: it held from ``begin`` until ``end`` (``None``: it holds)."""

    node: str
    chip: int
    code: str
    begin: float
    end: float | None = None


class Sample(msgspec.Struct, frozen=True):
    """What a document showed ``at`` a time: levels by node, chip and code, and lost nodes.

    ``nodes`` are those that the document is about.
    """

    document: str
    at: float
    nodes: frozenset[str]
    levels: Mapping[tuple[str, int, str], str]
    lost: frozenset[str] = frozenset()


class Excuse(msgspec.Struct, frozen=True):
    """From ``begin`` until ``end`` the ``documents`` may show the past of ``nodes``."""

    reason: str
    begin: float
    end: float
    nodes: frozenset[str]
    documents: frozenset[str]


class Verdict(msgspec.Struct, frozen=True):
    """Something wrong: the first sample that shows it."""

    wrong: Wrong
    document: str
    node: str
    chip: int | None
    code: str
    at: float
    reason: str


def judge(
    faults: Sequence[Fault],
    samples: Iterable[Sample],
    excuses: Sequence[Excuse],
    levels: Mapping[str, str],
    bound: float = BOUND_SECONDS,
) -> list[Verdict]:
    """Return all that is wrong, once for each fault and document. ``levels`` are by code."""
    judging = _Judging(faults, excuses, levels, bound)
    for sample in sorted(samples, key=lambda sample: sample.at):
        judging.look(sample)
    return list(judging.verdicts.values())


def excused_share(excuses: Iterable[Excuse], seconds: float) -> float:
    """Return which part of an episode any excuse covers."""
    return sum(max(0.0, min(end, seconds) - begin) for begin, end in _joined(excuses)) / seconds


class _Judging:
    def __init__(
        self,
        faults: Sequence[Fault],
        excuses: Sequence[Excuse],
        levels: Mapping[str, str],
        bound: float,
    ) -> None:
        self.verdicts: dict[tuple[Wrong, str, str, int | None, str], Verdict] = {}
        self._faults: dict[tuple[str, int, str], list[Fault]] = defaultdict(list)
        for fault in faults:
            self._faults[fault.node, fault.chip, fault.code].append(fault)
        self._excuses = excuses
        self._levels = levels
        self._bound = bound
        self._gone: set[tuple[str, Fault]] = set()
        """Faults that were seen to be gone after their end, by document."""
        self._shown: set[tuple[str, Fault]] = set()
        """Faults that were shown while they held, by document."""

    def look(self, sample: Sample) -> None:
        """Judge one sample."""
        for key, faults in self._faults.items():
            if key[0] in sample.nodes:
                self._look_at(sample, key, faults)
        for key, level in sample.levels.items():
            if key not in self._faults:
                self._wrong(Wrong.INVENTED, sample, *key, f"it is shown as {level}")
        for node in sample.lost:
            if not self._is_excused(sample, node):
                self._wrong(Wrong.LOST, sample, node, None, "", "it is published as lost")

    def _look_at(self, sample: Sample, key: tuple[str, int, str], faults: Sequence[Fault]) -> None:
        level = sample.levels.get(key)
        holding = next((fault for fault in faults if _holds(fault, sample.at)), None)
        over = [fault for fault in faults if fault.end is not None and fault.end <= sample.at]
        if level is None:
            for fault in over:
                self._gone.add((sample.document, fault))
            if holding is None or self._is_excused(sample, key[0]):
                return
            if (sample.document, holding) in self._shown:
                self._wrong(Wrong.MISSING, sample, *key, "it was shown before")
            elif not self._is_young(sample, key[0], holding.begin):
                since = sample.at - holding.begin
                self._wrong(Wrong.MISSING, sample, *key, f"it holds since {since:.1f} s")
            return
        if holding is None:
            self._shown_after_its_end(sample, key, over)
            return
        self._shown.add((sample.document, holding))
        if not self._is_young(sample, key[0], holding.begin) and level != self._levels[key[2]]:
            text = f"it is {self._levels[key[2]]}, and shown as {level}"
            self._wrong(Wrong.LEVEL, sample, *key, text)

    def _shown_after_its_end(
        self, sample: Sample, key: tuple[str, int, str], over: Sequence[Fault]
    ) -> None:
        if not over:
            self._wrong(Wrong.INVENTED, sample, *key, "it has not begun")
            return
        last = over[-1]
        assert last.end is not None
        if (sample.document, last) in self._gone and not self._is_excused(sample, key[0]):
            self._wrong(Wrong.RETURNED, sample, *key, "it was gone after its end")
        elif not self._is_young(sample, key[0], last.end):
            since = sample.at - last.end
            self._wrong(Wrong.LATCHED, sample, *key, f"it is over since {since:.1f} s")

    def _is_young(self, sample: Sample, node: str, since: float) -> bool:
        """Return whether a change at ``since`` may still be on its way: time under excuse does not
        count.
        """
        ages = sample.at - since
        for begin, end in _joined(self._of(sample, node)):
            ages -= max(0.0, min(end, sample.at) - max(begin, since))
        return ages < self._bound or self._is_excused(sample, node)

    def _is_excused(self, sample: Sample, node: str) -> bool:
        return any(excuse.begin <= sample.at < excuse.end for excuse in self._of(sample, node))

    def _of(self, sample: Sample, node: str) -> Iterator[Excuse]:
        for excuse in self._excuses:
            if node in excuse.nodes and sample.document in excuse.documents:
                yield excuse

    def _wrong(
        self, wrong: Wrong, sample: Sample, node: str, chip: int | None, code: str, reason: str
    ) -> None:
        key = wrong, sample.document, node, chip, code
        self.verdicts.setdefault(
            key, Verdict(wrong, sample.document, node, chip, code, sample.at, reason)
        )


def _holds(fault: Fault, at: float) -> bool:
    return fault.begin <= at and (fault.end is None or at < fault.end)


def _joined(excuses: Iterable[Excuse]) -> list[tuple[float, float]]:
    """Return the times that excuses cover, without counting a time twice."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted((excuse.begin, excuse.end) for excuse in excuses):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined
