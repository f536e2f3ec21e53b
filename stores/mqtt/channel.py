"""Episodes over an MQTT broker, and their form there (docs/packages/stores.md, MQTT and Episodes).

Batches are at QoS 1 and not retained: a broker without a subscriber drops them. Acknowledgements
are retained, so that a node which comes back finds it. What cannot be a batch is refused as a
whole, so that its receiver need not check it again.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import msgspec
from typing_extensions import override

from contract.errors import DocumentError, OtherNodeError
from contract.refusal import Reason
from contract.topics import ALL_EVENTS, ack_topic, events_topic, node_of
from contract.validation_texts import decode_text
from stores.base import EventChannel, HistoryAck, HistoryBatch
from stores.interruption import Interrupted
from stores.mqtt.session import Received

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from stores.mqtt.connection import BrokerConnection
    from stores.refusals import Refusals

MAX_BYTES = 4 << 20
"""No batch is larger: a node sends a journal's row alone rather than more than this."""

T = TypeVar("T", HistoryBatch, HistoryAck)

# The aggregator keeps these numbers in SQLite, whose integers have 64 bits with a sign.
_MAX_INT64 = (1 << 63) - 1
_NAME_LENGTH = 253
_JOURNAL_LENGTH = 64

_batch_decoder = msgspec.json.Decoder(HistoryBatch)
_ack_decoder = msgspec.json.Decoder(HistoryAck)


def decode_batch(node: str, payload: bytes) -> HistoryBatch:
    """Decode a batch of ``node``. Raises ``DocumentError``, also for one about another node."""
    message = f"history batch of {node}"
    batch = _decoded(message, node, _batch_decoder, payload)
    if not 0 <= batch.after <= batch.upto <= _MAX_INT64:
        raise DocumentError(
            message, "$.upto", f"{batch.after} to {batch.upto} is not a valid range"
        )
    if not 0 <= batch.lost <= batch.upto - batch.after:
        raise DocumentError(message, "$.lost", f"{batch.lost} is more than the range has")
    places = [(event.sequence, event.place) for event in batch.events]
    if any(not batch.after < sequence <= batch.upto for sequence, _ in places):
        raise DocumentError(message, "$.events", "one is not in the range of the batch")
    if any(before >= behind for before, behind in pairwise(places)):
        raise DocumentError(message, "$.events", "they are not in order")
    if any(
        abs(number) > _MAX_INT64 for event in batch.events for number in (event.at_ms, event.place)
    ):
        raise DocumentError(message, "$.events", "a number is too large")
    return batch


def decode_ack(node: str, payload: bytes) -> HistoryAck:
    """Decode an acknowledgement to ``node``. Raises ``DocumentError``."""
    message = f"history acknowledgement to {node}"
    ack = _decoded(message, node, _ack_decoder, payload)
    if not 0 <= ack.sequence <= _MAX_INT64:
        raise DocumentError(message, "$.sequence", f"{ack.sequence} is not a valid sequence")
    return ack


def _decoded(message: str, node: str, decoder: msgspec.json.Decoder[T], payload: bytes) -> T:
    if len(payload) > MAX_BYTES:
        raise DocumentError(message, "$", f"has {len(payload)} bytes, at most {MAX_BYTES} fit")
    try:
        decoded = decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(message, "$", f"cannot be read: {decode_text(error)}") from None
    if decoded.node != node:
        raise OtherNodeError(message, "$.node", f"is of {decoded.node[:_NAME_LENGTH]!r}")
    if not 0 < len(decoded.journal) <= _JOURNAL_LENGTH or not decoded.journal.isprintable():
        raise DocumentError(message, "$.journal", "names no journal")
    return decoded


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
        """See ``EventChannel``. What is not a valid batch is named in the log once per node."""
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
            # An empty message: a retained acknowledgement was deleted.
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
