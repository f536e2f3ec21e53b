"""The annotation of device-info by which an operator isolates chips, and which names who did.

``vigil isolate`` adds the name of a chip to ``ManuallySeparateNPU`` and a request for it to the
annotation. An agent that takes it keeps both until the chip is released. Whoever may write the
document may state any name: the name is as that person stated it. Annotations are in no data
key, so neither readers nor the CheckCode see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from contract.documents.separation import chip_of

if TYPE_CHECKING:
    from collections.abc import Mapping

ISOLATION_ANNOTATION = "npu-vigil/isolated"
MAX_BY_CHARACTERS, MAX_REASON_CHARACTERS = 128, 256
_MAX_CHARACTERS = 64 * 1024


class IsolationRequest(msgspec.Struct, frozen=True):
    """Who isolates a chip, as stated, when (epoch milliseconds) and why."""

    by: Annotated[str, Meta(min_length=1, max_length=MAX_BY_CHARACTERS)]
    # Before the year 10000, from which on Python has no dates.
    at_ms: Annotated[int, Meta(ge=0, lt=253_402_300_800_000)]
    reason: Annotated[str, Meta(min_length=1, max_length=MAX_REASON_CHARACTERS)]


_decode_all = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder(IsolationRequest).decode


def encode_requests(requests: Mapping[str, IsolationRequest]) -> str:
    """Return the text of the annotation for the requests by device name."""
    return msgspec.json.encode(dict(sorted(requests.items()))).decode()


def read_requests(annotations: Mapping[str, str]) -> dict[int, IsolationRequest]:
    """Return the requests by physical id of the chip; what cannot be read is left out."""
    text = annotations.get(ISOLATION_ANNOTATION, "")
    if not text or len(text) > _MAX_CHARACTERS:
        return {}
    try:
        everything = _decode_all(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    requests = {}
    for name, raw in everything.items():
        chip = chip_of(name)
        try:
            # One by one: a request that cannot be read voids no other.
            request = _decode(raw)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        # A terminal shows these.
        if chip is not None and request.by.isprintable() and request.reason.isprintable():
            requests[chip] = request
    return requests
