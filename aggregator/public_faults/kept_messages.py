"""What is kept of messages: their documents, those that wait, and reports about unknown nodes.

A document is a message that stays. Each of its texts is applied once: not when something else of
the document changes, and not again after a restart, for which digests of the applied texts are
kept. Its faults hold on when the document is deleted (``docs/spec/clusterd.md#4.1``).

Messages wait until it is known which nodes there are, or until limits allow them. Those that came
over gRPC are answered already, so they are persisted for the next run; a document is read again.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from aggregator.public_faults.values import PublicFaultReport
from contract.documents.public_fault import DATA_KEY
from contract.errors import Problem
from stores.base import Changed, Deleted, DocumentsListed
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aggregator.public_faults.values import NodeLookup, Rows, UnplacedFault
    from service.clock import Instant
    from stores.base import Document, WatchEvent

# The label may be set by whoever may make ConfigMaps, so memory needs a limit.
MAX_DOCUMENTS = 50_000

RECENT_TEXTS_MS = 60_000
"""Longer than no replica leads after a kill, with the second that a leader may not have
stored yet.
"""
_MAX_CHARACTERS = 16 << 20


class MessageOrigin(NamedTuple):
    """A document by the number of its store, and its namespace and name with a slash between."""

    source: int
    place: str


class MessageDocuments:
    """What the stores have. ``texts`` are those of the data key, ``None`` where it is missing."""

    def __init__(self, rows: Rows, sources: int) -> None:
        self.texts: dict[MessageOrigin, str | None] = {}
        self.beyond = 0
        """How many documents were not read because there are too many."""
        self._rows = rows
        self._sources = sources
        self._listed: set[int] = set()
        self._counted: dict[str, dict[int, str]] = {}
        """By place and number of the store: digest of the text that has counted. Numbers below 0
        stand for stores of an earlier run, whichever they were."""

    def observe_document(
        self, source: int, event: WatchEvent
    ) -> tuple[list[MessageOrigin], list[MessageOrigin]]:
        """Apply an event; return the documents with a new text and those that are gone."""
        match event:
            case DocumentsListed(documents):
                self._listed.add(source)
                named = {_origin(source, document): document for document in documents}
                gone = [
                    origin
                    for origin in self.texts
                    if origin.source == source and origin not in named
                ]
                for origin in gone:
                    self._forget(origin)
                new = [origin for origin in named if self._is_new(origin, named[origin])]
                self._forget_earlier()
                return new, gone
            case Changed(document):
                origin = _origin(source, document)
                return [origin] if self._is_new(origin, document) else [], []
            case Deleted(namespace, name):
                origin = MessageOrigin(source, f"{namespace}/{name}")
                if origin not in self.texts:
                    return [], []
                self._forget(origin)
                return [], [origin]
            case Interrupted():
                return [], []

    def holds(self, place: str, digest: str) -> bool:
        """Return whether what has counted of a document there is still a text with this digest."""
        return digest in self._counted.get(place, {}).values()

    def count(self, origin: MessageOrigin) -> None:
        """Record that the text of a document was applied."""
        if origin not in self.texts:
            return  # it went while its message waited
        digest = digest_of(self.texts[origin])
        by_source = self._counted.setdefault(origin.place, {})
        for source in [number for number, has in by_source.items() if number < 0 and has == digest]:
            del by_source[source]
        by_source[origin.source] = digest
        self._keep(origin.place)

    def restore_digests(self, documents: Mapping[str, tuple[str, ...]]) -> None:
        """Restore the digests of applied texts. Known texts stay; ``uncounted`` names the
        new ones.
        """
        self._counted.clear()
        for place, digests in documents.items():
            # Negative numbers: the digests are of an earlier run, whose stores may have had other
            # numbers.
            self._counted[place] = {-1 - number: digest for number, digest in enumerate(digests)}
            self._keep(place)
        for origin, text in self.texts.items():
            if self._has_counted(origin.place, text):
                self.count(origin)
        self._forget_earlier()

    def uncounted(self) -> Iterator[MessageOrigin]:
        """Return the documents whose text was not applied."""
        for origin, text in self.texts.items():
            if not self._has_counted(origin.place, text):
                yield origin

    def _is_new(self, origin: MessageOrigin, document: Document) -> bool:
        text = document.data.get(DATA_KEY)
        if origin in self.texts:
            if self.texts[origin] == text:
                return False
        elif len(self.texts) >= MAX_DOCUMENTS:
            self.beyond += 1
            return False
        self.texts[origin] = text
        if self._has_counted(origin.place, text):
            self.count(origin)
            return False
        return True

    def _has_counted(self, place: str, text: str | None) -> bool:
        return digest_of(text) in self._counted.get(place, {}).values()

    def _forget(self, origin: MessageOrigin) -> None:
        del self.texts[origin]
        by_source = self._counted.get(origin.place, {})
        by_source.pop(origin.source, None)
        self._keep(origin.place)

    def _forget_earlier(self) -> None:
        """Remove documents of an earlier run that no store has, once every store was listed."""
        # A store that was not listed yet may still have the document.
        if len(self._listed) < self._sources:
            return
        for place, by_source in tuple(self._counted.items()):
            for source in [number for number in by_source if number < 0]:
                del by_source[source]
                self._keep(place)

    def _keep(self, place: str) -> None:
        digests = tuple(sorted(set(self._counted.get(place, {}).values())))
        if digests:
            self._rows.put("document", (place,), digests)
        else:
            self._counted.pop(place, None)
            self._rows.drop("document", (place,))


class _RecentText(NamedTuple):
    at_ms: int
    origin: MessageOrigin
    text: str


class RecentTexts:
    """Recent texts of documents, also those that the documents do not have any more.

    The next leader begins with the state that the leader before has stored, and reads the documents
    as they are then. A text between was seen only by replicas that followed then.
    """

    def __init__(self) -> None:
        self._texts: deque[_RecentText] = deque()
        self._size = 0

    def record(self, origin: MessageOrigin, text: str, now: Instant) -> None:
        """Record the text of a document."""
        self._texts.append(_RecentText(now.steady_ms, origin, text))
        self._size += len(text)
        while (
            self._size > _MAX_CHARACTERS or self._texts[0].at_ms + RECENT_TEXTS_MS < now.steady_ms
        ):
            self._size -= len(self._texts.popleft().text)

    def since(self, now: Instant) -> Iterator[tuple[MessageOrigin, str]]:
        """Yield the texts of the last ``RECENT_TEXTS_MS``."""
        return (
            (o, text) for at_ms, o, text in self._texts if at_ms + RECENT_TEXTS_MS >= now.steady_ms
        )


def _origin(source: int, document: Document) -> MessageOrigin:
    return MessageOrigin(source, f"{document.namespace}/{document.name}")


def digest_of(text: str | None) -> str:
    """Return a digest by which a text is recognized again."""
    content = "" if text is None else text
    # Eight bytes: a digest only recognises the same text, and is not a proof against an attack.
    return hashlib.blake2b(content.encode("utf-8", "replace"), digest_size=8).hexdigest()


MAX_PENDING_REPORTS = 50_000
"""Most pending reports that came over gRPC."""

# A document that changes faster than limits allow loses its oldest texts, not others'.
_MAX_PENDING_PER_DOCUMENT = 16
_MAX_REPORTS_PER_MESSAGE = 500
"""Most reports over gRPC in one pending message."""


class Pending(msgspec.Struct, frozen=True):
    """A message that waits; ``origin`` of ``None``: it came over gRPC."""

    number: int
    origin: MessageOrigin | None
    reports: tuple[PublicFaultReport, ...]
    problems: tuple[Problem, ...] = ()
    """What was refused of it before."""


class PendingMessages:
    """Pending messages in order of their arrival."""

    def __init__(self, rows: Rows) -> None:
        self.dropped = 0
        """Messages of documents that changed more often than the limits allow."""
        self._rows = rows
        self._line: dict[int, Pending] = {}
        self._held = 0
        self._of: Counter[MessageOrigin] = Counter()
        self._next = 0

    def __len__(self) -> int:
        return len(self._line)

    @property
    def held(self) -> int:
        """How many reports that came over gRPC wait."""
        return self._held

    def has(self, origin: MessageOrigin) -> bool:
        """Return whether a message of this document waits: a later one must not overtake it."""
        return self._of[origin] > 0

    def put(
        self,
        origin: MessageOrigin | None,
        reports: Iterable[PublicFaultReport],
        problems: Iterable[Problem] = (),
    ) -> bool:
        """Let a message wait; return whether there is room for it."""
        reports = tuple(reports)
        if origin is None:
            if self._held + len(reports) > MAX_PENDING_REPORTS:
                return False
            self._held += len(reports)
        else:
            if self._of[origin] >= _MAX_PENDING_PER_DOCUMENT:
                # The oldest goes: newer texts of the document are nearer to its present state.
                self._drop_first(origin)
            self._of[origin] += 1
        if origin is not None:
            self._append(origin, reports, tuple(problems))
        for first in range(0, len(reports) if origin is None else 0, _MAX_REPORTS_PER_MESSAGE):
            pending = self._append(None, reports[first : first + _MAX_REPORTS_PER_MESSAGE], ())
            for number, report in enumerate(pending.reports):
                self._rows.put("held", _pending_row(pending, number), report)
        return True

    def _append(
        self,
        origin: MessageOrigin | None,
        reports: tuple[PublicFaultReport, ...],
        problems: tuple[Problem, ...],
    ) -> Pending:
        pending = Pending(self._next, origin, reports, problems)
        self._line[pending.number] = pending
        self._next += 1
        return pending

    def line(self) -> Iterator[Pending]:
        """Yield the pending messages in order; more may come and go meanwhile."""
        # Serving removes messages, and new ones may come between two pieces of work.
        for number in tuple(self._line):
            pending = self._line.get(number)
            if pending is not None:
                yield pending

    def done(self, pending: Pending) -> None:
        """Remove a message that was applied."""
        if self._line.pop(pending.number, None) is None:
            return
        if pending.origin is None:
            self._held -= len(pending.reports)
            for number in range(len(pending.reports)):
                self._rows.drop("held", _pending_row(pending, number))
        else:
            self._of[pending.origin] -= 1
            if not self._of[pending.origin]:
                del self._of[pending.origin]

    def clear(self) -> None:
        """Remove all messages."""
        self._line.clear()
        self._of.clear()
        self._held = 0

    def _drop_first(self, origin: MessageOrigin) -> None:
        self.done(next(pending for pending in self._line.values() if pending.origin == origin))
        self.dropped += 1


def _pending_row(pending: Pending, number: int) -> tuple[str, ...]:
    report = pending.reports[number]
    owner = report.node or report.serial_number
    # Padded numbers sort as numbers, so the next run applies them in their order.
    return owner, f"{pending.number:012}", f"{number:06}"


MAX_UNKNOWN = 10_000
"""Beyond that the oldest is forgotten."""


_UnplacedRow: TypeAlias = tuple[str, str, str, str]
"""Node, or serial number where there is no name; resource and fault id."""


class UnknownNodes:
    """The newest reports, the oldest first."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._of: dict[_UnplacedRow, UnplacedFault] = {}
        self._at: dict[str, set[_UnplacedRow]] = {}
        """Rows by place of the document."""

    def __len__(self) -> int:
        return len(self._of)

    def put(self, unplaced: UnplacedFault) -> None:
        """Keep a report until its node comes."""
        self.drop(unplaced.report)
        row = _unplaced_row(unplaced.report)
        self._of[row] = unplaced
        self._at.setdefault(unplaced.place, set()).add(row)
        self._rows.put("absent", row, unplaced)
        if len(self._of) > MAX_UNKNOWN:
            # Dictionaries keep insertion order, so the first is the oldest.
            self.drop(next(iter(self._of.values())).report)

    def drop(self, report: PublicFaultReport) -> None:
        """Remove the report of a fault about which a newer one came."""
        row = _unplaced_row(report)
        unplaced = self._of.pop(row, None)
        if unplaced is None:
            return
        self._at[unplaced.place].discard(row)
        if not self._at[unplaced.place]:
            del self._at[unplaced.place]
        self._rows.drop("absent", row)

    def of_existing_nodes(self, node_lookup: NodeLookup) -> list[UnplacedFault]:
        """Return the reports about nodes that exist now."""
        reports = {row[:2]: unplaced.report for row, unplaced in self._of.items()}
        there = {owner for owner, report in reports.items() if is_there(report, node_lookup)}
        return [unplaced for row, unplaced in self._of.items() if row[:2] in there]

    def is_newest(self, unplaced: UnplacedFault) -> bool:
        """Return whether this is still the newest report."""
        return self._of.get(_unplaced_row(unplaced.report)) is unplaced

    def has(self, place: str) -> bool:
        """Return whether a report of the document at this place lacks its node."""
        return place in self._at

    @property
    def places(self) -> tuple[str, ...]:
        """Places of the documents of which reports are kept."""
        return tuple(self._at)

    def forget(self, place: str, holds: Callable[[str, str], bool]) -> None:
        """Remove reports that the document at this place does not have any more."""
        for row in tuple(self._at.get(place, ())):
            unplaced = self._of[row]
            if not holds(unplaced.place, unplaced.digest):
                self.drop(unplaced.report)

    def restore_reports(self, reports: Iterable[UnplacedFault]) -> None:
        """Restore the reports of an earlier run."""
        self._of.clear()
        self._at.clear()
        for unplaced in reports:
            self.put(unplaced)


def is_there(report: PublicFaultReport, node_lookup: NodeLookup) -> bool:
    """Return whether there is the node that a report names, or that has its serial number."""
    if report.node:
        return node_lookup.has_node(report.node)
    return node_lookup.node_of(report.serial_number) is not None


def _unplaced_row(report: PublicFaultReport) -> _UnplacedRow:
    number = "" if report.node else report.serial_number
    return report.node, number, report.resource, report.fault_id
