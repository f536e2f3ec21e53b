"""What the journal of a node shows: which code held where, and which write had it. Pure.

A *presence* is the time in which a code has a level on a subject. It mostly is one episode. A rule
can hold the code between two episodes, and then both are one presence, because documents do not
distinguish them. A write proves a change if it shows the journal up to the row of that change::

    row of the change <= ``through`` of the write < row of the write
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from contract.names import device_info_name, node_info_name
from contract.observation import Subject
from contract.pages.faults import subject_name

if TYPE_CHECKING:
    from contract.pages.history import HistoryEvent, HistorySubject
    from contract.pages.journal import HeldEpisode, JournalEntry, JournalPage

PROVED_KINDS = frozenset({"chip", "switch", "host"})
"""Kinds of subjects that are in device-info or node-info; storage faults are public faults."""
_BEGAN, _RETURNED, _ENDED = "began", "returned", "ended"


@dataclass(frozen=True)
class JournaledChange:
    """A change in a journal: its row, when it was journaled, and when its event was observed.

    Times are epoch milliseconds of the node's clock.
    """

    sequence: int
    row_ms: int
    at_ms: int


@dataclass
class Presence:
    """A code that had a level on a subject of a node. Without ``end`` it still has.

    ``part`` names the subject as in ``part_of``. ``levels`` are all levels that it had, in their
    order. ``is_held``: it began before the part of the journal that was read.
    """

    node: str
    kind: str
    part: str
    code: str
    begin: JournaledChange
    levels: list[str]
    changed: JournaledChange
    """When it got its last level."""
    episodes: list[str] = field(default_factory=list)
    end: JournaledChange | None = None
    is_held: bool = False
    has_episode: bool = False
    """Whether an episode holds, and not only a rule."""
    ended_unseen: bool = False
    """Whether it ended in rows that are missing."""


@dataclass(frozen=True)
class LostRows:
    """Rows between two times are missing in a journal."""

    since_ms: int
    until_ms: int
    reason: str


@dataclass(frozen=True)
class Write:
    """An acknowledged write: its row, its time, and up to which row it shows the journal."""

    sequence: int
    at_ms: int
    through: int


class NodeJournal:
    """The presences and writes of one node, from the parts of its journal in their order."""

    def __init__(self) -> None:
        self.node = ""
        self.journal = ""
        self.pruned = False
        self.at_ms = 0
        """The node's time when the last part was read."""
        self.from_ms: int | None = None
        """From then on the journal is complete, apart from ``lost``."""
        self.lost: list[LostRows] = []
        self._current: dict[tuple[str, str], Presence] = {}
        self._over: list[Presence] = []
        self._writes: dict[str, list[Write]] = {}

    def add(self, page: JournalPage) -> None:
        """Add the next part."""
        if self.from_ms is None:
            self.node, self.journal, self.pruned = page.node, page.journal, page.pruned
        self.at_ms = page.at_ms
        for entry in page.entries:
            if self.from_ms is None:
                self.from_ms = entry.at_ms
            if entry.lost_since_ms is not None:
                self.lost.append(LostRows(entry.lost_since_ms, entry.at_ms, entry.reason))
            if entry.kind == "snapshot":
                self._hold(entry)
            for change in entry.changes:
                self._change(change, JournaledChange(entry.sequence, entry.at_ms, change.at_ms))
            if entry.write is not None:
                write = Write(entry.sequence, entry.at_ms, entry.write.through)
                self._writes.setdefault(entry.write.document, []).append(write)

    def has_lost_rows_after(self, change_row: JournaledChange) -> bool:
        """Return whether rows behind ``change_row`` are missing."""
        return any(lost.until_ms >= change_row.row_ms for lost in self.lost)

    @property
    def presences(self) -> list[Presence]:
        """All presences, those that are over first."""
        return [*self._over, *self._current.values()]

    def writes_of(self, kind: str) -> list[Write]:
        """Return the writes of the document that has subjects of this kind."""
        if kind in ("chip", "switch"):
            return self._writes.get(device_info_name(self.node), [])
        return self._writes.get(node_info_name(self.node), [])

    def _hold(self, entry: JournalEntry) -> None:
        """Compare with a snapshot: what began or ended in rows that are missing."""
        episodes = {(part_of(item.subject), item.code): item for item in entry.held}
        change_row = JournaledChange(entry.sequence, entry.at_ms, entry.at_ms)
        for key in self._current.keys() - episodes.keys():
            # What only a rule holds is in no list of episodes.
            if self._current[key].has_episode:
                self._current[key].ended_unseen = True
                self._finish(key, change_row)
        for key, item in episodes.items():
            if key not in self._current:
                self._current[key] = self._held(item, entry)

    def _held(self, item: HeldEpisode, entry: JournalEntry) -> Presence:
        change_row = JournaledChange(entry.sequence, entry.at_ms, item.first_seen_ms)
        kind, part = item.subject.kind, part_of(item.subject)
        levels, episodes = [item.level], [item.episode]
        return Presence(
            *(self.node, kind, part, item.code, change_row, levels, change_row, episodes),
            is_held=True,
            has_episode=True,
        )

    def _change(self, change: HistoryEvent, change_row: JournaledChange) -> None:
        key = part_of(change.subject), change.code
        presence = self._current.get(key)
        if change.new_level is None:
            if presence is not None:
                self._finish(key, change_row)
            return
        if presence is None:
            presence = self._current[key] = Presence(
                *(self.node, change.subject.kind, *key, change_row, [change.new_level], change_row)
            )
        elif presence.levels[-1] != change.new_level:
            presence.levels.append(change.new_level)
            presence.changed = change_row
        if change.kind in (_BEGAN, _RETURNED):
            presence.has_episode = True
            if change.episode not in presence.episodes:
                presence.episodes.append(change.episode)
        elif change.kind == _ENDED:
            presence.has_episode = False

    def _finish(self, key: tuple[str, str], change_row: JournaledChange) -> None:
        presence = self._current.pop(key)
        presence.end = change_row
        self._over.append(presence)


def first_write(writes: list[Write], change_row: JournaledChange) -> Write | None:
    """Return the first of ``writes``, in order, that shows ``change_row``; ``None`` without one."""
    # A journal without ``through`` (0) proves nothing.
    position = bisect_left(writes, change_row.sequence, key=lambda write: write.through)
    return writes[position] if position < len(writes) else None


def part_of(subject: HistorySubject) -> str:
    """Return the name of a subject in which the type of a chip is left out."""
    if subject.kind == "chip":
        return f"chip {subject.id}"
    return subject_name(Subject(subject.kind, subject.id, subject.part), "")
