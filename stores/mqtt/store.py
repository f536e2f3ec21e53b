"""The store that is an MQTT broker: for servers that belong to no Kubernetes cluster.

Nothing of aiomqtt is imported before a store of this kind is opened.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from contract.errors import StoreForbidden
from contract.topics import document_topic
from stores.base import Store
from stores.document_names import check_names
from stores.json_documents import demand_version, digest, touched
from stores.mqtt.beats import BrokerHeartbeats, LastWill
from stores.mqtt.channel import MqttChannel
from stores.mqtt.connection import BrokerConnection
from stores.mqtt.documents import BrokerDocuments, encode, selected_topics
from stores.mqtt.limits import not_kept, packet_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.base import Beat, Document, LastWriter, Selection, WatchEvent
    from stores.mqtt.address import BrokerAddress
    from stores.mqtt.session import Session
    from stores.settings import Mqtt

_SHOWN_AFTER_SECONDS = (0.0, 0.3)
"""A document that is not shown is published once more: brokers may store later than they answer."""


class MqttStore(Store):
    """Documents as retained messages, all over one connection.

    With ``node`` the broker is left a last will: that the agent of this node is gone. ``to_be`` is
    the beat that it will make.
    """

    absence_is_deletion = False
    """A broker without persistence comes back empty."""
    missed_changes = None
    """A broker reports all changes."""
    objects = None
    """A broker has neither Events nor Nodes."""
    cluster = None
    """A broker knows neither Nodes nor pods."""
    leader_lease = None
    """A broker cannot compare versions, so it cannot elect a leader."""
    leader_lock = None
    mark = None
    """A broker has none."""

    def __init__(
        self,
        url: str,
        address: BrokerAddress,
        mqtt: Mqtt,
        node: str | None,
        to_be: Beat | None = None,
    ) -> None:
        self.url = url
        will = None if node is None else LastWill(node, to_be)
        self._connection = BrokerConnection(
            address, mqtt, node, (lambda: None) if will is None else will.of_next_connection
        )
        self._documents = BrokerDocuments(self._connection, shows_flags=mqtt.protocol == "5")
        self._heartbeats = BrokerHeartbeats(self._connection, will)
        self.refusals = self._heartbeats.refusals
        self.channel = MqttChannel(self._connection, self.refusals)
        self._writing: dict[str, asyncio.Lock] = {}
        self._names_refusals = mqtt.protocol == "5"
        self._writable: set[str] = set()
        self._proven = 0
        """The largest document that was read back; of this session only."""
        self._proven_in: Session | None = None

    @property
    @override
    def largest_document(self) -> int | None:
        return self._connection.learned.largest_document

    @override
    async def get(self, namespace: str, name: str) -> Document | None:
        check_names(namespace, name)
        return await self._get(document_topic(namespace, name))

    @override
    async def list(self, selection: Selection) -> tuple[Document, ...]:
        filters = selected_topics(selection)
        documents = await self._documents.read(filters)
        return tuple(document for document in documents.values() if selection.fits(document.labels))

    @override
    async def put(self, document: Document, *, expected: str | None = None) -> str:
        """See ``Store``. A broker compares nothing: between the look and the write is a moment."""
        check_names(document.namespace, document.name)
        topic = document_topic(document.namespace, document.name)
        payload = encode(document)
        async with self._alone(topic):
            if expected is not None:
                demand_version(topic, await self._get(topic), expected)
            version = digest(payload)
            await self._publish(topic, payload, version)
        return version

    @override
    async def put_shown(self, document: Document, *, expected: str | None = None) -> Document:
        """See ``Store``. A broker keeps what it is sent."""
        version = await self.put(document, expected=expected)
        return msgspec.structs.replace(document, version=version)

    @override
    async def delete(self, namespace: str, name: str, *, expected: str | None = None) -> None:
        check_names(namespace, name)
        topic = document_topic(namespace, name)
        async with self._alone(topic):
            if expected is not None and (current := await self._get(topic)) is not None:
                demand_version(topic, current, expected)
            await self._connection.publish(topic, b"", retain=True)

    @override
    def watch(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        """See ``Store``. Of changes that come faster than they are taken the last one is shown."""
        return self._documents.follow(selection)

    @override
    def usage(self, node: str) -> None:
        """See ``Store``. A broker knows nothing of pods."""
        return

    @override
    async def dry_run_beat(self, node: str) -> None:
        """See ``Store``. Nothing is in the way of a beat."""

    @override
    async def beat(self, beat: Beat) -> None:
        await self._heartbeats.beat(beat)

    @override
    async def beats(self, node: str | None = None) -> tuple[Beat, ...]:
        return await self._heartbeats.beats(node)

    @override
    async def forget_beat(self, node: str) -> None:
        await self._heartbeats.forget(node)

    @override
    async def touch(self, namespace: str, name: str, *, expected: str | None = None) -> None:
        del expected  # a broker compares nothing
        check_names(namespace, name)
        topic = document_topic(namespace, name)
        async with self._alone(topic):
            document = await self._get(topic)
            if document is not None:
                await self._connection.publish(topic, encode(touched(document)), retain=True)

    @override
    async def writer(self, namespace: str, name: str) -> LastWriter | None:
        """See ``Store``. A broker does not name the writer."""
        check_names(namespace, name)
        return None

    @override
    async def other_writer(self, namespace: str, name: str) -> LastWriter | None:
        """See ``Store``. A message has no writer's name."""
        check_names(namespace, name)
        return None

    @override
    async def close(self) -> None:
        await self._heartbeats.close()
        await self._connection.close()

    async def _get(self, topic: str) -> Document | None:
        return (await self._documents.read((topic,))).get(topic)

    def _alone(self, topic: str) -> asyncio.Lock:
        """Return the lock that keeps other writes of this process to the same document out."""
        return self._writing.setdefault(topic, asyncio.Lock())

    async def _publish(self, topic: str, payload: bytes, version: str) -> None:
        """Publish a document, and read it back where the broker may not keep it.

        Brokers acknowledge what their access rules do not let this client write (MQTT 3.1.1), and
        what is too large for their retained messages. So the first write of a session is read back,
        each that is larger than all before, and with 3.1.1 the first one of each document.
        """
        session = await self._connection.session()
        if session is not self._proven_in:
            # It may be another broker by now, or one with other limits.
            self._proven_in, self._proven = session, 0
        is_new = not self._names_refusals and topic not in self._writable
        if not is_new and len(payload) <= self._proven:
            await session.publish(topic, payload, retain=True)
            return
        # As with MQTT 5; with 3.1.1 a packet is one byte shorter (``packet_bytes``).
        learned, size = self._connection.learned, packet_bytes(topic, payload, is_v5=True)
        others = set()
        for pause_seconds in _SHOWN_AFTER_SECONDS:
            await asyncio.sleep(pause_seconds)
            is_kept = await session.publish_shown(topic, payload)
            shown = None if is_kept else await self._get(topic)
            if is_kept or (shown is not None and shown.version == version):
                # Only now: a subscription has shown that the right to write exists, an
                # acknowledgement does not.
                self._writable.add(topic)
                self._proven = max(self._proven, len(payload))
                self._connection.largest = max(self._connection.largest, len(payload))
                learned.record_kept(size, is_kept=True)
                return
            others.add("" if shown is None else shown.version)
        if len(others) == len(_SHOWN_AFTER_SECONDS):
            return  # Another program writes it, too; the watch of the document shows that.
        if is_new:
            raise StoreForbidden(
                f"publication of {topic}: acknowledged and not there. Check that the broker's "
                "access rules let this client write and read it. Check that the broker keeps "
                f"retained messages (retain_available true) of {len(payload)} bytes"
            )
        learned.record_kept(size, is_kept=False)
        raise not_kept(self._connection.address, topic, size)
