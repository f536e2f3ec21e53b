"""Episodes over an MQTT broker (docs/rooms/stores.md, MQTT and Episodes).

Batches are at QoS 1 and not retained: a broker without a subscriber drops them. Acknowledgements
are retained, so that a node which comes back finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from contract.errors import DocumentError, OtherNodeError
from contract.refusal import Reason
from contract.topics import ALL_EVENTS, ack_topic, events_topic, node_of
from stores.interruption import Interrupted
from stores.mqtt.channel_codec import decode_ack, decode_batch, encode_ack, encode_batch
from stores.mqtt.connection import Subscribed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.base import HistoryAck, HistoryBatch
    from stores.mqtt.connection import BrokerConnection
    from stores.refusals import Refusals

T = TypeVar("T")


class MqttChannel:
    """An ``EventChannel`` on the connection of a store."""

    def __init__(self, connection: BrokerConnection, refusals: Refusals) -> None:
        self._connection = connection
        self._refusals = refusals

    async def send(self, batch: HistoryBatch) -> None:
        """See ``EventChannel``."""
        payload = encode_batch(batch)
        await self._connection.publish(events_topic(batch.node), payload, retain=False)

    async def acks(self, node: str) -> AsyncIterator[HistoryAck | Interrupted]:
        """See ``EventChannel``."""
        async for message in self._connection.messages(ack_topic(node)):
            match message:
                case Interrupted():
                    yield message
                case Subscribed():
                    pass
                case _ if message.payload:
                    try:
                        yield self._good(message.topic, decode_ack(node, message.payload))
                    except DocumentError as error:
                        self._refuse(message.topic, error)

    async def batches(self) -> AsyncIterator[HistoryBatch | Interrupted]:
        """See ``EventChannel``. What is no batch is named in the log once per node."""
        async for message in self._connection.messages(ALL_EVENTS):
            match message:
                case Interrupted():
                    yield message
                case Subscribed():
                    pass
                case _ if (node := node_of(message.topic)) is not None and message.payload:
                    try:
                        yield self._good(message.topic, decode_batch(node, message.payload))
                    except DocumentError as error:
                        self._refuse(message.topic, error)

    async def acknowledge(self, acks: HistoryAck) -> None:
        """See ``EventChannel``."""
        await self._connection.publish(ack_topic(acks.node), encode_ack(acks), retain=True)

    def _good(self, topic: str, value: T) -> T:
        self._refusals.accept(topic)
        return value

    def _refuse(self, topic: str, error: DocumentError) -> None:
        is_foreign = isinstance(error, OtherNodeError)
        reason = Reason.OTHER_NODE if is_foreign else Reason.UNREADABLE
        self._refusals.refuse(topic, reason, f"{error}; it changes nothing")
