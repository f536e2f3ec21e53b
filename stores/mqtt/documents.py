"""Documents as retained messages: their content, and watches of those that are selected."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from contract.errors import StoreError, StoreRefused, StoreUnavailable
from contract.names import MAX_NODES
from contract.plural import plural
from contract.topics import document_filters, document_place
from pacing.backoff import Backoff
from stores import json_documents
from stores.base import Changed, Deleted, Document, DocumentsListed, malformed_document
from stores.document_names import is_name, is_namespace
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from stores.base import Selection, WatchEvent
    from stores.mqtt.connection import BrokerConnection
    from stores.mqtt.session import Received

_log = logging.getLogger(__name__)

# The largest of ours has 1 MB (cluster-info); this bounds what another writer can cause.
MAX_BYTES = 16 * 1024 * 1024
# Each node has at most two documents in a namespace.
_MAX_DOCUMENTS = 2 * MAX_NODES
_MAX_COMPLAINTS = 1000


def encode(document: Document) -> bytes:
    """Return the message that holds the document. Raises ``StoreRefused``."""
    payload = json_documents.encode(document)
    if len(payload) > MAX_BYTES:
        place = f"{document.namespace}/{document.name}"
        raise StoreRefused(f"{place} has {len(payload)} bytes, more than {MAX_BYTES}")
    return payload


def decode(topic: str, payload: bytes) -> Document:
    """Return the document in a message. Raises ``ValueError`` with why it is none."""
    place = document_place(topic)
    if place is None or not is_namespace(place[0]) or not is_name(place[1]):
        raise ValueError("no document has this topic")
    if len(payload) > MAX_BYTES:
        raise ValueError(f"it has {len(payload)} bytes, more than {MAX_BYTES}")
    return json_documents.decode(place, payload, json_documents.digest(payload))


class MalformedTopics:
    """Logs of each topic once what is wrong with it, and again when something else is."""

    def __init__(self) -> None:
        self._logged: dict[str, str] = {}

    def log_once(self, topic: str, problem: str) -> None:
        """Write it to the log, unless it was logged before."""
        if self._logged.get(topic) == problem:
            return
        # Every client that may write can make up topics; the log and this memory have an end.
        if topic in self._logged or len(self._logged) < _MAX_COMPLAINTS:
            self._logged[topic] = problem
            _log.warning("%s is left out: %s", topic, problem)

    def forget(self, topic: str) -> None:
        """Forget the problem of a topic: its message is good now."""
        self._logged.pop(topic, None)


class Latest:
    """The newest message of each topic since the last ``pop_all``.

    ``passed_on`` is called with the topic of a document that the broker does not keep.
    """

    def __init__(self, passed_on: Callable[[str], None]) -> None:
        self._passed_on = passed_on
        self._waiting: dict[str, bytes] = {}
        self._more = asyncio.Event()
        self._end = ""

    def receive(self, message: Received) -> None:
        """Replace the message of its topic."""
        if self._end:
            return
        if len(self._waiting) >= _MAX_DOCUMENTS and message.topic not in self._waiting:
            dropped = len(self._waiting) + 1
            self.end(f"{plural(dropped, 'document')} dropped: more than {_MAX_DOCUMENTS} wait")
            return
        self._waiting[message.topic] = message.payload
        self._more.set()
        if not message.is_retained and message.payload:
            self._passed_on(message.topic)

    def end(self, reason: str) -> None:
        """End it: nothing more comes."""
        self._waiting = {}
        self._end = self._end or reason
        self._more.set()

    def pop_all(self) -> dict[str, bytes]:
        """Return and remove all messages, by topic; ``StoreUnavailable`` when no more will come."""
        if self._end:
            raise StoreUnavailable(self._end)
        taken, self._waiting = self._waiting, {}
        self._more.clear()
        return taken

    async def wait(self) -> dict[str, bytes]:
        """Wait for the next messages; return all there are, by topic."""
        await self._more.wait()
        return self.pop_all()


def selected_topics(selection: Selection) -> tuple[str, ...]:
    """Return topic filters that together match what is selected, and maybe more."""
    return document_filters(
        selection.namespace,
        selection.name,
        selection.label,
        listed=selection.has_label is None,
    )


class BrokerDocuments:
    """Reads and follows the documents of a broker."""

    def __init__(self, connection: BrokerConnection, *, shows_flags: bool) -> None:
        """``shows_flags``: messages show whether they were to be retained (MQTT 5)."""
        self._connection = connection
        self._shows_flags = shows_flags
        self._has_named_flags = False
        self._malformed = MalformedTopics()

    async def read(self, topics: tuple[str, ...]) -> dict[str, Document]:
        """Return the documents retained below these filters, by topic."""
        latest = Latest(self._passed_on)
        session = await self._connection.session()
        async with session.subscribed(topics, latest):
            for topic in topics:
                await session.list_now(topic)
            return self._read_all(latest.pop_all(), {})

    async def follow(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        """Follow the selected documents for ever, as ``Store.watch`` describes."""
        filters = selected_topics(selection)
        current: dict[str, Document] = {}
        backoff = Backoff()
        reason = ""
        while True:
            try:
                # After an error the next connection is awaited, or the
                # same error would be raised at once.
                session = await self._connection.session(waits=bool(reason))
                latest = Latest(self._passed_on)
                async with session.subscribed(filters, latest):
                    for topic_filter in filters:
                        await session.list_now(topic_filter)
                    current = self._read_all(
                        latest.pop_all(), {} if selection.owned else current, selection
                    )
                    backoff.reset()
                    reason = ""
                    selected = (
                        document for document in current.values() if selection.fits(document.labels)
                    )
                    yield DocumentsListed(tuple(selected))
                    while True:
                        for topic, payload in (await latest.wait()).items():
                            event = self._event(topic, payload, current, selection)
                            if event is not None:
                                yield event
            except StoreError as error:
                if str(error) != reason:
                    reason = str(error)
                    yield Interrupted(reason)
            await asyncio.sleep(backoff.next_seconds())

    def _passed_on(self, topic: str) -> None:
        """Log once that a document has no retain flag: later clients do not get it."""
        if self._shows_flags and not self._has_named_flags:
            self._has_named_flags = True
            _log.warning(
                "%s: documents as %s come without the retain flag, so later clients do not get "
                "them. A bridge or their writer drops it (mosquitto: set "
                "bridge_outgoing_retain true)",
                self._connection.address,
                topic,
            )

    def _read_all(
        self,
        payloads: dict[str, bytes],
        current: dict[str, Document],
        selection: Selection | None = None,
    ) -> dict[str, Document]:
        documents = {}
        for topic, payload in payloads.items():
            document = self._read(topic, payload, current.get(topic), selection)
            if document is not None:
                documents[topic] = document
        return documents

    def _read(
        self, topic: str, payload: bytes, current: Document | None, selection: Selection | None
    ) -> Document | None:
        """Return the document in a message; where it is malformed, the known one or the problem."""
        if not payload:
            self._malformed.forget(topic)
            return None
        try:
            document = decode(topic, payload)
        except ValueError as error:
            place = document_place(topic)
            if selection is not None and selection.shows_malformed and place is not None:
                return malformed_document(
                    place, str(error), json_documents.digest(payload), selection
                )
            self._malformed.log_once(topic, f"it is not a valid document: {error}")
            return current
        self._malformed.forget(topic)
        return document

    def _event(
        self, topic: str, payload: bytes, current: dict[str, Document], selection: Selection
    ) -> Changed | Deleted | None:
        before = current.get(topic)
        after = self._read(topic, payload, None if selection.owned else before, selection)
        if after is None:
            current.pop(topic, None)
        else:
            current[topic] = after
        was_selected = before is not None and selection.fits(before.labels)
        if after is not None and selection.fits(after.labels):
            # Any read of the same filter makes the broker send its
            # retained messages to this watch, too.
            if was_selected and before is not None and before.version == after.version:
                return None
            return Changed(after)
        if was_selected and before is not None:
            return Deleted(before.namespace, before.name)
        place = document_place(topic)
        if selection.owned and after is None and payload and place is not None:
            # It was spoilt, written anew and malformed again between two reads.
            return Deleted(*place)
        return None
