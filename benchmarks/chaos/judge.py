"""Judges what was shown in an episode by what was true. Pure.

It imports neither agent nor aggregator. It knows when each fault began and ended, the level of each
code in the fault configuration in force, and when which subject is excused. Each sample is what one
document showed while it was read. For each fault in each document, outside of excuses::

    a fault that holds since BOUND is in every sample
    a document with a fault that holds is gone for less than BOUND: readers keep what they have
    a fault that is over since BOUND is in no sample
    a fault that was shown and seen gone after its end is in no later sample, at once
    a level in a sample is that of the code, BOUND after the fault began
    the time of a fault that holds stays as it was shown first
    a one-off fault is in a sample after BOUND, then for ONE_OFF, and is gone BOUND later for good;
        a document about several nodes lacks one that came and went while it was excused
    a node whose agent does not beat is lost, SILENCE after its last progress

An excuse permits that documents are late. What was shown already may go only under one that
``forgets``, and a node may be lost only under one that ``loses``. Excuses are as
``benchmarks.chaos.excuses`` composes them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BOUND_SECONDS = 6.0
"""An audit finds what no event reported: its period in these episodes is 4 s."""
HEARTBEAT_SECONDS = 2.0
"""The interval in these episodes."""
SILENCE_SECONDS = 23.0
"""A task of the agent is stalled after 12 s, and its node is lost 3 heartbeats of 2 s later. The
aggregator lists heartbeats, and measures how long one takes before it publishes a loss.
"""
_MEASURED_SECONDS = 11.0
"""An aggregator that has started measures the silence of a node from then on."""


ONE_OFF_SECONDS = 5.5
"""A one-off fault is shown so long, counted from the first write of its node's document."""
_CLUSTER_ONE_OFF_SECONDS = 5.0
"""In a document about several nodes it may appear later than it disappears."""
_MIN_VISIBLE_SECONDS = 1.0
"""After so long in a node's own document, one about several nodes must have a fault."""


class Wrong(StrEnum):
    """What the judge calls wrong."""

    MISSING = "a fault that holds is missing"
    LATCHED = "a fault that is over is shown"
    RETURNED = "a fault that was over and gone is shown again"
    LEVEL = "a level is wrong"
    BRIEF = "a one-off fault is gone too soon"
    INVENTED = "a chip that never failed is named"
    ABSENT = "a document is never shown"
    TIME = "the time of a fault that holds has changed"
    LOST = "a node is lost whose agent runs"
    NOT_LOST = "a node is not lost whose agent makes no progress"


class Fault(msgspec.Struct, frozen=True):
    """The truth about a fault: it held from ``begin`` until ``end`` (``None``: it holds).

    ``once``: a one-off fault is an event at ``begin``, and holds at no time. A plan has it at a
    time when no trouble loses it, and only once for a code of a chip.
    """

    node: str
    chip: int
    code: str
    begin: float
    end: float | None = None
    once: bool = False


class Sample(msgspec.Struct, frozen=True):
    """What a document showed between ``at`` and ``until``, by default at that time: levels by node,
    chip and code, and lost nodes.

    ``nodes`` are those that the document is about. ``times`` are when faults began, as shown.
    ``lost`` is ``None`` where nothing is stated about lost nodes. ``is_gone``: there is no such
    document, or it cannot be parsed.
    """

    document: str
    at: float
    nodes: frozenset[str]
    levels: Mapping[tuple[str, int, str], str]
    lost: frozenset[str] | None = None
    times: Mapping[tuple[str, int, str], int] = {}
    is_gone: bool = False
    until: float = 0.0

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "until", max(self.at, self.until))


class Excuse(msgspec.Struct, frozen=True):
    """What ``documents`` may show about ``nodes`` from ``begin`` until ``end``.

    ``is_late``: they may show the past. ``forgets``: they may also lack what they have shown.
    ``loses``: the nodes may be lost. ``retimes``: the times of faults may change, as after the
    clock of a node was set. ``returns``: they may have again what was over before ``begin``.
    ``shortens``: a one-off fault that they show then may go too soon.
    """

    reason: str
    begin: float
    end: float
    nodes: frozenset[str]
    documents: frozenset[str]
    is_late: bool = True
    forgets: bool = False
    loses: bool = False
    retimes: bool = False
    returns: bool = False
    shortens: bool = False


class Silence(msgspec.Struct, frozen=True):
    """From ``begin`` until ``end`` the agent of ``node`` makes no progress, for ``reason``."""

    reason: str
    node: str
    begin: float
    end: float


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
    silences: Sequence[Silence] = (),
) -> list[Verdict]:
    """Return all that is wrong, once for each fault and document. ``levels`` are by code."""
    judging = _Judging(faults, excuses, levels, silences)
    for sample in sorted(samples, key=lambda sample: sample.at):
        judging.look(sample)
    return list(judging.verdicts.values())


def excused_seconds(excuses: Iterable[Excuse], end: float) -> float:
    """Return how long, until ``end``, a document may be late or a node may be lost."""
    covering = (excuse for excuse in excuses if excuse.is_late or excuse.loses)
    return _covered_seconds(covering, -math.inf, end)


def settled_seconds(
    faults: Sequence[Fault], samples: Iterable[Sample], levels: Mapping[str, str], since: float
) -> float:
    """Return how long after ``since`` a document showed something else than what was true then.

    What changes later does not count from its change on. A node is settled in a document by the
    first sample that is right about it.
    """
    changes: dict[tuple[str, int, str], float] = {}
    expected: dict[tuple[str, int, str], str | None] = {}
    for fault in faults:
        key = fault.node, fault.chip, fault.code
        if fault.once:
            continue
        times = [at for at in (fault.begin, fault.end) if at is not None and at > since]
        changes[key] = min([*times, changes.get(key, math.inf)])
        level = levels[fault.code] if _holds(fault, since) else expected.get(key)
        expected[key] = level
    settled, unsettled = 0.0, set[tuple[str, str]]()
    for sample in sorted(samples, key=lambda sample: sample.at):
        if sample.at < since or sample.is_gone:
            continue
        wrong = {
            key[0]
            for key, level in expected.items()
            if sample.until < changes[key] and sample.levels.get(key) != level
        }
        for node in sample.nodes:
            place = sample.document, node
            is_wrong = node in wrong or node in (sample.lost or ())
            if is_wrong or place in unsettled:
                settled = sample.at - since
            (unsettled.add if is_wrong else unsettled.discard)(place)
    return settled


def one_off_seconds(faults: Iterable[Fault], samples: Iterable[Sample]) -> list[float]:
    """Return for how long each one-off fault was in the samples of its node's own document."""
    spans: dict[tuple[str, int, str], tuple[float, float]] = {}
    for sample in samples:
        if len(sample.nodes) == 1 and sample.lost is None:
            for key in sample.levels:
                first, _ = spans.get(key, (sample.at, 0.0))
                spans[key] = first, sample.at
    keys = ((fault.node, fault.chip, fault.code) for fault in faults if fault.once)
    return [spans[key][1] - spans[key][0] for key in keys if key in spans]


class _OneOff:
    """What a document showed of a one-off fault, and when."""

    absent = -math.inf
    """The last sample without it before it was shown."""
    shown: float | None = None
    """The first sample with it."""
    is_over = False
    """It was shown, and then was not."""
    absent_again = math.inf
    """The first sample without it after it was shown."""
    time: int | None = None


class _Judging:
    def __init__(
        self,
        faults: Sequence[Fault],
        excuses: Sequence[Excuse],
        levels: Mapping[str, str],
        silences: Sequence[Silence],
    ) -> None:
        self.verdicts: dict[tuple[Wrong, str, str, int | None, str], Verdict] = {}
        self._faults: dict[tuple[str, int, str], list[Fault]] = defaultdict(list)
        self._one_offs: dict[tuple[str, int, str], Fault] = {}
        self._one_offs_shown: dict[tuple[str, Fault], _OneOff] = defaultdict(_OneOff)
        for fault in faults:
            key = fault.node, fault.chip, fault.code
            if fault.once:
                self._one_offs[key] = fault
            else:
                self._faults[key].append(fault)
        self._excuses = excuses
        self._levels = levels
        self._silences = silences
        self._gone: set[tuple[str, Fault]] = set()
        """Faults that were seen to be gone after their end, by document."""
        self._shown: set[tuple[str, Fault]] = set()
        """Faults that were shown while they held, by document."""
        self._times: dict[tuple[str, Fault], int] = {}
        """When each of them began, as the document shows it."""
        self._gone_at: dict[tuple[str, frozenset[str]], float] = {}
        """The first sample without a document that has gone, by document and its nodes."""

    def look(self, sample: Sample) -> None:
        """Judge one sample."""
        if sample.is_gone:
            self._look_at_gone(sample)
            return
        self._gone_at.pop((sample.document, sample.nodes), None)
        for key, faults in self._faults.items():
            if key[0] in sample.nodes:
                self._look_at(sample, key, faults)
        for key, fault in self._one_offs.items():
            if key[0] in sample.nodes:
                self._look_at_one_off(sample, key, fault)
        for key, level in sample.levels.items():
            if key not in self._faults and key not in self._one_offs:
                self._wrong(Wrong.INVENTED, sample, *key, f"it is shown as {level}")
        if sample.lost is not None:
            self._look_at_lost(sample, sample.lost)

    def _look_at_gone(self, sample: Sample) -> None:
        since = self._gone_at.setdefault((sample.document, sample.nodes), sample.at)
        for key, faults in self._faults.items():
            begins = [fault.begin for fault in faults if _holds(fault, sample.at)]
            if not begins or key[0] not in sample.nodes or self._may_forget(sample, key[0]):
                continue
            if not self._is_young(sample, key[0], max(since, *begins)):
                text = f"its document is gone since {sample.at - since:.1f} s"
                self._wrong(Wrong.MISSING, sample, *key, text)

    def _look_at_lost(self, sample: Sample, lost: frozenset[str]) -> None:
        for node in lost:
            if not any(excuse.loses for excuse in self._at(sample, node)):
                self._wrong(Wrong.LOST, sample, node, None, "", "it is published as lost")
        for silence in self._silences:
            if not silence.begin <= sample.at < silence.end or silence.node in lost:
                continue
            # The trouble itself excuses late faults, and no node that is not lost.
            others = [item for item in self._excuses if item.reason != silence.reason]
            since = self._age(sample, silence.node, silence.begin, others)
            is_measured = all(
                sample.until < excuse.begin or excuse.end + _MEASURED_SECONDS <= sample.at
                for excuse in self._of(sample, silence.node, others)
            )
            if since >= SILENCE_SECONDS and is_measured:
                text = f"it makes no progress since {since:.1f} s"
                self._wrong(Wrong.NOT_LOST, sample, silence.node, None, "", text)

    def _look_at(self, sample: Sample, key: tuple[str, int, str], faults: Sequence[Fault]) -> None:
        level = sample.levels.get(key)
        # A fault that begins or ends while a document is read may be shown, and may be missing.
        holding = next(
            (fault for fault in faults if _holds_in(fault, sample, is_shown=level is not None)),
            None,
        )
        over = [fault for fault in faults if fault.end is not None and fault.end <= sample.at]
        if level is None:
            # What a store forgot may come back with what its writers have.
            if not self._may_forget(sample, key[0]):
                self._gone.update((sample.document, fault) for fault in over)
            if holding is None or self._may_forget(sample, key[0]):
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
        # What is shown may be the fault before, until that was seen gone.
        if all((sample.document, fault) in self._gone for fault in over):
            self._shown_again(sample, key, holding)
        if not self._is_young(sample, key[0], holding.begin) and level != self._levels[key[2]]:
            text = f"it is {self._levels[key[2]]}, and shown as {level}"
            self._wrong(Wrong.LEVEL, sample, *key, text)

    def _look_at_one_off(self, sample: Sample, key: tuple[str, int, str], fault: Fault) -> None:
        shown = self._one_offs_shown[sample.document, fault]
        level = sample.levels.get(key)
        if level is None:
            self._one_off_absent(sample, key, fault, shown)
        elif sample.until < fault.begin:
            self._wrong(Wrong.INVENTED, sample, *key, "it has not begun")
        elif shown.is_over:
            if not self._may_forget(sample, key[0]):
                self._wrong(Wrong.RETURNED, sample, *key, "it was gone")
        else:
            if shown.shown is None:
                shown.shown = sample.at
            if level != self._levels[key[2]]:
                text = f"it is {self._levels[key[2]]}, and shown as {level}"
                self._wrong(Wrong.LEVEL, sample, *key, text)
            time = sample.times.get(key)
            before, shown.time = shown.time, time
            if before not in (None, time) and not self._may_retime(sample, key[0]):
                self._wrong(Wrong.TIME, sample, *key, f"it was {before}, and is {time}")
            if not self._is_young(sample, key[0], shown.shown + ONE_OFF_SECONDS):
                since = sample.at - shown.shown
                self._wrong(Wrong.LATCHED, sample, *key, f"it is shown since {since:.1f} s")

    def _one_off_absent(
        self, sample: Sample, key: tuple[str, int, str], fault: Fault, shown: _OneOff
    ) -> None:
        if shown.shown is None:
            shown.absent = sample.at
            is_due = sample.at >= fault.begin and not self._is_young(sample, key[0], fault.begin)
            if is_due and not self._was_one_off_hidden(sample, key[0], fault):
                since = sample.at - fault.begin
                self._wrong(Wrong.MISSING, sample, *key, f"it was {since:.1f} s ago")
            return
        if shown.is_over:
            return
        shown.is_over, shown.absent_again = True, sample.at
        is_own = len(sample.nodes) == 1 and sample.lost is None
        # Between two samples it may have been shown already, or still.
        seconds = sample.until - max(shown.absent, fault.begin)
        is_brief = seconds < (ONE_OFF_SECONDS if is_own else _CLUSTER_ONE_OFF_SECONDS)
        # Where its begin was late, only the node's own document has it for the whole time.
        is_late = not is_own and any(
            begin < shown.shown and fault.begin < end
            for begin, end in _joined(self._of(sample, key[0]))
        )
        may_be_brief = any(
            excuse.shortens and excuse.begin <= sample.until and shown.shown < excuse.end
            for excuse in self._excuses
            if _is_about(excuse, sample, key[0])
        )
        if is_brief and not is_late and not may_be_brief:
            self._wrong(Wrong.BRIEF, sample, *key, f"it was shown for {seconds:.1f} s at most")

    def _was_one_off_hidden(self, sample: Sample, node: str, fault: Fault) -> bool:
        """Return whether a one-off fault came and went in its node's own document while this
        document about several nodes was excused.

        A program that makes it of such documents has the last of them, and no earlier one.
        """
        if len(sample.nodes) == 1:
            return False
        # What troubles of the node excuse stops no program that merges documents.
        excused = [item for item in self._of(sample, node) if item.nodes >= sample.nodes]
        for (document, other), own in self._one_offs_shown.items():
            if other is not fault or document == sample.document or not own.is_over:
                continue
            assert own.shown is not None
            begin, end = own.shown, own.absent_again
            return end - begin - _covered_seconds(excused, begin, end) < _MIN_VISIBLE_SECONDS
        return False

    def _may_retime(self, sample: Sample, node: str) -> bool:
        is_set = any(excuse.retimes for excuse in self._at(sample, node))
        return is_set or self._may_forget(sample, node)

    def _shown_again(self, sample: Sample, key: tuple[str, int, str], holding: Fault) -> None:
        shown = sample.document, holding
        self._shown.add(shown)
        time = sample.times.get(key)
        if time is None:
            return
        before = self._times.setdefault(shown, time)
        if before == time:
            return
        self._times[shown] = time
        if not self._may_retime(sample, key[0]):
            self._wrong(Wrong.TIME, sample, *key, f"it was {before}, and is {time}")

    def _shown_after_its_end(
        self, sample: Sample, key: tuple[str, int, str], over: Sequence[Fault]
    ) -> None:
        if not over:
            self._wrong(Wrong.INVENTED, sample, *key, "it has not begun")
            return
        last = over[-1]
        assert last.end is not None
        if self._may_return(sample, key[0], last):
            return
        is_back = (sample.document, last) in self._gone and not self._may_forget(sample, key[0])
        if is_back and not self._was_hidden(sample, last):
            self._wrong(Wrong.RETURNED, sample, *key, "it was gone after its end")
        elif not self._is_young(sample, key[0], last.end):
            since = sample.at - last.end
            self._wrong(Wrong.LATCHED, sample, *key, f"it is over since {since:.1f} s")

    def _was_hidden(self, sample: Sample, fault: Fault) -> bool:
        """Return whether a fault ended before it had to be shown, and was not.

        Such a fault may be shown for the first time after its end.
        """
        assert fault.end is not None
        excused = _covered_seconds(self._of(sample, fault.node), fault.begin, fault.end)
        is_shown = (sample.document, fault) in self._shown
        return not is_shown and fault.end - fault.begin - excused < BOUND_SECONDS

    def _is_young(self, sample: Sample, node: str, since: float) -> bool:
        """Return whether a change at ``since`` may still be on its way."""
        return self._age(sample, node, since) < BOUND_SECONDS or self._is_excused(sample, node)

    def _age(
        self,
        sample: Sample,
        node: str,
        since: float,
        excuses: Sequence[Excuse] | None = None,
    ) -> float:
        """Return the seconds since a change; time under an excuse does not count."""
        excused = _covered_seconds(self._of(sample, node, excuses), since, sample.at)
        return sample.at - since - excused

    def _is_excused(
        self, sample: Sample, node: str, excuses: Sequence[Excuse] | None = None
    ) -> bool:
        covering = self._of(sample, node, excuses)
        return any(_is_during(excuse, sample) for excuse in covering)

    def _may_forget(self, sample: Sample, node: str) -> bool:
        return any(excuse.forgets for excuse in self._at(sample, node))

    def _may_return(self, sample: Sample, node: str, fault: Fault) -> bool:
        assert fault.end is not None
        return any(excuse.returns and fault.end < excuse.begin for excuse in self._at(sample, node))

    def _at(self, sample: Sample, node: str) -> Iterator[Excuse]:
        for excuse in self._excuses:
            if _is_during(excuse, sample) and _is_about(excuse, sample, node):
                yield excuse

    def _of(
        self, sample: Sample, node: str, excuses: Sequence[Excuse] | None = None
    ) -> Iterator[Excuse]:
        for excuse in self._excuses if excuses is None else excuses:
            if excuse.is_late and _is_about(excuse, sample, node):
                yield excuse

    def _wrong(
        self, wrong: Wrong, sample: Sample, node: str, chip: int | None, code: str, reason: str
    ) -> None:
        key = wrong, sample.document, node, chip, code
        self.verdicts.setdefault(
            key, Verdict(wrong, sample.document, node, chip, code, sample.at, reason)
        )


def _is_during(excuse: Excuse, sample: Sample) -> bool:
    return excuse.begin <= sample.until and sample.at < excuse.end


def _is_about(excuse: Excuse, sample: Sample, node: str) -> bool:
    return node in excuse.nodes and sample.document in excuse.documents


def _holds(fault: Fault, at: float) -> bool:
    return fault.begin <= at and (fault.end is None or at < fault.end)


def _holds_in(fault: Fault, sample: Sample, *, is_shown: bool) -> bool:
    """Return whether ``fault`` held at a time of ``sample``, or where it is not shown at all."""
    times = sample.at, sample.until
    return (any if is_shown else all)(_holds(fault, at) for at in times)


def _covered_seconds(excuses: Iterable[Excuse], begin: float, end: float) -> float:
    """Return how long of the time from ``begin`` to ``end`` excuses cover."""
    return sum(max(0.0, min(to, end) - max(since, begin)) for since, to in _joined(excuses))


def _joined(excuses: Iterable[Excuse]) -> list[tuple[float, float]]:
    """Return the times that excuses cover, without counting a time twice."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted((excuse.begin, excuse.end) for excuse in excuses):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined
