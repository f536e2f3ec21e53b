"""From reports to documents: merges what changed, heals what was deleted, keeps the shards.

No I/O and no clock of its own; the daemon calls ``step`` when something arrived or is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.intake import Source, newest
from aggregator.merge import Entry, Wait, merge
from aggregator.shards import Shards, Value
from contract.cluster_device import healed
from contract.cluster_info import (
    cluster_device_index,
    entry_texts,
    read_device_entry,
    record_of,
)
from contract.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aggregator.moment import Moment
    from contract.cluster_device import DeviceRecord
    from stores.base import Document, WatchEvent

_REMEMBERED = 20_000
"""Stamps of dropped nodes that are kept: a node that returns must not fall behind its ghost."""


class Pipeline:
    """The state of the aggregator between its inputs and its documents."""

    def __init__(self, stores: Sequence[str], touch_period_seconds: float) -> None:
        self.sources = tuple(Source(url) for url in stores)
        self.shards = Shards()
        self.entries: dict[str, Entry] = {}
        self.healing: dict[str, int | None] = {}
        """Deleted nodes and the steady time at which they are dropped, once that is known."""
        self.unreadable: list[DocumentError] = []
        """Documents of an earlier run that could not be taken over."""
        self._touch_period_ms = int(touch_period_seconds * 1000)
        self._dirty: set[str] = set()
        self._waiting: dict[str, int] = {}
        self._acknowledged: dict[int, int] = {}
        self._past: dict[str, int] = {}
        self._settled = False

    def restore(self, documents: Iterable[Document]) -> None:
        """Take over the documents of an earlier run, so that nodes keep shard and stamp (M7).

        What cannot be read is overwritten, not obeyed.
        """
        found: dict[int, dict[str, Entry]] = {}
        for document in documents:
            index = cluster_device_index(document.name)
            if index is None:
                continue
            found[index] = {}
            try:
                texts = entry_texts(document.data.get(document.name, ""), document.name)
            except DocumentError as error:
                self.unreadable.append(error)
                continue
            for key, text in texts.items():
                try:
                    node, entry = read_device_entry(key, text, document.name)
                except DocumentError as error:
                    self.unreadable.append(error)
                    continue
                found[index][node] = Entry(text, entry.UpdateTime, record_of(entry))
        for index, entries in sorted(found.items()):
            for node, one in entries.items():
                if node not in self.entries or self.entries[node].stamp < one.stamp:
                    self.entries[node] = one
            self._acknowledged[index] = 0
        for index, entries in sorted(found.items()):
            mine = {node: one.text for node, one in entries.items() if self.entries[node] is one}
            self.shards.restore(index, mine)

    def adopt(self, documents: Iterable[Document]) -> frozenset[int]:
        """Count in documents that are not ours; they are to be empty. Returns their numbers."""
        found = {cluster_device_index(document.name) for document in documents}
        strange = frozenset(found - {None, *self.shards.indices})
        indices = frozenset(index for index in strange if index is not None)
        for index in indices:
            self.shards.ensure(index)
        return indices

    def observe(self, source: int, event: WatchEvent, now: Moment) -> None:
        """Take in one event of the store with this number."""
        self._dirty |= self.sources[source].observe(event, now.wall_ms)

    def step(self, now: Moment) -> frozenset[int]:
        """Bring the shards up to date; returns those that changed."""
        self._settle()
        due = {node for node, until_ms in self._waiting.items() if until_ms <= now.steady_ms}
        changed: set[int] = set()
        for node in sorted(self._dirty | due):
            changed |= self._update(node, now)
        self._dirty.clear()
        changed |= self._drop_healed(now)
        return frozenset(changed)

    def _settle(self) -> None:
        """Once every store was listed, who is only in documents of an earlier run was deleted."""
        if not self._settled and all(source.listed for source in self.sources):
            self._settled = True
            self._dirty |= self.entries.keys()

    def _update(self, node: str, now: Moment) -> frozenset[int]:
        self._waiting.pop(node, None)
        report = newest(self.sources, node)
        previous = self.entries.get(node)
        if report is not None:
            record = report.record
            self.healing.pop(node, None)
        elif previous is not None and self._settled and not self._is_refused(node):
            record = healed(previous.record)
            self.healing.setdefault(node, None)
        else:
            return frozenset()
        entry = merge(node, record, previous or self._ghost(node, record), now)
        if isinstance(entry, Wait):
            self._waiting[node] = entry.until_ms
            return frozenset()
        if entry is previous:
            return frozenset()
        self.entries[node] = entry
        return self.shards.put(node, entry.text)

    def _is_refused(self, node: str) -> bool:
        """Whether the node has a document, only none that can be read: it was not deleted."""
        return any(node in source.rejected for source in self.sources)

    def _ghost(self, node: str, record: DeviceRecord) -> Entry | None:
        """What readers may still remember of a node that was dropped: only its stamp matters."""
        stamp = self._past.pop(node, None)
        return None if stamp is None else Entry("", stamp, record)

    def _drop_healed(self, now: Moment) -> frozenset[int]:
        changed: set[int] = set()
        for node, drop_at_ms in tuple(self.healing.items()):
            if node in self._waiting:
                continue
            if drop_at_ms is None:
                home = self.shards.home(node)
                if home is not None and self._is_acknowledged(home):
                    self.healing[node] = now.steady_ms + self._touch_period_ms
            elif drop_at_ms <= now.steady_ms:
                del self.healing[node]
                self._remember(node, self.entries.pop(node).stamp)
                changed |= self.shards.drop(node)
        return frozenset(changed)

    def _is_acknowledged(self, index: int) -> bool:
        return self._acknowledged.get(index, -1) >= self.shards.revision(index)

    def _remember(self, node: str, stamp: int) -> None:
        self._past[node] = stamp
        while len(self._past) > _REMEMBERED:
            del self._past[next(iter(self._past))]

    def acknowledged(self, index: int, revision: int) -> frozenset[int]:
        """Every store that is published to has this revision; returns shards that changed."""
        self._acknowledged[index] = max(revision, self._acknowledged.get(index, -1))
        return self.shards.acknowledged(index, revision)

    def next_due_ms(self) -> int | None:
        """Steady time at which ``step`` wants to be called without an event."""
        due = [*self._waiting.values(), *(at for at in self.healing.values() if at is not None)]
        return min(due, default=None)

    def value(self, index: int) -> Value:
        """What a document must say now."""
        return self.shards.value(index)
