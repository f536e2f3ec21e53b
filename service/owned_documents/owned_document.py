"""The observed state of a document that we own, and the contract of document writers.

A *document writer* keeps one document of a store as it must be. The agent has one for each of its
documents (``agent/publishing/publisher.py``), the leading aggregator one for each cluster document
and each view (``aggregator/publish/document_writer.py``) and one for all its kept state
(``aggregator/failover/persistent_state.py``). Each follows the same contract:

1. It is level-triggered: what is wanted is compared with what is there. What changes while a write
   is in flight goes out together in the next one, so a document has one request at a time.
2. A write replaces what was seen last, and the store refuses it where something else is there by
   now. The document is then read, and the write made anew. Exceptions: the agent in a conflict
   (``docs/decisions/013``), and the aggregator at a store that elects no leader.
3. A write keeps what others added, and what others change of ours is repaired
   (``foreign_parts.py``). Many such changes are a conflict, with pauses (``foreign_writes.py``).
4. What the store shows with the version of our last write is its answer to that write. Where that
   differs, an admission webhook is the other writer. A write whose answer has the version of what
   it replaced changed nothing, so what is there may not be what was written.
5. A write that failed may have arrived. It counts as made once the store shows its content.
6. A store that was away may have forgotten writes. That is not a foreign change.
7. A write that only shows that we live gives way to one with news (``run_preemptibly``).
8. A failure is tried again with backoff and jitter, and logged when it begins and ends.

How a writer learns what is there is not the same, and stays apart. The agent reads its document
when the watch shows anything else: it has one or two documents, and looks up their writer before it
repairs. The aggregator has hundreds, so it decides by the watch alone which events are late ones of
its own writes (``aggregator/publish/document_state.py``). Kept state has no watch.

Two more programs write until it is acknowledged, and are not document writers. The keys of the Node
(``agent/node/node_object.py``) are patched one by one in an object of others: it has no answer to
compare and nothing to keep, and shares ``ForeignWrites``. The client of ClusterD's fault service
(``agent/publishing/fault_service.py``) sends a queue of changes: nothing shows what was received.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from contract.errors import StoreError
from pacing.waiting import await_with_ticks
from service.owned_documents.foreign_parts import NOTHING, added_by_others, differences
from service.owned_documents.foreign_writes import UNKNOWN, ForeignWriter, ForeignWrites
from stores.base import READ_SECONDS, Document
from stores.deadline import answered_within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from stores.base import ObjectOwner, Store

log = logging.getLogger(__name__)

_LONG_SECONDS = 0.5
"""A request that takes longer is looked after."""

T = TypeVar("T")


class StoreContent(Enum):
    """What the store shows when it is not a document."""

    NOTHING = "nothing"
    UNKNOWN = "unknown"


class OwnedDocument:
    """One document of ours in one store, as it was seen last.

    ``all_keys``: its readers act on each of its data keys, so all of them are ours.
    """

    all_keys = False

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self.shown: Document | StoreContent = StoreContent.UNKNOWN
        self.version: str | None = None
        """What the next write replaces: empty for nothing, ``None`` while that is not known."""
        self.own_version: str | None = None
        """That of our last acknowledged write, empty for a deletion."""
        self.added = NOTHING
        """The parts that others added, which our writes keep."""
        self.differing: tuple[str, ...] = ()
        """The parts in which the answer to our own last write differs from the write."""
        self.foreign = ForeignWrites()
        self._left_out: tuple[str, ...] = ()
        self._missing_owners: frozenset[str] = frozenset()
        """The uids of owners of what is shown that are known not to exist."""
        self._checked_owners: tuple[ObjectOwner, ...] = ()
        self._held_by: tuple[str, ...] = ()
        """The finalizers that hold the document that we deleted."""

    @property
    def stored(self) -> Document | None:
        """The document that is shown; ``None`` where there is none, or where that is not known."""
        return None if isinstance(self.shown, StoreContent) else self.shown

    def record_stored(self, document: Document | None) -> None:
        """Observe what is there now; ``None`` for nothing."""
        self.shown = StoreContent.NOTHING if document is None else document
        self.version = "" if document is None else document.version
        self._find_added()

    def _find_added(self) -> None:
        self.added = added_by_others(
            self.stored, all_keys=self.all_keys, missing_owners=self._missing_owners
        )

    @property
    def dangling_owners(self) -> tuple[ObjectOwner, ...]:
        """The owners of what is shown without which garbage collection would delete it."""
        owners = () if self.stored is None else self.stored.owners
        return tuple(owner for owner in owners if owner.uid in self._missing_owners)

    def must_check_owners(self, document: Document | None) -> bool:
        """Return whether it is not known of some owner of ``document`` whether it exists."""
        return document is not None and document.owners != self._checked_owners

    async def check_owners(self, store: Store) -> None:
        """Find out which owners of what is shown exist. A failure changes nothing."""
        stored, objects = self.stored, store.objects
        if stored is None or objects is None or not self.must_check_owners(stored):
            return
        try:
            async with answered_within(READ_SECONDS):
                missing = await objects.missing_owners(self.namespace, stored.owners)
        except StoreError:
            return
        self._checked_owners, self._missing_owners = stored.owners, missing
        self._find_added()
        for owner in self.dangling_owners:
            log.warning(
                "%s: another program made %s %s its owner, which does not exist: the reference is "
                "removed, or garbage collection would delete the document",
                self.name,
                owner.kind,
                owner.name,
            )

    def acknowledge(self, document: Document | None, version: str) -> bool:
        """Observe that our write of ``document`` has ``version``; return whether it changed it.

        If not, what was seen before is still there.
        """
        is_changed = not version or version != self.version
        if is_changed:
            if document is not None:
                document = msgspec.structs.replace(self.added.beside(document), version=version)
            self.record_stored(document)
        self.own_version = version
        return is_changed

    def differences(self, wanted: Document | None) -> tuple[str, ...]:
        """Return the parts of ours that differ between what is shown and ``wanted``.

        An owner that does not exist is one of them.
        """
        changed = differences(self.stored, wanted, all_keys=self.all_keys)
        if wanted is None:
            return changed
        return (*changed, *(f"owner {owner.kind} {owner.name}" for owner in self.dangling_owners))

    @property
    def is_own_answer(self) -> bool:
        """Whether what is shown is what the store made of our last write."""
        stored = self.stored
        return stored is not None and bool(stored.version) and stored.version == self.own_version

    def with_added(self, document: Document) -> Document:
        """Return ``document`` as it is written: with what others added, as far as there is room."""
        if self.added.left_out != self._left_out:
            self._left_out = self.added.left_out
            if self._left_out:
                log.warning(
                    "%s: there is no room for what others added, it is removed: %s",
                    self.name,
                    ", ".join(self._left_out),
                )
        return self.added.beside(document)

    async def replace(
        self,
        store: Store,
        document: Document | None,
        *,
        demands: bool,
        remains: Document | None = None,
    ) -> str:
        """Put ``document`` in the place of what is there, or delete that; return the new version.

        Readers have a document until its last finalizer is gone, so one that has some becomes
        ``remains`` before it is deleted. ``demands``: ``StoreConflict`` where something else is
        there than was seen last. Raises ``StoreError``.
        """
        expected = self.version if demands else None
        if document is not None:
            return await store.put(self.with_added(document), expected=expected)
        stored = self.stored
        held_by = () if stored is None else stored.finalizers
        if held_by and remains is not None and differences(stored, remains, all_keys=True):
            # What others added to it goes with it.
            remains = msgspec.structs.replace(remains, finalizers=held_by)
            version = await store.put(remains, expected=expected)
            expected = version if demands else None
        if held_by != self._held_by:
            self._held_by = held_by
            if held_by:
                log.warning(
                    "%s is deleted, and finalizers of others hold it: %s; readers have it without "
                    "faults until these are removed",
                    self.name,
                    ", ".join(held_by),
                )
        await store.delete(self.namespace, self.name, expected=expected or None)
        return ""

    async def find_writer(self, store: Store) -> None:
        """Look up which other program writes it, if the store knows. A failure changes nothing."""
        if self.differing:
            self.foreign.writer = ForeignWriter(differing=self.differing)
            return
        try:
            async with answered_within(READ_SECONDS):
                writer = await store.other_writer(self.namespace, self.name)
        except StoreError:
            return
        self.foreign.writer = UNKNOWN if writer is None else ForeignWriter(writer.name)


class Preempted(Exception):
    """A request without news took long, and there is something to write that must not wait."""


async def run_preemptibly(request: Coroutine[Any, Any, T], is_overtaken: Callable[[], bool]) -> T:
    """Wait for ``request``; a long one ends with ``Preempted`` once it ``is_overtaken``."""

    def give_way() -> None:
        if is_overtaken():
            raise Preempted

    return await await_with_ticks(request, _LONG_SECONDS, give_way)
