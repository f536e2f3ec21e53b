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

_tellings = msgspec.json.Decoder(HistoryBatch)
_heard = msgspec.json.Decoder(HistoryAck)


def encode_telling(telling: HistoryBatch) -> bytes:
    """Encode ``telling``; return the payload."""
    return msgspec.json.encode(telling)


def encode_heard(heard: HistoryAck) -> bytes:
    """Encode ``heard``; return the payload."""
    return msgspec.json.encode(heard)


def decode_telling(node: str, payload: bytes) -> HistoryBatch:
    """Decode a batch of ``node``. Raises ``DocumentError``, also for one about another node."""
    what = f"telling of {node}"
    telling = _decoded(what, node, _tellings, payload)
    if not 0 <= telling.after <= telling.upto <= _LARGEST:
        raise DocumentError(what, "$.upto", f"{telling.after} to {telling.upto} is no range")
    if not 0 <= telling.lost <= telling.upto - telling.after:
        raise DocumentError(what, "$.lost", f"{telling.lost} rows do not fit into the range")
    places = [(event.sequence, event.place) for event in telling.events]
    if any(not telling.after < sequence <= telling.upto for sequence, _ in places):
        raise DocumentError(what, "$.events", "one is not in the range that is told of")
    if any(before >= behind for before, behind in pairwise(places)):
        raise DocumentError(what, "$.events", "they are not in order")
    if any(abs(number) > _LARGEST for one in telling.events for number in (one.at_ms, one.place)):
        raise DocumentError(what, "$.events", "a number is too large")
    return telling


def decode_heard(node: str, payload: bytes) -> HistoryAck:
    """Decode an acknowledgement to ``node``. Raises ``DocumentError``."""
    what = f"heard of {node}"
    heard = _decoded(what, node, _heard, payload)
    if not 0 <= heard.sequence <= _LARGEST:
        raise DocumentError(what, "$.sequence", f"{heard.sequence} is no sequence")
    return heard


def _decoded(what: str, node: str, decoder: msgspec.json.Decoder[T], payload: bytes) -> T:
    if len(payload) > LARGEST_BYTES:
        raise DocumentError(what, "$", f"has {len(payload)} bytes, at most {LARGEST_BYTES} fit")
    try:
        said = decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(what, "$", f"cannot be read: {decode_text(error)}") from None
    if said.node != node:
        raise OtherNodeError(what, "$.node", f"is of {said.node[:_NAME_LENGTH]!r}")
    if not 0 < len(said.journal) <= _JOURNAL_LENGTH or not said.journal.isprintable():
        raise DocumentError(what, "$.journal", "names no journal")
    return said
