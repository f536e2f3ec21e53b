"""Stores the state that the next leader needs, as documents in the first store published to.

In quiet times a change is in the store at once, and each document is written at most twice a
second. All of them queue for a write with cluster documents
(``aggregator/publish/rate_limited_queue.py``), plugins one after the other, so that a storm in one
does not delay the others; a document that a caller awaits goes first and needs no turn. Each write
replaces the version that was seen last. A new leader first marks each document, so that a write
that an earlier leader still has under way is refused, and then restores from it.

No watch follows these documents. A store that may come back without them is listed after it was
away (``look_for_lost``), and a copy is in the state directory. A change by an admission webhook
would show only at the next start, so the answer to each write is compared with what was written.
``service/owned_documents/owned_document.py`` has the contract of document writers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

import msgspec

from aggregator.plugin import LAST
from aggregator.publish.document_writer import compares_versions, ended
from aggregator.publish.rate_limited_queue import WriteKind
from contract.errors import StoreConflict, StoreError, StoreUnavailable
from contract.names import STATE_KEY, STATE_LABEL, STATE_NAMESPACE, STATE_PREFIX
from contract.pages.aggregator_status import PersistentStateStatus
from pacing.backoff import Backoff
from pacing.waiting import gather_results, wait_for_event
from service.log.ongoing_failure import OngoingFailures
from service.owned_documents.foreign_parts import differences
from service.owned_documents.foreign_writes import ForeignWriter, pauses
from service.owned_documents.owned_document import OwnedDocument
from stores.base import Document, Selection
from stores.touch import touched_now

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.absence.last_known import LastKnown
    from aggregator.plugin import Persistent
    from aggregator.publish.document_writer import WriterContext

_log = logging.getLogger(__name__)

TAKEN_OVER = "npu-vigil/taken-over"
"""The annotation that fences an earlier leader off."""
# The rest is for metadata: labels, annotations and what others add (decision 51).
MAX_DOCUMENT_BYTES = 900 * 1024
"""The API server's own limit is 1 MiB for the whole object."""

# Twice a second at most for each document; an awaited one does not wait for it (``_due_ms``).
_SPACING_MS = 500
_SETTLE_SECONDS = 0.05
"""What changes together is written together, and behind what readers wait for."""
# A takeover lists and marks all documents of state: eight requests under way, not one for each
# document.
_MAX_CONCURRENT = 8
# A conflict here is one late write of the earlier leader; five in a row are another program.
_MAX_ATTEMPTS = 5
_LAST_WRITES_TIMEOUT_SECONDS = 0.5
"""Longest time for the last writes of a leader: meanwhile no replica leads."""

_Key = tuple[str, str]


class PersistentState:
    """The documents of all ``persistent`` plugins. Only the leader writes them."""

    def __init__(
        self,
        context: WriterContext,
        persistent: Iterable[Persistent],
        copies: LastKnown | None = None,
    ) -> None:
        self._store = context.store
        # etcd keeps what it acknowledged; copies are for brokers and directories (decision 21).
        self._copies = None if context.store.absence_is_deletion else copies
        self._found_copies: dict[_Key, str] = {}
        """Texts that an earlier run kept, for a store that has none at all."""
        self._may_have_forgotten = False
        self._turns = context.turns
        self._plugins = {plugin.name: plugin for plugin in persistent}
        self._leadership = context.leadership
        self._clock = context.clock
        self._stalls = context.stalls
        self._is_conditional = compares_versions(context.store)
        self._documents: dict[_Key, OwnedDocument] = {}
        self._dirty: dict[_Key, int] = {}
        """What is to be written, with the number of the poll that found it."""
        self._writing_now: dict[_Key, int] = {}
        self._polls = 0
        self._written_last: dict[str, int] = {}
        """The turn in which a document of this plugin was written last."""
        self._turns_total = 0
        self._next_ms: dict[_Key, int] = {}
        """Steady time from which a document may be written again."""
        self._refused_until_ms: dict[_Key, int] = {}
        self._undone: dict[_Key, Backoff] = {}
        """Documents that the store changed when they were written last, with the pauses before the
        next.
        """
        self._awaited: Counter[str] = Counter()
        self._writes_state = False
        # Callers that wait compare it: what they wait for is void once another replica led.
        self._term = 0
        """Grows whenever changes that are not stored yet are given up."""
        self._writes = dict.fromkeys(self._plugins, 0)
        self._unreadable: dict[str, tuple[str, ...]] = {}
        self._trouble: OngoingFailures[_Key] = OngoingFailures(
            _log,
            "state %s cannot be stored: %s",
            "state %s is stored again",
            lambda key: f"{STATE_PREFIX}{key[0]}-{key[1]}",
            level=logging.ERROR,
        )
        self._wake = asyncio.Event()
        self._done = asyncio.Condition()
        self._task: asyncio.Task[NoReturn] | None = None

    def restore_copies(self, documents: Iterable[Document]) -> None:
        """Restore the copies that an earlier run left in the state directory."""
        for document in documents:
            name = document.labels.get(STATE_LABEL, "")
            if name in self._plugins:
                bucket = document.name.removeprefix(f"{STATE_PREFIX}{name}-")
                self._found_copies[name, bucket] = document.data.get(STATE_KEY, "")

    def look_for_lost(self) -> None:
        """List the store soon, and write again what it has lost."""
        if self._copies is not None:
            self._may_have_forgotten = True
            self._wake.set()

    def drop_copies(self) -> None:
        """Remove the copies in the state directory: another leader writes newer state."""
        self._found_copies.clear()
        for owned in self._documents.values():
            self._keep_copy(owned, None)

    def _keep_copy(self, owned: OwnedDocument, stored: Document | None) -> None:
        if self._copies is not None:
            self._copies.record(self._store.url, owned.namespace, owned.name, stored)

    async def restore_plugins(self, *, fence: bool) -> None:
        """Pass to every plugin the state that was stored last. Raises ``StoreError``.

        ``fence``: this replica begins to lead, and an earlier leader may have a write under way.
        """
        # One gate for lists and marks of all plugins together.
        gate = asyncio.Semaphore(_MAX_CONCURRENT)
        names = tuple(self._plugins)
        results = await gather_results(self._found(name, gate, fence=fence) for name in names)
        # All at once, so that the plugins agree with each other.
        await self._end_term()
        self._documents = {}
        # A store that still has some state lost nothing: its documents are newer than the copies.
        if any(results):
            self._found_copies.clear()
        for name, documents in zip(names, results, strict=True):
            self._restore_plugin(name, documents)

    async def _found(
        self, name: str, gate: asyncio.Semaphore, *, fence: bool
    ) -> tuple[Document, ...]:
        async with gate:
            documents = await self._store.list(
                Selection(namespace=STATE_NAMESPACE, label=(STATE_LABEL, name))
            )
        # Others may give their objects our label; only names of our own form are read.
        documents = tuple(
            document for document in documents if document.name.startswith(f"{STATE_PREFIX}{name}-")
        )
        return await self._fenced(documents, gate) if fence else documents

    def _restore_plugin(self, name: str, documents: tuple[Document, ...]) -> None:
        plugin = self._plugins[name]
        # What it changed before belongs to the state that is replaced now.
        plugin.pop_changed()
        there = {
            document.name.removeprefix(f"{STATE_PREFIX}{name}-"): document for document in documents
        }
        for bucket, document in there.items():
            self._document((name, bucket)).record_stored(document)
        # Copies first, documents over them: what the store has is newer.
        texts = {bucket: text for (of, bucket), text in self._found_copies.items() if of == name}
        texts |= {bucket: document.data.get(STATE_KEY, "") for bucket, document in there.items()}
        problems = tuple(plugin.restore(texts, self._clock()))
        for problem in problems:
            _log.error("stored state %s cannot be read, and is begun anew: %s", name, problem)
        self._unreadable[name] = problems
        # Restored buckets are compared with the store once, so copies get written; equal ones cost
        # no write (``_try``).
        for bucket in plugin.pop_changed() | texts.keys():
            self._mark((name, bucket))

    def _document(self, key: _Key) -> OwnedDocument:
        if key not in self._documents:
            self._documents[key] = OwnedDocument(STATE_NAMESPACE, f"{STATE_PREFIX}{'-'.join(key)}")
            # No list has shown it, so its first write is a creation.
            self._documents[key].record_stored(None)
        return self._documents[key]

    async def _fenced(
        self, documents: tuple[Document, ...], gate: asyncio.Semaphore
    ) -> tuple[Document, ...]:
        async def fence(document: Document) -> Document | None:
            async with gate:
                return await self._fence(document)

        marked = await gather_results(fence(document) for document in documents)
        return tuple(document for document in marked if document is not None)

    async def _fence(self, document: Document) -> Document | None:
        there: Document | None = document
        # Between list and mark an earlier leader's write may arrive: it wins once, and is read and
        # kept.
        for _ in range(_MAX_ATTEMPTS):
            if there is None:
                return None
            annotations = there.annotations | {TAKEN_OVER: touched_now()}
            marked = msgspec.structs.replace(there, annotations=annotations)
            try:
                version = await self._store.put(marked, expected=there.version)
                return msgspec.structs.replace(marked, version=version)
            except StoreConflict:
                there = await self._store.get(document.namespace, document.name)
        raise StoreConflict(f"{document.name} is written by another program all the time")

    def poll(self) -> None:
        """Collect from the plugins which buckets changed."""
        self._polls += 1
        for name, plugin in self._plugins.items():
            for bucket in plugin.pop_changed():
                self._mark((name, bucket))

    def _mark(self, key: _Key) -> None:
        # The first poll counts: a caller waits for the oldest change, and later ones go with the
        # same write.
        self._dirty.setdefault(key, self._polls)
        self._wake.set()

    async def wait_until_stored(self, name: str) -> None:
        """Wait until everything that this plugin has changed so far is in the store.

        Raises ``StoreUnavailable`` where it will not be, because another replica leads.
        """
        self.poll()
        upto, term = self._polls, self._term
        self._awaited[name] += 1
        self._wake.set()
        try:
            async with self._done:
                # Also ends when this replica stops to write or the term ended: no other task would
                # wake the caller.
                await self._done.wait_for(
                    lambda: (
                        not self._writes_state or self._term != term or self._is_stored(name, upto)
                    )
                )
        finally:
            self._awaited[name] -= 1
        if self._term != term or not self._is_stored(name, upto):
            raise StoreUnavailable("it is not stored: another aggregator leads")

    def _is_stored(self, name: str, upto: int) -> bool:
        return not any(
            key[0] == name and poll <= upto
            for writes in (self._dirty, self._writing_now)
            for key, poll in writes.items()
        )

    async def _end_term(self) -> None:
        """Give up the changes that are not stored yet, and wake the callers that wait for them."""
        self._term += 1
        async with self._done:
            self._done.notify_all()

    def lead(self, tasks: asyncio.TaskGroup) -> None:
        """Write from now on."""
        self._found_copies.clear()
        self._next_ms.clear()
        self._refused_until_ms.clear()
        self._writes_state = True
        self._task = tasks.create_task(self._run(), name=f"keep state in {self._store.url}")

    async def follow(self) -> None:
        """Write no more, after the changes so far, if this replica still may and the store answers
        soon.
        """
        task, self._task = self._task, None
        if task is None:
            return
        # The writing task ends first, so that a document has never two writes of ours under way.
        await ended([task])
        self.poll()
        try:
            async with asyncio.timeout(_LAST_WRITES_TIMEOUT_SECONDS):
                await self._write_last()
        except TimeoutError:
            _log.warning("not all state is stored: %s gives no answer in time", self._store.url)
        finally:
            self._writes_state = False
            await self._end_term()

    async def _write_last(self) -> None:
        gate = asyncio.Semaphore(_MAX_CONCURRENT)

        async def write(key: _Key) -> None:
            async with gate:
                # A write that was cancelled may have reached the store: then the first one is
                # refused.
                for _ in range(2):
                    if not self._leadership.leads or await self._write(key):
                        return

        # A bucket that marks the others as complete must not be stored before them.
        for is_last in (False, True):
            keys = [key for key in self._dirty if _is_last(key) is is_last]
            await asyncio.gather(*(write(key) for key in keys if not self._must_wait(key)))

    async def _run(self) -> NoReturn:
        backoff = Backoff()
        while True:
            self._wake.clear()
            if self._may_have_forgotten and self._leadership.leads:
                await self._find_lost()
            key = self._next_due()
            if key is None or not self._leadership.leads:
                await self._wait()
                if not self._awaited.total():
                    # Changes of one step are collected before the first of them is written; an
                    # awaited one goes at once.
                    await asyncio.sleep(_SETTLE_SECONDS)
                continue
            if not self._awaited[key[0]]:
                await self._turns.write(STATE_PREFIX, WriteKind.STATE)
            # Chosen again after the turn: meanwhile a caller may await another document.
            key = self._next_due()
            if key is None or not self._leadership.leads:
                continue
            self._turns_total += 1
            self._written_last[key[0]] = self._turns_total
            if await self._write(key):
                backoff.reset()
                # From the end of the write, so that a slow store is not written to all the time.
                self._next_ms[key] = self._clock().steady_ms + _SPACING_MS
            else:
                # Others go first: a document that is refused must not delay them.
                again_ms = int(self._undone.get(key, backoff).next_seconds() * 1000)
                self._refused_until_ms[key] = self._clock().steady_ms + again_ms

    async def _find_lost(self) -> None:
        """Mark the documents that the store does not hold as they were written last."""
        self._may_have_forgotten = False
        try:
            selection = Selection(namespace=STATE_NAMESPACE, has_label=STATE_LABEL)
            there = {document.name: document for document in await self._store.list(selection)}
        # Not lost: the flag makes the next round list again.
        except StoreError:
            self._may_have_forgotten = True
            return
        for key, owned in self._documents.items():
            stored = there.get(owned.name)
            # Compared by content, since versions of a store that lost its data begin anew.
            if _data(stored) == _data(owned.stored):
                continue
            owned.record_stored(stored)
            self._next_ms.pop(key, None)
            self._mark(key)

    def _due_ms(self, key: _Key) -> int:
        refused_ms = self._refused_until_ms.get(key, 0)
        return refused_ms if self._awaited[key[0]] else max(refused_ms, self._next_ms.get(key, 0))

    def _next_due(self) -> _Key | None:
        now_ms = self._clock().steady_ms
        due = [
            key for key in self._dirty if self._due_ms(key) <= now_ms and not self._must_wait(key)
        ]
        return min(due, key=self._turn, default=None)

    def _turn(self, key: _Key) -> tuple[bool, int, int]:
        """Return the order of writes: awaited first, then the plugin and the document that wait
        longest.
        """
        name = key[0]
        return not self._awaited[name], self._written_last.get(name, 0), self._dirty[key]

    def _must_wait(self, key: _Key) -> bool:
        """Return whether it marks the others as complete (``LAST``) while one of these is not
        stored yet.
        """
        return _is_last(key) and any(
            other[0] == key[0] and not _is_last(other) for other in self._dirty
        )

    async def _wait(self) -> None:
        now_ms = self._clock().steady_ms
        free = (key for key in self._dirty if not self._must_wait(key))
        at_ms = min((max(now_ms, self._due_ms(key)) for key in free), default=None)
        seconds = None if at_ms is None else max(0.0, (at_ms - now_ms + 1) / 1000)
        await wait_for_event(self._wake, seconds)

    async def _write(self, key: _Key) -> bool:
        """Write one document as desired now; return whether it is stored."""
        # Moved, not copied: a change during the write marks the document anew.
        self._writing_now[key] = self._dirty.pop(key)
        is_stored = False
        try:
            with self._stalls.busy(f"keep state {'-'.join(key)} in {self._store.url}"):
                is_stored = await self._try(key)
        except StoreConflict as error:
            await self._read_again(key, error)
        except StoreError as error:
            self._trouble.record_failure(key, str(error))
        finally:
            poll = self._writing_now.pop(key)
            if not is_stored:
                # With its old number: callers that waited for it go on waiting.
                self._dirty[key] = poll
        async with self._done:
            self._done.notify_all()
        return is_stored

    async def _try(self, key: _Key) -> bool:
        name, bucket = key
        text = self._plugins[name].text(bucket)
        owned = self._document(key)
        # What is there is what is wanted: no write, and an earlier trouble is over.
        if _data(owned.stored).get(STATE_KEY) == text:
            self._end_trouble(key)
            return True
        if text is None:
            await owned.replace(self._store, None, demands=self._is_conditional)
            self._documents.pop(key, None)
            self._keep_copy(owned, None)
        else:
            size = len(text.encode())
            if size > MAX_DOCUMENT_BYTES:
                self._trouble.record_failure(
                    key, f"has {size} bytes, at most {MAX_DOCUMENT_BYTES} fit into a document"
                )
                # Reported as stored: a repetition could not succeed before the plugin changes the
                # text.
                return True  # until it changes
            await owned.check_owners(self._store)
            ours = Document(owned.namespace, owned.name, {STATE_KEY: text}, {STATE_LABEL: name})
            document = owned.with_added(ours)
            # A broker cannot compare versions, and no leader is elected there (decision 10).
            expected = owned.version if self._is_conditional else None
            stored = await self._store.put_shown(document, expected=expected)
            owned.record_stored(stored)
            self._keep_copy(owned, stored)
            # No watch follows these documents, so the answer alone shows what a webhook made of the
            # write.
            if changes := owned.differences(document):
                self._undone.setdefault(key, pauses())
                other = ForeignWriter(differing=changes)
                self._trouble.record_failure(key, f"conflict: {other.changes(owned.name)}")
                return False
        self._writes[name] += 1
        self._end_trouble(key)
        return True

    def _end_trouble(self, key: _Key) -> None:
        self._undone.pop(key, None)
        self._trouble.end(key)

    @property
    def conflicts(self) -> tuple[str, ...]:
        """Changes that the store made to documents when they were written."""
        reasons = self._trouble.reasons
        texts = (reasons.get(key) for key in sorted(self._undone))
        return tuple(f"{reason} in {self._store.url}" for reason in texts if reason is not None)

    async def _read_again(self, key: _Key, error: StoreConflict) -> None:
        """Read a document after a conflict: an operator has edited it, or another replica leads."""
        # A conflict may mean that another replica leads by now: only its state counts then.
        if not await self._leadership.confirm():
            return
        owned = self._document(key)
        try:
            there = await self._store.get(owned.namespace, owned.name)
        except StoreError as trouble:
            self._trouble.record_failure(key, str(trouble))
            return
        is_wanted = _data(there).get(STATE_KEY) == self._plugins[key[0]].text(key[1])
        # What is there as desired is our own write, whose answer was lost.
        if differences(there, owned.stored) and not is_wanted:
            _log.warning("another program wrote our state, it is replaced: %s", error)
        owned.record_stored(there)

    def statuses(self) -> tuple[PersistentStateStatus, ...]:
        """Return the status of each plugin's state."""
        there = [
            (key[0], owned.stored)
            for key, owned in self._documents.items()
            if owned.stored is not None
        ]
        return tuple(
            PersistentStateStatus(
                name=name,
                documents=sum(of == name for of, _ in there),
                bytes=sum(
                    len(document.data.get(STATE_KEY, "").encode())
                    for of, document in there
                    if of == name
                ),
                writes=self._writes[name],
                problems=(
                    *self._unreadable.get(name, ()),
                    *(reason for key, reason in self._trouble.reasons.items() if key[0] == name),
                ),
            )
            for name in self._plugins
        )


def _data(document: Document | None) -> dict[str, str]:
    return {} if document is None else document.data


def _is_last(key: _Key) -> bool:
    return key[1].startswith(LAST)
