"""Episodes over an MQTT broker (docs/architecture.md, MQTT and Episodes).

Tellings are at QoS 1 and not retained: a broker that nobody listens to forgets them. What is heard
is retained, so that a node which comes back finds it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from contract.errors import DocumentError
from contract.topics import ALL_EVENTS, events_topic, heard_topic, node_of
from stores.base import Heard, Interrupted, Telling
from stores.mqtt_connection import Subscribed
from stores.tellings import decode_heard, decode_telling, encode_heard, encode_telling

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.mqtt_connection import Connection

_log = logging.getLogger(__name__)

T = TypeVar("T")

_BAD_NODES = 1000


class MqttChannel:
    """An ``EventChannel`` on the connection of a store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bad: set[str] = set()

    async def tell(self, telling: Telling) -> None:
        """See ``EventChannel``."""
        payload = encode_telling(telling)
        await self._connection.publish(events_topic(telling.node), payload, retain=False)

    async def heard(self, node: str) -> AsyncIterator[Heard | Interrupted]:
        """See ``EventChannel``."""
        async for message in self._connection.messages(heard_topic(node)):
            match message:
                case Interrupted():
                    yield message
                case Subscribed():
                    pass
                case _ if message.payload:
                    try:
                        yield self._good(node, decode_heard(node, message.payload))
                    except DocumentError as error:
                        self._refuse(node, error)

    async def tellings(self) -> AsyncIterator[Telling | Interrupted]:
        """See ``EventChannel``. What is no telling is said in the log once per node."""
        async for message in self._connection.messages(ALL_EVENTS):
            match message:
                case Interrupted():
                    yield message
                case Subscribed():
                    pass
                case _ if (node := node_of(message.topic)) is not None and message.payload:
                    try:
                        yield self._good(node, decode_telling(node, message.payload))
                    except DocumentError as error:
                        self._refuse(node, error)

    async def acknowledge(self, heard: Heard) -> None:
        """See ``EventChannel``."""
        await self._connection.publish(heard_topic(heard.node), encode_heard(heard), retain=True)

    def _good(self, node: str, value: T) -> T:
        self._bad.discard(node)
        return value

    def _refuse(self, node: str, error: DocumentError) -> None:
        if node not in self._bad and len(self._bad) < _BAD_NODES:
            self._bad.add(node)
            _log.warning("%s; it changes nothing", error)
