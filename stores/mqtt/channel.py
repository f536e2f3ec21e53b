"""Episodes over an MQTT broker (docs/rooms/stores.md, MQTT and Episodes).

Batches are at QoS 1 and not retained: a broker without a subscriber drops them. Acknowledgements
are retained, so that a node which comes back finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec
from typing_extensions import override

from contract.errors import DocumentError, OtherNodeError
from contract.refusal import Reason
from contract.topics import ALL_EVENTS, ack_topic, events_topic, node_of
from stores.base import EventChannel
from stores.interruption import Interrupted
from stores.mqtt.channel_codec import decode_ack, decode_batch
from stores.mqtt.connection import Received

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from stores.base import HistoryAck, HistoryBatch
    from stores.mqtt.connection import BrokerConnection
    from stores.refusals import Refusals

T = TypeVar("T")


class MqttChannel(EventChannel):
    """An ``EventChannel`` on the connection of a store."""

    def __init__(self, connection: BrokerConnection, refusals: Refusals) -> None:
        self._connection = connection
        self._refusals = refusals

    @override
    async def send(self, batch: HistoryBatch) -> None:
        payload = msgspec.json.encode(batch)
        await self._connection.publish(events_topic(batch.node), payload, retain=False)

    @override
    def acks(self, node: str) -> AsyncIterator[HistoryAck | Interrupted]:
        return self._follow(ack_topic(node), decode_ack)

    @override
    def batches(self) -> AsyncIterator[HistoryBatch | Interrupted]:
        """See ``EventChannel``. What is no batch is named in the log once per node."""
        return self._follow(ALL_EVENTS, decode_batch)

    @override
    async def acknowledge(self, acks: HistoryAck) -> None:
        payload = msgspec.json.encode(acks)
        await self._connection.publish(ack_topic(acks.node), payload, retain=True)

    async def _follow(
        self, topics: str, decode: Callable[[str, bytes], T]
    ) -> AsyncIterator[T | Interrupted]:
        async for message in self._connection.messages(topics):
            if isinstance(message, Interrupted):
                yield message
            if not isinstance(message, Received) or not message.payload:
                continue
            node = node_of(message.topic)
            if node is None:
                continue
            try:
                value = decode(node, message.payload)
            except DocumentError as error:
                is_foreign = isinstance(error, OtherNodeError)
                reason = Reason.OTHER_NODE if is_foreign else Reason.UNREADABLE
                self._refusals.refuse(message.topic, reason, f"{error}; it changes nothing")
            else:
                self._refusals.accept(message.topic)
                yield value
