"""Follows each presence from its journal to what the cluster shows, and back. Pure.

Forward, on the way of a fault::

    verdict -> write that shows it -> entry of the aggregator -> what is shown now

and the same for its end. Back, each entry of the aggregator needs a presence. Entries are compared
by node, part, code and time, because documents carry no ids: an entry belongs to all presences that
it overlaps, within ``BOUND_MS`` behind the write and ``EARLY_MS`` before the verdict. Several
presences under one entry are proved together. What is younger than ``BOUND_MS`` is under way.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from aggregator.processors.uce_accompany import COMPANIONS, WINDOW_MS
from contract.codes.chip_codes import HBM_MULTI_BIT
from contract.codes.levels import ChipLevel
from contract.codes.policies import AUTOFILL_CODE
from contract.pages.changes import STATUS
from contract.sentences import joined, message, sentence
from vigil.prove.presences import PROVED_KINDS, Write, first_write

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from contract.pages.history import HistoryRow
    from vigil.prove.presences import JournaledChange, NodeJournal, Presence

BOUND_MS = 10_000
"""How long a step may take before it counts as a gap: far more than any budget of a write."""
EARLY_MS = 2_000
"""By how much an entry may look older than its verdict: the clocks of two hosts differ."""
MERGED_MS = 5_000
"""A presence that a document showed for less may be under no entry of the aggregator.

A one-off fault is shown for 5.5 s (decision 3), so it is never among these.
"""
UNDER_WAY = message("under way")
WITHHELD = message("withheld by the aggregator")
MISSING_ROWS = message("with rows that are missing in the journal")
NOT_RECORDED = message("over while the history of the aggregator was incomplete")
_OF_AGGREGATOR = frozenset({ChipLevel.MANUALLY_SEPARATE_NPU.value, AUTOFILL_CODE})
"""Codes of chips that the aggregator or an operator separates: no episode has them."""
_CHIP = re.compile(r"[A-Za-z0-9]+-(\d+)")
_PUBLIC_CODE = re.compile(r"\d{9}")


class GapName(StrEnum):
    """What is wrong between a journal and what the cluster shows."""

    NEVER_PUBLISHED = message("never published")
    ENDED_BUT_SHOWN = message("ended but shown")
    LEVEL_DIFFERS = message("level differs")
    AGGREGATOR_BEHIND = message("aggregator behind")
    UNEXPLAINED = message("no journal explains it")
    JOURNAL_LOST = message("journal lost")
    NOT_KNOWN = message("not known")


class DeliveryGap(msgspec.Struct, frozen=True):
    """A gap, about a part and code of a node, or a whole node. Times are those of the node (ms).

    An entry without a journal has the times of the aggregator.
    """

    name: GapName
    node: str
    part: str
    code: str
    episodes: tuple[str, ...]
    since_ms: int | None
    until_ms: int | None
    reason: str


class StepTime(msgspec.Struct, frozen=True):
    """How long a step took, of which fault."""

    step: str
    took_ms: int
    node: str
    part: str
    code: str


class Proof(msgspec.Struct):
    """The result. ``counts`` are episodes that are neither proved nor a gap, by their reason."""

    episodes: int = 0
    proved: int = 0
    together: int = 0
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    gaps: list[DeliveryGap] = msgspec.field(default_factory=list)
    steps: list[StepTime] = msgspec.field(default_factory=list)


@dataclass
class Entry:
    """A time in which the aggregator published a code on a part of a node, by its clock."""

    begin_ms: int
    levels: list[str]
    changed_ms: int
    end_ms: int | None = None
    is_used: bool = False


@dataclass(frozen=True)
class _PresenceTimes:
    """Times of a presence by the aggregator's clock; ``over_ms``: of the write without it."""

    verdict_ms: int
    written_ms: int
    changed_ms: int
    over_ms: int | None


Key: TypeAlias = tuple[str, str, str]
"""Node, part (``part_of``) and code."""

Outcome: TypeAlias = "GapName | str | None"
"""Of a presence: a gap, why it is neither proved nor a gap, or ``None``: it is proved."""


@dataclass
class ClusterView:
    """What the cluster shows.

    ``entries`` are from the history, ``None`` where no history was read; ``recorded`` has from when
    until when it is complete. ``shown`` has the level of each fault that is shown
    now, and ``withheld`` those that the aggregator withholds. ``received`` has, of journals that
    are sent to the aggregator, when it received each episode. ``ahead_ms`` is by how much the clock
    of a node is ahead.
    """

    at_ms: int
    shown: Mapping[Key, str]
    withheld: Collection[Key] = frozenset()
    entries: dict[Key, list[Entry]] | None = None
    recorded: Sequence[tuple[int, int]] = ()
    received: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ahead_ms: Mapping[str, int] = field(default_factory=dict)


def entries_of(rows: Iterable[HistoryRow]) -> dict[Key, list[Entry]]:
    """Return the entries that the published changes of a history make, in order."""
    entries: dict[Key, list[Entry]] = defaultdict(list)
    for row in rows:
        change = row.published
        if change is None or change.code == STATUS:
            continue
        of_key = entries[change.node, part_of_name(change.subject), change.code]
        last = of_key[-1] if of_key and of_key[-1].end_ms is None else None
        if change.level is None:
            if last is not None:
                last.end_ms = change.at_ms
            elif change.was:
                of_key.append(Entry(0, [change.was], 0, change.at_ms))
        elif last is None:
            # It began before the part of the history that was read.
            began_ms = 0 if change.was else change.at_ms
            of_key.append(Entry(began_ms, [change.level], change.at_ms))
        else:
            last.levels.append(change.level)
            last.changed_ms = change.at_ms
    return entries


def part_of_name(name: str) -> str:
    """Return the name of a published part without the type of a chip (``chip 3``)."""
    chip = _CHIP.fullmatch(name)
    return name if chip is None else f"chip {chip[1]}"


def prove(
    journals: Iterable[NodeJournal], cluster: ClusterView | None, since_ms: int | None
) -> Proof:
    """Return what ``journals`` prove; without ``cluster`` up to the acknowledged write only.

    Presences that were over at ``since_ms`` do not count.
    """
    matching = _Matching(cluster, since_ms)
    for journal in sorted(journals, key=lambda journal: journal.node):
        matching.add(journal)
    return matching.proof


class _Matching:
    def __init__(self, cluster: ClusterView | None, since_ms: int | None) -> None:
        self.proof = Proof()
        self._cluster = cluster
        self._since_ms = since_ms or 0
        self._keys: dict[str, list[Key]] = defaultdict(list)
        """What the cluster shows or has in its history, by node."""
        if cluster is not None:
            for key in cluster.shown if cluster.entries is None else cluster.entries:
                self._keys[key[0]].append(key)
        self._presences: dict[Key, list[Presence]] = {}
        self._current: set[Key] = set()

    def add(self, journal: NodeJournal) -> None:
        """Follow all presences of a journal, and look for what it does not explain."""
        presences = sorted(journal.presences, key=lambda presence: presence.begin.sequence)
        self._presences = defaultdict(list)
        for presence in presences:
            self._presences[_key_of(presence)].append(presence)
        self._current = {_key_of(presence) for presence in presences if presence.end is None}
        for presence in presences:
            if presence.end is None or presence.end.at_ms >= self._since_ms:
                self._count(journal, presence)
        self._report_missing(journal)
        if self._cluster is not None:
            self._explain_entries(journal, self._cluster)
            self._explain_shown(journal, self._cluster)

    def _count(self, journal: NodeJournal, presence: Presence) -> None:
        # What only a rule holds has no episode, and counts once.
        number = max(1, len(presence.episodes))
        self.proof.episodes += number
        outcome = self._follow(journal, presence)
        match outcome:
            case GapName():
                pass
            case None:
                self.proof.proved += number
            case reason:
                self.proof.counts[reason] += number

    # Forward. Each method returns ``None`` for what is proved, the gap, or why it is neither.

    def _follow(self, journal: NodeJournal, presence: Presence) -> Outcome:
        if presence.kind not in PROVED_KINDS:
            return message("of a kind that only public faults show")
        # Documents have the separation itself, and not this code, which only the journal has.
        if presence.code == AUTOFILL_CODE:
            return message("of a separation by hand, which is shown without a code")
        # A code in no level table is in no list of readers (docs/spec/noded.md).
        if not any(presence.levels):
            return message("of a code without a level, which no document shows")
        writes = journal.writes_of(presence.kind)
        begin, end = presence.begin, presence.end
        if presence.ended_unseen:
            return MISSING_ROWS
        write = first_write(writes, begin)
        if presence.is_held:
            # It was written before the part of the journal that was read.
            write = Write(begin.sequence, begin.row_ms, begin.sequence)
        elif write is None:
            return self._unwritten(journal, presence, writes)
        elif end is not None and end.sequence <= write.through:
            return message("over before the write that was due")
        else:
            self._time(message("event to verdict"), presence, begin.row_ms - begin.at_ms)
            self._time(message("verdict to write"), presence, write.at_ms - begin.row_ms)
        of_end = None
        if end is not None:
            of_end = first_write(writes, end)
            if of_end is None:
                return self._end_unwritten(journal, presence, end)
            self._time(message("end to write"), presence, of_end.at_ms - end.row_ms)
        if self._cluster is None:
            return None
        return self._follow_in_cluster(self._cluster, journal, presence, write, of_end)

    def _end_unwritten(
        self, journal: NodeJournal, presence: Presence, end: JournaledChange
    ) -> Outcome:
        if journal.at_ms - end.row_ms < BOUND_MS:
            return UNDER_WAY
        if journal.has_lost_rows_after(end):
            return MISSING_ROWS
        text = sentence("no acknowledged write shows its end")
        return self._gap(GapName.ENDED_BUT_SHOWN, presence, text)

    def _unwritten(self, journal: NodeJournal, presence: Presence, writes: list[Write]) -> Outcome:
        if journal.at_ms - presence.begin.row_ms < BOUND_MS:
            return UNDER_WAY
        if journal.has_lost_rows_after(presence.begin):
            return MISSING_ROWS
        if not writes:
            text = sentence(
                "the journal has no write of its document: another program writes it, or the "
                "store never answered"
            )
            return self._gap(GapName.NOT_KNOWN, presence, text)
        if not any(write.through for write in writes):
            text = sentence(
                "writes in the journal do not state what they show: their agent was older"
            )
            return self._gap(GapName.NOT_KNOWN, presence, text)
        if presence.end is not None:
            return message("over before its store answered")
        return self._gap(
            GapName.NEVER_PUBLISHED, presence, sentence("no acknowledged write shows it")
        )

    def _follow_in_cluster(
        self,
        cluster: ClusterView,
        journal: NodeJournal,
        presence: Presence,
        write: Write,
        of_end: Write | None,
    ) -> Outcome:
        ahead_ms = cluster.ahead_ms.get(presence.node, 0)
        # From here on all times are by the aggregator's clock.
        times = _PresenceTimes(
            verdict_ms=presence.begin.row_ms - ahead_ms,
            written_ms=write.at_ms - ahead_ms,
            changed_ms=presence.changed.row_ms - ahead_ms,
            over_ms=None if of_end is None else of_end.at_ms - ahead_ms,
        )
        outcome = self._received(cluster, journal, presence, times)
        if outcome is None and cluster.entries is not None:
            entries = cluster.entries.get(_key_of(presence), [])
            outcome = self._follow_entries(cluster, entries, presence, times)
        return self._follow_shown(cluster, presence, times) if outcome is None else outcome

    def _received(
        self, cluster: ClusterView, journal: NodeJournal, presence: Presence, times: _PresenceTimes
    ) -> Outcome:
        """Look for the ids of the episodes among those that the aggregator received."""
        received = cluster.received.get(journal.journal)
        # Only a broker carries journals to the aggregator; what is held began before this part.
        if received is None or presence.is_held:
            return None
        for episode in presence.episodes:
            at_ms = received.get(episode)
            if at_ms is not None:
                self._time(message("verdict to history"), presence, at_ms - times.verdict_ms)
            elif cluster.at_ms - times.verdict_ms < BOUND_MS:
                return UNDER_WAY
            else:
                text = sentence(
                    "the aggregator has not received the episode {episode}", episode=episode
                )
                return self._gap(GapName.AGGREGATOR_BEHIND, presence, text)
        return None

    def _follow_entries(
        self, cluster: ClusterView, entries: list[Entry], presence: Presence, times: _PresenceTimes
    ) -> Outcome:
        until_ms = (cluster.at_ms if times.over_ms is None else times.over_ms) + BOUND_MS
        matches = [
            entry
            for entry in entries
            if entry.begin_ms <= until_ms
            and (entry.end_ms is None or entry.end_ms >= times.verdict_ms - EARLY_MS)
        ]
        if not matches:
            return self._without_entry(cluster, presence, times)
        if any(entry.is_used for entry in matches):
            self.proof.together += 1
        for entry in matches:
            entry.is_used = True
        last = matches[-1]
        # An entry that began earlier is of a presence before this one.
        if not presence.is_held and matches[0].begin_ms >= times.verdict_ms - EARLY_MS:
            self._time(message("write to entry"), presence, matches[0].begin_ms - times.written_ms)
        # The level of a part of the server is that of its worst code.
        if presence.kind != "host" and self._had_its_level(cluster, times):
            levels = {level for entry in matches for level in entry.levels}
            if presence.levels[-1] not in levels:
                text = sentence(
                    "it is {level}, and the aggregator has {levels}",
                    level=presence.levels[-1],
                    levels=joined("{before}, {part}", levels),
                )
                return self._gap(GapName.LEVEL_DIFFERS, presence, text)
        if times.over_ms is None:
            return None
        if last.end_ms is not None:
            self._time(
                message("end in the write to end of the entry"),
                presence,
                last.end_ms - times.over_ms,
            )
            return None
        # The code is there again, so its entry goes on.
        if _key_of(presence) in self._current:
            return None
        if cluster.at_ms - times.over_ms < BOUND_MS:
            return UNDER_WAY
        return self._gap(
            GapName.ENDED_BUT_SHOWN, presence, sentence("the aggregator has no end of it")
        )

    def _had_its_level(self, cluster: ClusterView, times: _PresenceTimes) -> bool:
        """Return whether its document had its last level for so long that the aggregator has it."""
        changed_ms = max(times.changed_ms, times.written_ms)
        if times.over_ms is None:
            return cluster.at_ms - changed_ms >= BOUND_MS
        return times.over_ms - changed_ms >= MERGED_MS

    def _without_entry(
        self, cluster: ClusterView, presence: Presence, times: _PresenceTimes
    ) -> Outcome:
        if _key_of(presence) in cluster.withheld:
            return WITHHELD
        if cluster.at_ms - times.written_ms < BOUND_MS:
            return UNDER_WAY
        over_ms = cluster.at_ms if times.over_ms is None else times.over_ms
        if not any(
            since <= times.written_ms and over_ms <= until for since, until in cluster.recorded
        ):
            # What holds must be shown all the same.
            return None if presence.end is None else NOT_RECORDED
        if times.over_ms is not None and times.over_ms - times.written_ms < MERGED_MS:
            return message("shown by its node for less than the aggregator may take")
        if presence.code in COMPANIONS and self._came_with_uce(presence):
            return WITHHELD
        name = GapName.AGGREGATOR_BEHIND if presence.end is None else GapName.NEVER_PUBLISHED
        return self._gap(
            name, presence, sentence("the history of the aggregator has no entry for it")
        )

    def _came_with_uce(self, presence: Presence) -> bool:
        """Return whether the aggregator withheld a companion while it lasted (``clusterd#3.4``)."""
        return any(
            abs(uce.begin.at_ms - presence.begin.at_ms) <= WINDOW_MS
            for uce in self._presences.get((presence.node, presence.part, HBM_MULTI_BIT), ())
        )

    def _follow_shown(
        self, cluster: ClusterView, presence: Presence, times: _PresenceTimes
    ) -> Outcome:
        """Compare with what is shown now."""
        key = _key_of(presence)
        level = cluster.shown.get(key)
        if times.over_ms is not None:
            if level is None or key in self._current:
                return None
            if cluster.at_ms - times.over_ms < BOUND_MS:
                return UNDER_WAY
            return self._gap(
                GapName.ENDED_BUT_SHOWN, presence, sentence("it is shown as {level}", level=level)
            )
        if key in cluster.withheld:
            return WITHHELD
        if level is None:
            if cluster.at_ms - times.written_ms < BOUND_MS:
                return UNDER_WAY
            return self._gap(
                GapName.AGGREGATOR_BEHIND, presence, sentence("it holds, and is not shown")
            )
        if level == presence.levels[-1] or presence.kind == "host":
            return None
        if cluster.at_ms - times.changed_ms < BOUND_MS:
            return UNDER_WAY
        text = sentence(
            "it is {level}, and shown as {other}", level=presence.levels[-1], other=level
        )
        return self._gap(GapName.LEVEL_DIFFERS, presence, text)

    # Back.

    def _explain_entries(self, journal: NodeJournal, cluster: ClusterView) -> None:
        """Report entries of the aggregator that no presence of the journal explains."""
        ahead_ms = cluster.ahead_ms.get(journal.node, 0)
        if cluster.entries is None:
            return
        for key in self._keys[journal.node]:
            if _is_not_of_agents(key):
                continue
            for entry in cluster.entries[key]:
                end_ms = cluster.at_ms if entry.end_ms is None else entry.end_ms
                # Back to the clock of the node, by which its journal is written.
                begin_ms, end_ms = entry.begin_ms + ahead_ms, end_ms + ahead_ms
                if self._is_outside(journal, begin_ms, end_ms) or any(
                    presence.begin.row_ms - EARLY_MS <= end_ms
                    and (presence.end is None or begin_ms <= presence.end.row_ms + BOUND_MS)
                    for presence in self._presences.get(key, ())
                ):
                    continue
                text = sentence("the aggregator published {level}", level=entry.levels[-1])
                self._unexplained(key, entry.begin_ms, entry.end_ms, text)

    def _is_outside(self, journal: NodeJournal, begin_ms: int, end_ms: int) -> bool:
        """Return whether an entry is about a time without a complete journal."""
        if journal.from_ms is None or end_ms < self._since_ms:
            return True
        # Its end may have been published late, after a journal that begins without it.
        if begin_ms < journal.from_ms and end_ms < journal.from_ms + BOUND_MS:
            return True
        return any(
            # What happened in lost rows may be published that much later.
            lost.since_ms <= end_ms and begin_ms <= lost.until_ms + BOUND_MS
            for lost in journal.lost
        )

    def _explain_shown(self, journal: NodeJournal, cluster: ClusterView) -> None:
        """Report what is shown now and that the journal has never had."""
        # A history proves more than the present; lost rows may have what is shown.
        if cluster.entries is not None or journal.lost:
            return
        for key in self._keys[journal.node]:
            if key not in self._presences and not _is_not_of_agents(key):
                text = sentence("it is shown as {level}", level=cluster.shown[key])
                self._unexplained(key, None, None, text)

    def _unexplained(self, key: Key, since_ms: int | None, until_ms: int | None, text: str) -> None:
        self.proof.gaps.append(DeliveryGap(GapName.UNEXPLAINED, *key, (), since_ms, until_ms, text))

    def _report_missing(self, journal: NodeJournal) -> None:
        """Report for which time the journal is incomplete."""
        for lost in journal.lost:
            if lost.until_ms >= self._since_ms:
                times = lost.since_ms, lost.until_ms
                self.proof.gaps.append(
                    DeliveryGap(GapName.JOURNAL_LOST, journal.node, "", "", (), *times, lost.reason)
                )
        from_ms = journal.from_ms
        if journal.pruned and from_ms is not None and 0 < self._since_ms < from_ms:
            text = sentence("older rows of the journal were deleted")
            times = self._since_ms, from_ms
            self.proof.gaps.append(
                DeliveryGap(GapName.NOT_KNOWN, journal.node, "", "", (), *times, text)
            )

    def _gap(self, name: GapName, presence: Presence, text: str) -> GapName:
        end = None if presence.end is None else presence.end.at_ms
        self.proof.gaps.append(
            DeliveryGap(
                name, *_key_of(presence), tuple(presence.episodes), presence.begin.at_ms, end, text
            )
        )
        return name

    def _time(self, step: str, presence: Presence, took_ms: int) -> None:
        self.proof.steps.append(StepTime(step, max(0, took_ms), *_key_of(presence)))


def _key_of(presence: Presence) -> Key:
    return presence.node, presence.part, presence.code


def _is_not_of_agents(key: Key) -> bool:
    """Return whether a published code comes from the aggregator or a public fault."""
    return key[2] in _OF_AGGREGATOR or _PUBLIC_CODE.fullmatch(key[2]) is not None
