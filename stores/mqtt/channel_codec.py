"""Batches of history as bytes: what a broker carries between nodes and aggregator. Pure.

What cannot be a batch is refused as a whole, so that its receiver need not check it again.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeVar

import msgspec

from contract.errors import DocumentError, OtherNodeError
from contract.validation_texts import decode_text
from stores.base import HistoryAck, HistoryBatch

LARGEST_BYTES = 4 << 20
"""No batch is larger: a node sends a journal's row alone rather than more than this."""

T = TypeVar("T", HistoryBatch, HistoryAck)

_LARGEST = (1 << 63) - 1
_NAME_LENGTH = 253
_JOURNAL_LENGTH = 64

_batch_decoder = msgspec.json.Decoder(HistoryBatch)
_ack_decoder = msgspec.json.Decoder(HistoryAck)


def decode_batch(node: str, payload: bytes) -> HistoryBatch:
    """Decode a batch of ``node``. Raises ``DocumentError``, also for one about another node."""
    what = f"history batch of {node}"
    batch = _decoded(what, node, _batch_decoder, payload)
    if not 0 <= batch.after <= batch.upto <= _LARGEST:
        raise DocumentError(what, "$.upto", f"{batch.after} to {batch.upto} is no range")
    if not 0 <= batch.lost <= batch.upto - batch.after:
        raise DocumentError(what, "$.lost", f"{batch.lost} is more than the range has")
    places = [(event.sequence, event.place) for event in batch.events]
    if any(not batch.after < sequence <= batch.upto for sequence, _ in places):
        raise DocumentError(what, "$.events", "one is not in the range of the batch")
    if any(before >= behind for before, behind in pairwise(places)):
        raise DocumentError(what, "$.events", "they are not in order")
    if any(abs(number) > _LARGEST for one in batch.events for number in (one.at_ms, one.place)):
        raise DocumentError(what, "$.events", "a number is too large")
    return batch


def decode_ack(node: str, payload: bytes) -> HistoryAck:
    """Decode an acknowledgement to ``node``. Raises ``DocumentError``."""
    what = f"history acknowledgement to {node}"
    ack = _decoded(what, node, _ack_decoder, payload)
    if not 0 <= ack.sequence <= _LARGEST:
        raise DocumentError(what, "$.sequence", f"{ack.sequence} is no sequence")
    return ack


def _decoded(what: str, node: str, decoder: msgspec.json.Decoder[T], payload: bytes) -> T:
    if len(payload) > LARGEST_BYTES:
        raise DocumentError(what, "$", f"has {len(payload)} bytes, at most {LARGEST_BYTES} fit")
    try:
        decoded = decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(what, "$", f"cannot be read: {decode_text(error)}") from None
    if decoded.node != node:
        raise OtherNodeError(what, "$.node", f"is of {decoded.node[:_NAME_LENGTH]!r}")
    if not 0 < len(decoded.journal) <= _JOURNAL_LENGTH or not decoded.journal.isprintable():
        raise DocumentError(what, "$.journal", "names no journal")
    return decoded
