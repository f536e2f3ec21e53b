"""Merges nodes' documents into cluster documents of three kinds, for changed nodes only.

Everything that concerns a node (an event of a watch, a pod, a lost heartbeat, a public fault) marks
it in ``_dirty``. ``step`` takes each marked node, and each whose time has come, through the chain
of its kind (``processors``) and the entry table of its kind (``entry_table.py``), which knows in
which document the node is; it returns the names of the documents that changed. A report that was
merged once is not read again, so an idle cluster costs nothing. Invariant: after a step the entry
of a confirmed node is what its chain makes of its newest report, or what was published last.

No I/O and no clock of its own; the daemon calls ``step`` when something arrived or is due.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from aggregator.absence.last_known_documents import LastingDocumentWatch
from aggregator.cluster_documents.kinds import DEVICE, NODE, SWITCH
from aggregator.cluster_documents.published_node import PublishedNode
from aggregator.cluster_documents.shards import ShardedDocument
from aggregator.cluster_documents.single_document import SingleDocument
from aggregator.inputs.node_context import NodeContext
from aggregator.inputs.node_documents import DocumentSource, DocumentWatch, newest
from aggregator.merge.entry_table import EntryTable
from aggregator.processors.chains import ProcessorEngine
from aggregator.processors.state_types import NO_DEVICE_STATE, NO_SWITCH_STATE, earliest
from contract.documents.cluster_info import missed
from contract.names import CLUSTER_NODE_NAME
from stores.base import ListedPage
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aggregator.cluster_documents.shards import Value
    from aggregator.processors.chains import PublicFaultProcessor
    from contract.errors import DocumentError
    from service.clock import Instant
    from stores.base import Document, PagedWatchEvent

LOST_ANNOTATION = "npu-vigil/lost"
"""On cluster-info-node-cm: the nodes that are in it because they fell silent, for the next run."""

# The rest is for finalizers, owners and annotations that others add (decision 51).
_LOST_BYTES = 200 * 1024
"""Kubernetes allows 256 KiB of annotations on one object."""


def lost_of(document: Document) -> frozenset[str] | None:
    """Return the nodes that a document publishes as lost; ``None`` where it is of another kind."""
    if document.name != CLUSTER_NODE_NAME:
        return None
    return frozenset(filter(None, document.annotations.get(LOST_ANNOTATION, "").split(",")))


class Pipeline:
    """The state of the aggregator between its inputs and its documents."""

    def __init__(
        self,
        sources: Iterable[DocumentSource],
        touch_period_seconds: float,
        *,
        node_context: Callable[[str], NodeContext] = lambda _: NodeContext(),
        public: PublicFaultProcessor | None = None,
        deleted_after_ms: int = 0,
    ) -> None:
        """Make an empty pipeline.

        ``deleted_after_ms``: a document that is gone for so long was deleted (0: at once), see
        ``forget_deleted``.
        """
        self.sources = tuple(sources)
        # Such a store may lack documents that an earlier run had; absence there proves no deletion
        # (decision 21).
        self._knows_all = not any(
            isinstance(source.devices, LastingDocumentWatch) for source in self.sources
        )
        """Whether all is known that the stores had in an earlier run: a node that is only in
        documents of that run was deleted, or ended.
        """
        self.processing = ProcessorEngine(len(self.sources), node_context, public)
        """The chains and their state: its ``observe``, ``views``, ``text`` and ``restore``
        are the daemon's to call, ``step`` is called here.
        """
        self.changed: frozenset[str] = frozenset()
        """Nodes of which something else is published or hidden since the step before the last."""
        self.unreadable: list[DocumentError] = []
        """Documents of an earlier run that could not be taken over."""
        self._document = SingleDocument(NODE.key, missed)
        period, judge = touch_period_seconds, self.processing
        self.device = EntryTable(
            DEVICE,
            [s.device for s in self.sources],
            ShardedDocument(DEVICE.key),
            period,
            judge.device,
        )
        self.switch = EntryTable(
            SWITCH,
            [s.switch for s in self.sources],
            ShardedDocument(SWITCH.key),
            period,
            judge.switch,
        )
        self.node = EntryTable(
            NODE, [s.node for s in self.sources], self._document, period, judge.node
        )
        self.tables: tuple[EntryTable[Any], ...] = (self.device, self.switch, self.node)
        self._watches: dict[str, tuple[DocumentWatch, ...]] = {
            DEVICE.name: tuple(source.devices for source in self.sources),
            SWITCH.name: tuple(source.devices for source in self.sources),
            NODE.name: tuple(source.nodes for source in self.sources),
        }
        self._deleted_after_ms = deleted_after_ms
        # Marked nodes. A set, so that a thousand events of one node cost one judgement.
        self._dirty: set[str] = set()
        # Kinds whose watches were all listed once.
        self._settled: set[str] = set()

    @property
    def documents(self) -> tuple[str, ...]:
        """Names of all documents there are, empty ones too."""
        return tuple(
            table.kind.document(index) for table in self.tables for index in table.layout.indices
        )

    def restore_documents(self, documents: Iterable[Document], *, unconfirm: bool = False) -> None:
        """Take over the documents of an earlier run, or of another leader as they are now.

        What cannot be read is overwritten, not obeyed. ``unconfirm``: the other leader may have
        known more of the nodes than we do (``unconfirmed``).
        """
        documents = tuple(documents)
        self.unreadable = []
        # What is marked now is not judged yet, so its entry may be as old as the other leader's.
        dirty = frozenset(self._dirty)
        for table in self.tables:
            before = dict(table.entries)
            self.unreadable += table.restore_entries(documents)
            # At the first start there is nothing to compare with: every node is judged once it is
            # listed.
            if before or table.kind.name in self._settled:
                differ = {n for n, entry in table.entries.items() if before.get(n) is not entry}
                if unconfirm:
                    table.unconfirm(differ | dirty)
                self._dirty |= differ
        for document in documents:
            names = lost_of(document)
            if names is not None:
                # A node that is named but has no entry is not published at all.
                lost = frozenset(name for name in names if name in self.node.entries)
                self.processing.lost = lost
                self._note_lost()

    def show(self, documents: Iterable[Document], now: Instant) -> None:
        """Take over what documents show, once and without a step: for a reader of documents.

        It publishes nothing, so only what the store has is published. See ``EntryTable.show``.
        """
        documents = tuple(documents)
        for document in documents:
            self.processing.lost |= lost_of(document) or frozenset()
        self.unreadable = [
            problem for table in self.tables for problem in table.show(documents, now)
        ]

    def follow(
        self, document: Document, now: Instant, *, unconfirm: bool = False
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Take over a document that another leader wrote.

        Return the nodes whose entry in it differs from what was computed here, and all nodes in it.
        ``unconfirm``: see ``restore_documents``.
        """
        differ, present = frozenset[str](), frozenset[str]()
        for table in self.tables:
            others, nodes = table.follow(document, now)
            if unconfirm:
                table.unconfirm(others)
            differ, present = differ | others, present | nodes
        self._dirty |= differ
        return differ, present

    @property
    def unconfirmed(self) -> frozenset[str]:
        """Nodes of which another leader has published something else than we would, and may have
        known more: that stays until their documents were read anew, or something later came.
        """
        return frozenset(node for table in self.tables for node in table.unconfirmed)

    def read(
        self, watch: DocumentWatch, documents: Mapping[str, Document | None], now: Instant
    ) -> None:
        """Apply the documents of these nodes, which were read by name."""
        for node, document in documents.items():
            self._dirty |= watch.read(node, document, now.wall_ms)

    def confirm(self, nodes: Iterable[str]) -> None:
        """Observe that the documents of these nodes were read: the cache is as new as can be."""
        nodes = frozenset(nodes)
        for table in self.tables:
            table.unconfirmed -= nodes
        self._dirty |= nodes

    def note_complete(self, knows_all: bool) -> None:
        """Set whether all is known that the stores had in an earlier run."""
        self._knows_all = knows_all

    def judge_again(self, nodes: Iterable[str]) -> None:
        """Mark nodes for the next step: something outside their documents has changed."""
        self._dirty |= frozenset(nodes)

    def adopt(self, documents: Iterable[Document]) -> frozenset[str]:
        """Count in documents that are not ours; they are to be empty. Return their names."""
        documents = tuple(documents)
        return frozenset(
            table.kind.document(index) for table in self.tables for index in table.adopt(documents)
        )

    def observe_event(self, watch: DocumentWatch, event: PagedWatchEvent, now: Instant) -> None:
        """Apply one event of a watch of a store."""
        if isinstance(event, Interrupted):
            # By the steady clock: how long a store fails is shown in ``/readyz``.
            watch.reading.failed("watch", event.reason, now.steady_ms)
        # A page proves nothing: the list may fail at the same later page each time.
        elif not isinstance(event, ListedPage):
            watch.reading.succeeded()
        self._dirty |= watch.observe_event(event, now.wall_ms, self._deleted_at_ms(now))

    def _deleted_at_ms(self, now: Instant) -> int | None:
        return now.steady_ms + self._deleted_after_ms if self._deleted_after_ms else None

    def forget_deleted(self, now: Instant, is_repaired: Callable[[str, str], bool]) -> None:
        """Take documents for deleted that have been gone for long enough; before a step.

        ``is_repaired``: by URL of the store and node, whether an agent runs, which writes its
        device-info again. It deletes its node-info itself at the end of an alarm.
        """
        for source in self.sources:
            self._dirty |= source.devices.settle(now.steady_ms, partial(is_repaired, source.url))
            self._dirty |= source.nodes.settle(now.steady_ms)

    def knows(self, node: str) -> bool:
        """Return whether the node is in a document."""
        return any(node in table.entries for table in self.tables)

    @property
    def dirty(self) -> frozenset[str]:
        """The nodes that the next step judges, as far as that is known now."""
        return frozenset(self._dirty)

    def set_lost(self, nodes: frozenset[str]) -> None:
        """Publish these nodes, and no others, as lost."""
        # The symmetric difference: nodes that fell silent and nodes that are back.
        self._dirty |= nodes ^ self.lost
        self.processing.lost = nodes

    def set_controllers(self, jobs: frozenset[str]) -> None:
        """Replace the MindIE jobs whose controllers are subscribed (clusterd#3.3)."""
        self._dirty |= self.processing.set_controllers(jobs)

    @property
    def lost(self) -> frozenset[str]:
        """Nodes that are published ``UnHealthy`` because they fell silent."""
        return self.processing.lost

    def step(self, now: Instant) -> frozenset[str]:
        """Bring the documents up to date; return the names of those that changed."""
        # First: it marks nodes that are judged below.
        fresh = self._settle()
        self._dirty |= self.processing.advance(now)
        changed: set[str] = set()
        nodes: set[str] = set()
        for table in self.tables:
            settled = table.kind.name in self._settled
            # In the step in which the last store was listed, complete records of an earlier run
            # prove that the node ended. Later, absence in a lasting store proves nothing.
            was_all_known = self._knows_all and table.kind.name in fresh
            indices: set[int] = set()
            # Sorted: the order in which new nodes get their shards must be the same in each
            # replica.
            for node in sorted(self._dirty | table.due(now)):
                # It stays marked as unconfirmed, and is judged when its documents were read.
                if not table.is_confirmed(node):
                    continue
                gone = self._was_deleted(table, node) or (
                    settled
                    and not self._is_present(table, node)
                    and (was_all_known or not self._lasts(table, node, now))
                )
                # A document in another store keeps the state of the chains: windows and counters go
                # on.
                if gone and newest(table.caches, node) is None:
                    self.processing.forget(table.kind.name, node)
                before = table.entries.get(node)
                indices |= table.update(node, now, gone=gone)
                # By identity, since a merge returns the same object where nothing changed.
                if table.entries.get(node) is not before:
                    nodes.add(node)
            # A copy: dropping changes it, and the nodes that went are part of the change.
            healing = tuple(table.healing)
            indices |= table.drop_healed(now)
            nodes.update(node for node in healing if node not in table.entries)
            if table is self.node:
                indices |= self._note_lost()
            changed |= {table.kind.document(index) for index in indices}
        # Last: the new faults of all nodes of this step wait together.
        self.processing.settle(now)
        # At the end: what the chains marked during this step was judged in it.
        self._dirty.clear()
        for source in self.sources:
            for watch in source.watches:
                # Only now: each of the tables had to see it.
                watch.deleted.clear()
        # Includes nodes whose faults are hidden: jobs and pages show these although the entry is
        # the same.
        self.changed = frozenset(nodes | self.processing.altered)
        self.processing.altered.clear()
        return frozenset(changed)

    def published(self, node: str) -> PublishedNode:
        """Return what is published of a node, and what is withheld."""
        device = self.device.entries.get(node)
        switch = self.switch.entries.get(node)
        server = self.node.entries.get(node)
        processing = self.processing
        return PublishedNode(
            None if device is None else device.record,
            None if switch is None else switch.record,
            None if server is None else server.record,
            processing.hidden.get(node, ()),
            processing.hidden_events.get(node, ()),
            processing.devices.get(node, NO_DEVICE_STATE).received,
            processing.switches.get(node, NO_SWITCH_STATE).received,
        )

    def _settle(self) -> frozenset[str]:
        """Delete nodes that are only in documents of an earlier run, once every store was listed.

        Return the kinds for which that is so from now on.
        """
        fresh = set()
        for table in self.tables:
            name = table.kind.name
            # An early step would take nodes for deleted whose store has not answered yet.
            if name not in self._settled and all(watch.listed for watch in self._watches[name]):
                self._settled.add(name)
                self._dirty |= table.entries.keys() | self.processing.nodes
                fresh.add(name)
        return frozenset(fresh)

    def _lasts(self, table: EntryTable[Any], node: str, now: Instant) -> bool:
        """Return whether the published entry of a node lasts although no store has its document.

        It lasts where a store that may come back without its documents lacks it.
        """
        watches = self._watches[table.kind.name]
        lasting = [watch for watch in watches if isinstance(watch, LastingDocumentWatch)]
        entry = table.entries.get(node)
        if not lasting or entry is None or node in table.healing:
            return False
        # The store has the document, so it is not a question of absence.
        if any(node in watch.present for watch in watches):
            return False  # its document lacks this kind
        # Nothing was reported of it; the entry stands for a missing heartbeat, which liveness
        # decides.
        if table.kind.is_only_silence(entry.record):
            return False
        lasting[0].record_absent(node, now.wall_ms, now.steady_ms + self._deleted_after_ms)
        return True

    def _is_present(self, table: EntryTable[Any], node: str) -> bool:
        """Return whether a document of the node has this kind, even a refused one."""
        return any(watch.has_report(table.kind, node) for watch in self._watches[table.kind.name])

    def _was_deleted(self, table: EntryTable[Any], node: str) -> bool:
        """Return whether a document went since the last step.

        What it reported does not hold any more, even if the node has a new one already, which may
        be refused or lack this kind.
        """
        # A deletion in one store counts even if another one has the node: the newest of the rest is
        # judged.
        return any(node in watch.deleted for watch in self._watches[table.kind.name])

    @property
    def nodes(self) -> set[str]:
        """Names of all nodes that are in a document."""
        return {node for table in self.tables for node in table.entries}

    def _note_lost(self) -> frozenset[int]:
        names, room = [], _LOST_BYTES
        # Sorted, so that the same set is the same text and no write is due; the last names are left
        # out.
        for node in sorted(self.lost):
            room -= len(node) + 1
            if room < 0:
                break
            names.append(node)
        return self._document.annotate({LOST_ANNOTATION: ",".join(names)} if names else {})

    def acknowledged(self, name: str, revision: int) -> frozenset[str]:
        """Observe that every store has this revision; return documents that changed."""
        table, index = self._table(name)
        changed = table.acknowledged(index, revision)
        return frozenset(table.kind.document(index) for index in changed)

    def fit(self, limit: int) -> frozenset[str]:
        """Keep documents within ``limit`` bytes from now on; return those that changed."""
        return frozenset(
            table.kind.document(index) for table in self.tables for index in table.layout.fit(limit)
        )

    def next_due_ms(self) -> int | None:
        """Return the steady time of the next ``step`` without an event."""
        return earliest(
            self.processing.next_advance_ms(),
            *(table.next_due_ms() for table in self.tables),
            *(watch.next_due_ms() for source in self.sources for watch in source.watches),
        )

    def value(self, name: str) -> Value:
        """Return the desired content of a document."""
        table, index = self._table(name)
        return table.layout.value(index)

    def revision(self, name: str) -> int:
        """Return the revision of a document's desired content."""
        table, index = self._table(name)
        return table.layout.revision(index)

    def _table(self, name: str) -> tuple[EntryTable[Any], int]:
        for table in self.tables:
            index = table.kind.index(name)
            if index is not None:
                return table, index
        raise KeyError(name)
