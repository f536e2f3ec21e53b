"""Merges reports of one kind into entries, heals those of deleted nodes, and keeps their shards.

No I/O and no clock of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from aggregator.cluster_documents.kinds import ClusterEntry, Wait
from aggregator.inputs.node_documents import DocumentCache, newest
from contract.documents.cluster_info import entry_texts
from contract.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aggregator.cluster_documents.kinds import DocumentKind
    from aggregator.cluster_documents.shards import ShardedDocument
    from aggregator.cluster_documents.single_document import SingleDocument
    from service.clock import Instant
    from stores.base import Document

R = TypeVar("R")

# Twice the 10,000 nodes that the measurements of docs/scale.md have; an entry is a name and a
# number.
_REMEMBERED = 20_000
"""Stamps of dropped nodes that are kept: a node that returns must not fall behind its ghost."""


class EntryTable(Generic[R]):
    """The entries of one kind between their reports and their documents.

    ``judge`` decides what of a node's report is published, such as a chain of processors. It gets
    node, record, the record that is published now unless its document was deleted, and the time. It
    returns the record to publish, ``None`` for none.
    """

    def __init__(
        self,
        kind: DocumentKind[R],
        caches: Sequence[DocumentCache[R]],
        layout: ShardedDocument | SingleDocument,
        touch_period_seconds: float,
        judge: Callable[[str, R | None, R | None, Instant], R | None],
    ) -> None:
        self.kind = kind
        self._judge = judge
        self.caches = tuple(caches)
        self.layout = layout
        self.entries: dict[str, ClusterEntry[R]] = {}
        # A node that leaves a document stays in its readers' caches, so it is shown healthy first
        # (``drop_healed``).
        self.healing: dict[str, int | None] = {}
        """Deleted nodes and the steady time at which they are dropped, once that is known."""
        self.unconfirmed: set[str] = set()
        """Nodes of which another leader has published what may be newer than what we know."""
        self._touch_period_ms = int(touch_period_seconds * 1000)
        self._waiting: dict[str, int] = {}
        self._acknowledged: dict[int, int] = {}
        self._past: dict[str, int] = {}

    def restore_entries(self, documents: Iterable[Document]) -> list[DocumentError]:
        """Take over the documents that another leader left, so that nodes keep shard and stamp
        (M7): an earlier run's at the start, and again each time we begin to lead.

        What is published counts, also where a follower has computed something else: that is
        computed again from it. A node that was deleted and is not published any more is dropped.
        What cannot be read is returned, and overwritten, not obeyed.
        """
        by_index: dict[int, dict[str, ClusterEntry[R]]] = {}
        unreadable: list[DocumentError] = []
        for document in documents:
            index = self.kind.index(document.name)
            if index is not None:
                by_index[index], problems = self._entries_of(document)
                unreadable += problems
        published: dict[str, ClusterEntry[R]] = {}
        for _, entries in sorted(by_index.items()):
            for node, entry in entries.items():
                # A move that was cut short leaves a node in two documents; the later entry counts.
                if node not in published or published[node].stamp < entry.stamp:
                    published[node] = entry
        # Before the layout is cleared: what is forgotten keeps its stamp for a node that returns.
        self._forget_dropped(published)
        self.layout.clear()
        # Revision 0 is what the store has: ``layout.restore_document`` begins its count there.
        self._acknowledged = dict.fromkeys(by_index, 0)
        for index, entries in sorted(by_index.items()):
            mine = {node: entry.text for node, entry in entries.items() if published[node] is entry}
            self.layout.restore_document(index, mine)
        # What a follower computed and no leader has published yet is put behind what is published.
        for node in sorted(self.entries.keys() - published.keys()):
            self.layout.put(node, self.entries[node].text)
        self.entries |= published
        return unreadable

    def _forget_dropped(self, published: Mapping[str, ClusterEntry[R]]) -> None:
        for node in self.healing.keys() - published.keys():
            self._remember(node, self.entries.pop(node).stamp)
            del self.healing[node]
        # The times belong to acknowledgements of the run before; they begin anew with ours.
        self.healing = dict.fromkeys(self.healing)

    def _entries_of(
        self, document: Document
    ) -> tuple[dict[str, ClusterEntry[R]], list[DocumentError]]:
        """Return the entries of a document by node, and what could not be decoded.

        An entry with the text that is known already is the known one.
        """
        entries: dict[str, ClusterEntry[R]] = {}
        problems: list[DocumentError] = []
        try:
            texts = entry_texts(document.data.get(document.name, ""), document.name)
        except DocumentError as error:
            return {}, [error]
        # Keys are the prefix of the kind and the node's name, as readers expect them.
        prefix = self.kind.key("")
        for key, text in texts.items():
            # Texts are compared before they are decoded: of ten thousand entries few differ.
            current = self.entries.get(key.removeprefix(prefix))
            if current is not None and current.text == text:
                entries[key.removeprefix(prefix)] = current
                continue
            try:
                node, entry = self.kind.take_over(key, text, document.name)
            except DocumentError as error:
                problems.append(error)
                # An entry that cannot be read is overwritten by the next step and must not stop the
                # others.
                continue
            entries[node] = entry
        return entries, problems

    def show(self, documents: Iterable[Document], now: Instant) -> list[DocumentError]:
        """Take over all that readers see in documents, for a reader that publishes nothing.

        A node that is in none of them has the entry that its report leads to, and no document
        (``layout.home``). Return what cannot be read.
        """
        problems: list[DocumentError] = []
        for document in documents:
            index = self.kind.index(document.name)
            if index is None:
                continue
            shown: dict[str, str] = {}
            try:
                texts = entry_texts(document.data.get(document.name, ""), document.name)
            except DocumentError as error:
                problems.append(error)
                continue
            for key, text in texts.items():
                try:
                    node, entry = self.kind.shown(key, text, document.name)
                except DocumentError as error:
                    problems.append(error)
                    continue
                # As in ``restore_entries``: of a move that was cut short the later entry counts.
                before = self.entries.get(node)
                if before is None or before.stamp < entry.stamp:
                    self.entries[node], shown[node] = entry, text
            self.layout.restore_document(index, shown)
        for node in {node for cache in self.caches for node in cache.reports}:
            report = newest(self.caches, node)
            # Also of a node that is in a document: the chain finds what is withheld of it.
            record = None if report is None else self._judge(node, report.record, None, now)
            if record is not None and node not in self.entries:
                self.entries[node] = ClusterEntry("", 0, record)
        return problems

    def follow(self, document: Document, now: Instant) -> tuple[frozenset[str], frozenset[str]]:
        """Take over a document of ours that another leader wrote.

        Return the nodes whose entry in it differs from ours (their next entries are computed from
        it), and all nodes in it.
        """
        index = self.kind.index(document.name)
        if index is None:
            return frozenset(), frozenset()
        self.layout.ensure(index)
        entries, _ = self._entries_of(document)
        # By identity: ``_entries_of`` returns our own object where the text is the same.
        changed = {node for node, entry in entries.items() if self.entries.get(node) is not entry}
        for node in changed:
            self.entries[node] = entries[node]
            self.layout.put(node, entries[node].text)
        for node in self.healing.keys() & entries.keys():
            # Only where the leader's entry is ours: another one is computed from first.
            if node not in changed and self.healing[node] is None:
                # The leader shows it healthy, and will drop it when this time is over.
                self.healing[node] = now.steady_ms + self._touch_period_ms
        return frozenset(changed), frozenset(entries)

    def unconfirm(self, nodes: Iterable[str]) -> None:
        """Keep the entries of these nodes until their documents are read: another leader has
        published others.
        """
        for node in nodes:
            if node in self.entries and not self._is_later(node):
                self.unconfirmed.add(node)
                self._waiting.pop(node, None)
                entry = self.entries[node]
                if not entry.whole:
                    # Jobs are judged by records: without its faults the node would look healthy.
                    key = self.kind.key(node)
                    record = self.kind.shown(key, entry.text, key)[1].record
                    self.entries[node] = msgspec.structs.replace(entry, record=record)

    def is_confirmed(self, node: str) -> bool:
        """Return whether what we know of a node may be published."""
        if node in self.unconfirmed and self._is_later(node):
            # The node's own stamp proves that our report is at least as new as the published one.
            self.unconfirmed.remove(node)
        return node not in self.unconfirmed

    def _is_later(self, node: str) -> bool:
        """Return whether the node's report is later than its published entry, by the node's own
        stamp.

        An entry is never stamped before the report that it was made from.
        """
        report = newest(self.caches, node)
        return report is not None and self.kind.age(report.record) > self.entries[node].stamp

    def adopt(self, documents: Iterable[Document]) -> frozenset[int]:
        """Count in documents that are not ours; they are to be empty. Return their numbers."""
        all_indices = {self.kind.index(document.name) for document in documents}
        ours = self.layout.indices
        indices = frozenset(
            index for index in all_indices if index is not None and index not in ours
        )
        for index in indices:
            self.layout.ensure(index)
        return indices

    def due(self, now: Instant) -> set[str]:
        """Return the nodes whose change had to wait until now."""
        return {node for node, until_ms in self._waiting.items() if until_ms <= now.steady_ms}

    def update(self, node: str, now: Instant, *, gone: bool) -> frozenset[int]:
        """Bring a node's entry up to date; return the documents that changed.

        ``gone``: its document is known to have been deleted.
        """
        self._waiting.pop(node, None)
        report = newest(self.caches, node)
        previous = self.entries.get(node)
        # A deleted document must not lend its record: a lost node would be published with faults
        # that ended.
        record = self._judge(
            node,
            None if report is None else report.record,
            None if previous is None or gone else previous.record,
            now,
        )
        if record is not None:
            self.healing.pop(node, None)
        # Without a report the published entry stays, unless its document was deleted or it stands
        # for silence alone.
        elif previous is not None and (gone or self._is_over(node, previous)):
            record = self.kind.heal(previous.record)
            if record is None:
                del self.entries[node]
                return self.layout.drop(node)
            self.healing.setdefault(node, None)
        else:
            return frozenset()
        # A node that returns takes the stamp of its dropped entry, since readers drop what is not
        # newer.
        entry = self.kind.merge(node, record, previous or self._ghost(node, record), now)
        # Stamps are in whole seconds and at most 5 s ahead of the clock (decision 3).
        if isinstance(entry, Wait):
            self._waiting[node] = entry.until_ms
            return frozenset()
        # The merge returns the same object where nothing changed, so no text is rendered.
        if entry is previous:
            return frozenset()
        self.entries[node] = entry
        # Only times that are not published differ: readers need no event.
        if previous is not None and entry.text == previous.text:
            return frozenset()
        return self.layout.put(node, entry.text)

    def _is_over(self, node: str, entry: ClusterEntry[R]) -> bool:
        """Return whether the published entry of a node without any report does not hold
        any more.
        """
        return node in self.healing or self.kind.is_only_silence(entry.record)

    def _ghost(self, node: str, record: R) -> ClusterEntry[R] | None:
        """Return the entry that readers may still hold of a node that was dropped: only its stamp
        matters.
        """
        stamp = self._past.pop(node, None)
        return None if stamp is None else ClusterEntry("", stamp, record, whole=False)

    def drop_healed(self, now: Instant) -> frozenset[int]:
        """Leave out the deleted nodes whose time has come; return the documents that changed."""
        changed: set[int] = set()
        for node, drop_at_ms in tuple(self.healing.items()):
            # Its healthy entry is not published yet, and readers would keep the faulty one for
            # ever.
            if node in self._waiting or node in self.unconfirmed:
                continue
            if drop_at_ms is None:
                home = self.layout.home(node)
                # The time runs from the moment at which every store shows the node healthy.
                if home is not None and self._is_acknowledged(home):
                    self.healing[node] = now.steady_ms + self._touch_period_ms
            elif drop_at_ms <= now.steady_ms:
                del self.healing[node]
                self._remember(node, self.entries.pop(node).stamp)
                changed |= self.layout.drop(node)
        return frozenset(changed)

    def _is_acknowledged(self, index: int) -> bool:
        return self._acknowledged.get(index, -1) >= self.layout.revision(index)

    def _remember(self, node: str, stamp: int) -> None:
        self._past[node] = stamp
        # The oldest goes first; a node that returns later than that starts with a new stamp.
        while len(self._past) > _REMEMBERED:
            del self._past[next(iter(self._past))]

    def acknowledged(self, index: int, revision: int) -> frozenset[int]:
        """Observe that every store has this revision; return documents that changed."""
        # Acknowledgements of several stores may arrive out of order.
        self._acknowledged[index] = max(revision, self._acknowledged.get(index, -1))
        return self.layout.acknowledged(index, revision)

    def next_due_ms(self) -> int | None:
        """Return the steady time at which ``update`` or ``drop_healed`` have something to do."""
        healing = (
            at
            for node, at in self.healing.items()
            if at is not None and node not in self.unconfirmed
        )
        return min((*self._waiting.values(), *healing), default=None)
