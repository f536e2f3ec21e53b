"""The documents that carry messages, and which of them have been applied.

A document is a message that stays. Each of its texts is applied once: not when something else of
the document changes, and not again after a restart, for which digests of the applied texts are
kept. Its faults hold on when the document is deleted (``docs/spec/clusterd.md#4.1``).
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from contract.documents.public_fault import DATA_KEY
from stores.base import Changed, Deleted, DocumentsListed
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aggregator.public_faults.persisted_rows import Rows
    from service.clock import Instant
    from stores.base import Document, WatchEvent

MOST_DOCUMENTS = 50_000

FOR_MS = 60_000
"""Longer than no replica leads after a kill, with the second that a leader may not have
stored yet.
"""
_MOST_CHARACTERS = 16 << 20


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

    def observe(
        self, source: int, event: WatchEvent
    ) -> tuple[list[MessageOrigin], list[MessageOrigin]]:
        """Apply an event; return the documents with a new text and those that are gone."""
        match event:
            case DocumentsListed(documents):
                self._listed.add(source)
                named = {_origin(source, document): document for document in documents}
                gone = [one for one in self.texts if one.source == source and one not in named]
                for one in gone:
                    self._forget(one)
                new = [one for one in named if self._is_new(one, named[one])]
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
        for source in [one for one, has in by_source.items() if one < 0 and has == digest]:
            del by_source[source]
        by_source[origin.source] = digest
        self._keep(origin.place)

    def restore(self, documents: Mapping[str, tuple[str, ...]]) -> None:
        """Restore the digests of applied texts. Known texts stay; ``uncounted`` names the
        new ones.
        """
        self._counted.clear()
        for place, digests in documents.items():
            self._counted[place] = {-1 - number: one for number, one in enumerate(digests)}
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
        elif len(self.texts) >= MOST_DOCUMENTS:
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
        if len(self._listed) < self._sources:
            return
        for place, by_source in tuple(self._counted.items()):
            for source in [one for one in by_source if one < 0]:
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
        while self._size > _MOST_CHARACTERS or self._texts[0].at_ms + FOR_MS < now.steady_ms:
            self._size -= len(self._texts.popleft().text)

    def since(self, now: Instant) -> Iterator[tuple[MessageOrigin, str]]:
        """Yield the texts of the last ``FOR_MS``."""
        return ((o, text) for at_ms, o, text in self._texts if at_ms + FOR_MS >= now.steady_ms)


def _origin(source: int, document: Document) -> MessageOrigin:
    return MessageOrigin(source, f"{document.namespace}/{document.name}")


def digest_of(text: str | None) -> str:
    """Return a digest by which a text is recognized again."""
    content = "" if text is None else text
    return hashlib.blake2b(content.encode("utf-8", "replace"), digest_size=8).hexdigest()
