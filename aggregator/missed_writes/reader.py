"""Reads by name the documents whose last write a heartbeat names and no watch has shown.

So no single channel can hide a fault: a watch that delivers nothing hides nothing
(``docs/decisions/017``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, NoReturn, Protocol

from typing_extensions import override

from aggregator.inputs.read_by_name import read_by_name
from aggregator.missed_writes.claims import Claims, WriteClaim
from contract.codes.storage_faults import RESOURCES
from contract.errors import StoreError
from contract.names import PUBLIC_FAULT_LABEL, PUBLIC_FAULT_NAMESPACE, public_fault_name
from contract.plural import plural
from pacing.waiting import wait_for_event
from service.log.ongoing_failure import OngoingFailure
from service.log.shortened import shortened
from stores.base import Selection
from stores.deadline import answered_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from aggregator.inputs.node_documents import DocumentSource
    from aggregator.public_faults.plugin import PublicFaultsPlugin
    from service.clock import Clock
    from stores.base import Beat, Document, Store

_log = logging.getLogger(__name__)

# Above 50 nodes one list (decision 17).
_MAX_SINGLE_READS = 50
"""Documents of more nodes are listed, not read one by one."""
# Longer than the 10 s of a single read (decision 15), since it may be a list of all nodes.
_READ_SECONDS = 30.0

MISSED, UNFOUNDED, FAILED = "missed", "unfounded", "failed"
RESULTS = (MISSED, UNFOUNDED, FAILED)
"""Of a document that was read by name: the store had what no watch had shown; it had not; it could
not be read."""


class KindDocuments(Protocol):
    """The documents of one kind in one store, such as a ``DocumentWatch``."""

    selection: Selection

    def written_at_ms(self, node: str) -> int | None:
        """Return the time in the node's known document; ``None`` for none."""

    def has(self, node: str) -> bool:
        """Return whether any document of the node is known."""

    def names_of(self, nodes: Iterable[str]) -> dict[str, str]:
        """Return the name of each node's document."""

    def listening(self) -> AbstractContextManager[set[str]]:
        """Yield a set to which the watch adds the nodes of its events until the block ends."""


class StorageFaults(KindDocuments):
    """The public faults that agents report of the storage client ``client``.

    Each assertion in them has a time, so what a watch shows late undoes nothing.
    """

    selection = Selection(namespace=PUBLIC_FAULT_NAMESPACE, label=PUBLIC_FAULT_LABEL)

    def __init__(self, client: str, faults: PublicFaultsPlugin, source: int) -> None:
        self._resource = RESOURCES[client]
        self._faults = faults
        self._source = source

    @override
    def written_at_ms(self, node: str) -> int | None:
        place = f"{PUBLIC_FAULT_NAMESPACE}/{public_fault_name(node, self._resource)}"
        return self._faults.sent_at_ms(self._source, place)

    @override
    def has(self, node: str) -> bool:
        return self.written_at_ms(node) is not None

    @override
    def names_of(self, nodes: Iterable[str]) -> dict[str, str]:
        return {node: public_fault_name(node, self._resource) for node in sorted(nodes)}

    @override
    def listening(self) -> AbstractContextManager[set[str]]:
        # Not needed: assertions of public faults have times, and an older one changes nothing.
        return nullcontext(set())


def documents_of(
    source: DocumentSource, number: int, faults: PublicFaultsPlugin
) -> dict[str, KindDocuments]:
    """Return all kinds of documents of the store with this number."""
    kinds: dict[str, KindDocuments] = {watch.document: watch for watch in source.watches}
    for client in RESOURCES if faults.namespaces.takes(PUBLIC_FAULT_NAMESPACE) else ():
        kinds[f"{client.lower()}-fault"] = StorageFaults(client, faults, number)
    return kinds


class MissedWrites:
    """Reads the missed writes of one store; ``documents`` are by kind.

    ``apply`` receives a kind and its documents by node after a read, ``changed`` is called then.
    """

    def __init__(
        self,
        store: Store,
        documents: Mapping[str, KindDocuments],
        apply: Callable[[str, Mapping[str, Document | None]], None],
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self.claims = Claims(self._has_got)
        self.counts = Counter(dict.fromkeys(RESULTS, 0))
        """How many documents were read, by result."""
        self._store = store
        self._documents = documents
        self._apply = apply
        self._clock = clock
        self._changed = changed
        self._wake = asyncio.Event()
        self._problems: frozenset[str] = frozenset()
        self._trouble = OngoingFailure(
            _log,
            "what was written by the heartbeats in %s cannot be read by name, trying again: %s",
            "documents in %s can be read by name again",
            store.url,
        )

    def observe_beats(self, beats: Iterable[Beat]) -> None:
        """Apply the heartbeats of all nodes, as they were listed now."""
        self.claims.observe_beats(beats, self._clock().steady_ms)
        if self.claims.next_due_ms() is not None:
            self._wake.set()
        self._log_problems()

    def _has_got(self, claim: WriteClaim, number: int) -> bool:
        documents = self._documents.get(claim.kind)
        if documents is None:
            return True  # no plugin reads it
        has = _number(documents, claim.node)
        if number >= 0:
            return has is not None and has >= number
        # A document that came after its deletion is later than the heartbeat.
        return not documents.has(claim.node) or (has is not None and has > -number)

    async def run(self) -> NoReturn:
        """Read what is due until cancelled."""
        while True:
            now_ms = self._clock().steady_ms
            due = self.claims.due(now_ms)
            # One read for each kind: a list selects by the kind's label.
            for kind in dict.fromkeys(claim.kind for claim in due):
                await self._read(kind, {c.node: n for c, n in due.items() if c.kind == kind})
            await self._wait()

    async def _wait(self) -> None:
        self._wake.clear()
        due_ms = self.claims.next_due_ms()
        seconds = None if due_ms is None else (due_ms - self._clock().steady_ms + 1) / 1000
        await wait_for_event(self._wake, None if seconds is None else max(0.0, seconds))

    async def _read(self, kind: str, numbers: Mapping[str, int]) -> None:
        """Read the documents of a kind; ``numbers`` are the claimed writes by node."""
        documents = self._documents[kind]
        numbers_by_claim = {WriteClaim(kind, node): number for node, number in numbers.items()}
        try:
            with documents.listening() as changed:
                async with answered_within(_READ_SECONDS):
                    names = documents.names_of(numbers)
                    results = await read_by_name(
                        self._store, documents.selection, names, _MAX_SINGLE_READS
                    )
        except StoreError as error:
            self.counts[FAILED] += len(numbers_by_claim)
            self.claims.failed(numbers_by_claim, self._clock().steady_ms)
            self._trouble.record_failure(
                f"{kind} of {plural(len(numbers_by_claim), 'node')}: {error}"
            )
            return
        self._trouble.end()
        # What the watch showed meanwhile may be from before or after this. A document that its
        # agent names may be missing for a moment: it deletes and creates an immutable one.
        new = {
            node: document
            for node, document in results.items()
            if node not in changed and (document is not None or numbers[node] < 0)
        }
        before = {node: (_number(documents, node), documents.has(node)) for node in new}
        self._apply(kind, new)
        settled = {
            c: n
            for c, n in numbers_by_claim.items()
            if c.node not in changed or self._has_got(c, n)
        }
        self.claims.read(settled)
        self.claims.failed(numbers_by_claim.keys() - settled.keys(), self._clock().steady_ms)
        missed = [
            node for node in new if (_number(documents, node), documents.has(node)) != before[node]
        ]
        self.counts[MISSED] += len(missed)
        self.counts[UNFOUNDED] += len(numbers_by_claim) - len(missed)
        self._changed()
        self._log_state(kind, missed, numbers)

    def _log_state(self, kind: str, missed: list[str], numbers: Mapping[str, int]) -> None:
        """Log which documents were read, and which of them the watch had not shown."""
        url = self._store.url
        if missed:
            _log.warning(
                "the watch of %s has not shown the last write of %s, it was read by name: %s",
                url,
                kind,
                shortened(sorted(missed)),
            )
        unfounded = sorted(numbers.keys() - set(missed))
        if unfounded:
            _log.info(
                "heartbeats in %s name a write of %s that is not there, it was read by name: %s",
                url,
                kind,
                shortened(sorted(unfounded)),
            )

    def _log_problems(self) -> None:
        problems = self.claims.problems
        if problems.keys() == self._problems:
            return
        begun = sorted(problems.keys() - self._problems)
        if begun:
            _log.warning(
                "the key about writes in heartbeats in %s cannot be read, watches alone show "
                "changes of these nodes: %s (%s)",
                self._store.url,
                shortened(sorted(begun)),
                problems[begun[0]],
            )
        ended = self._problems - problems.keys()
        if ended:
            _log.info(
                "the key about writes can be read again, or is gone: %s", shortened(sorted(ended))
            )
        self._problems = frozenset(problems)


def _number(documents: KindDocuments, node: str) -> int | None:
    """Return the number of the last known write; ``None`` for none."""
    at_ms = documents.written_at_ms(node)
    return None if at_ms is None else at_ms // 1000
