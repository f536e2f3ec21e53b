"""The cluster documents of one store: follows them all, and writes them while this replica leads.

One watch shows all documents of ours; what it shows goes to the observed state of each
(``document_state.py``), whether this replica leads or not. ``lead`` begins a term: each document
gets a writer at its first wake, and a task that runs until ``follow`` cancels it. Nothing is queued
here: a writer that is awake asks for the desired value as it is then.

A follower observes what the leader writes, so that it can lead at once. Each document has a writer
of its own (``document_writer.py``), so that a slow one delays no other. A document that was not
written for a touch period is touched, so that its readers see an event (M8). Writes of several
documents take turns, so that a store gets at most so many writes in a second; only the first write
of a new document does not wait.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn, Protocol

from aggregator.cluster_documents.kinds import kind_of
from aggregator.publish.document_state import ClusterDocument
from aggregator.publish.document_writer import DocumentWriter, ended
from contract.errors import StoreError
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE
from service.failing_requests import FailingRequests
from service.log.ongoing_failure import OngoingFailure
from service.owned_documents.owned_document import StoreContent
from stores.base import Changed, Deleted, Document, DocumentsListed, Selection
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.cluster_documents.shards import Value
    from aggregator.publish.document_writer import WriterContext
    from stores.base import WatchEvent

_log = logging.getLogger(__name__)

SELECTION = Selection(namespace=CLUSTER_NAMESPACE, label=CLUSTER_LABEL, owned=True)
"""What to watch in every store that is published to."""


class ClusterDocuments(Protocol):
    """The desired cluster documents, and what observes the stored ones."""

    def value(self, name: str) -> Value:
        """Return the desired content of a document."""

    def on_acknowledged(self, publisher: StorePublisher, name: str) -> None:
        """Observe that the publisher's store has another revision of a document."""

    def on_appeared(self, documents: Iterable[Document]) -> None:
        """Observe documents of ours that another program made."""

    def on_followed(self, publisher: StorePublisher, document: Document) -> None:
        """Observe what another leader wrote, also when that arrives only after this replica took
        over.
        """

    def on_maybe_lost(self) -> None:
        """Observe that the store may have lost documents: after an interruption, and when one of
        ours went.
        """


class _DesiredClusterDocument:
    """One of the documents, for its writer in one store."""

    def __init__(self, publisher: StorePublisher, documents: ClusterDocuments, name: str) -> None:
        kind = kind_of(name)
        assert kind is not None, "every document is of a kind"
        self._publisher = publisher
        self._documents = documents
        self._name = name
        self._verify = kind.verify

    def value(self) -> Value:
        return self._documents.value(self._name)

    def check(self, value: Value) -> None:
        self._verify(value.text, self._name, value.nodes)

    def on_acknowledged(self, revision: int) -> None:  # noqa: ARG002 - ``outputs`` have it
        self._documents.on_acknowledged(self._publisher, self._name)

    def on_overtaken(self, document: Document) -> None:
        self._documents.on_followed(self._publisher, document)


class StorePublisher:
    """Owns the documents of one store."""

    def __init__(self, context: WriterContext, documents: ClusterDocuments) -> None:
        self.context = context
        self.store = context.store
        self._documents = documents
        self.outputs: dict[str, ClusterDocument] = {}
        self._trouble = OngoingFailure(
            _log, "own documents in %s cannot be seen: %s", "%s answers again", self.store.url
        )
        self.reading = FailingRequests()
        """Whether its watch fails."""
        self.writing = context.failing
        """Which of its writes have failed since the last one that did not."""
        self._leads = False
        self._writings: dict[str, DocumentWriter[Value]] = {}
        self._tasks: dict[str, asyncio.Task[NoReturn]] = {}
        self._group: asyncio.TaskGroup | None = None
        self.found: tuple[Document, ...] = ()
        """What the store held when it was first listed; empty before that."""
        self._is_listed = asyncio.Event()

    async def run(self) -> NoReturn:
        """Watch, and write while we lead, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._group = tasks
            await self._watch()
        raise AssertionError("a watch never ends")

    async def documents(self) -> tuple[Document, ...]:
        """Return what the store held when it was first listed; wait for a store that is away."""
        await self._is_listed.wait()
        return self.found

    async def list(self) -> tuple[Document, ...]:
        """Return what the store holds now, whatever its watch has shown. Raises ``StoreError``."""
        documents = await self.store.list(SELECTION)
        there = {document.name: document for document in documents}
        for name in self.outputs.keys() | there.keys():
            if kind_of(name) is not None:
                self._output(name).observe_read(there.get(name))
        return documents

    def lead(self, names: Iterable[str]) -> None:
        """Write from now on, these documents first."""
        self._leads = True
        # Before the writers start: they compare with this term.
        for output in self.outputs.values():
            output.begin_term(self.context.clock(), fence=self.context.leadership.fences)
        self.wake(names)

    async def follow(self) -> None:
        """Stop writing: another replica leads."""
        self._leads = False
        self.writing.succeeded()
        tasks = list(self._tasks.values())
        self._tasks.clear()
        self._writings.clear()
        await ended(tasks)

    def wake(self, names: Iterable[str]) -> None:
        """Wake the writers of these documents: their desired content may have changed."""
        # A follower has no writers; the takeover wakes all documents.
        if not self._leads:
            return
        assert self._group is not None
        for name in names:
            if name not in self._writings:
                self._writings[name] = self._writing(name)
                run = self._writings[name].run()
                task = self._group.create_task(run, name=f"publish {name} to {self.store.url}")
                self._tasks[name] = task
            self._writings[name].wake.set()

    def _writing(self, name: str) -> DocumentWriter[Value]:
        desired = _DesiredClusterDocument(self, self._documents, name)
        return DocumentWriter(self.context, self._output(name), desired)

    async def _watch(self) -> NoReturn:
        async for event in self.store.watch(SELECTION):
            with self.context.stalls.busy(f"watch own documents in {self.store.url}"):
                self._observe(event)
        raise StoreError(f"the watch of {self.store.url} ended")

    def _observe(self, event: WatchEvent) -> None:
        match event:
            case DocumentsListed(documents):
                # A store that was away may have come back without documents.
                if self._trouble.reason is not None:
                    self._trouble.end()
                    self._documents.on_maybe_lost()
                self.reading.succeeded()
                self._list(documents)
            case Changed(document):
                self._shows(document.name, document)
                self._stray((document,))
            case Deleted(_, name):
                self._shows(name, StoreContent.NOTHING)
                # One deleted document may be the first sign of a store that lost all of them.
                self._documents.on_maybe_lost()
            case Interrupted(reason):
                self._trouble.record_failure(reason)
                self.reading.failed("watch", reason, self.context.clock().steady_ms)
                for output in self.outputs.values():
                    output.interrupted()

    def _list(self, documents: tuple[Document, ...]) -> None:
        there = {document.name: document for document in documents}
        # The first list is taken over as a whole, by the callers of ``documents``.
        follows = self._is_listed.is_set()
        # A document that is missing is an event, too: it is written again.
        for name in self.outputs.keys() | there.keys():
            self._shows(name, there.get(name, StoreContent.NOTHING), follows=follows, is_list=True)
        if not self._is_listed.is_set():
            self.found = documents
            self._is_listed.set()
        self._stray(documents)

    def _shows(
        self,
        name: str,
        shown: Document | StoreContent,
        *,
        follows: bool = True,
        is_list: bool = False,
    ) -> None:
        if kind_of(name) is None:
            return
        output = self._output(name)
        if is_list:
            output.listed(shown)
        else:
            output.observe_watch(shown)
        if name in self._writings:
            self._writings[name].wake.set()
        # While this replica leads, its writer compares the document itself.
        elif follows and not self._leads and isinstance(shown, Document):
            self._documents.on_followed(self, shown)

    def _stray(self, documents: Iterable[Document]) -> None:
        if not self._leads:
            return
        strange = [d for d in documents if kind_of(d.name) and d.name not in self._writings]
        # Before the first writers exist every document is strange: the takeover counts them in.
        if strange and self._writings:
            self._documents.on_appeared(strange)

    def _output(self, name: str) -> ClusterDocument:
        if name not in self.outputs:
            self.outputs[name] = ClusterDocument(name)
            if self._leads:
                # Nothing was seen of it: a document that is not there, unless the watch is behind.
                self.outputs[name].version = "" if self._trouble.reason is None else None
        return self.outputs[name]
