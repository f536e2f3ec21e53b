"""The data key ``NpuVigil``: what this project's agent reports beside upstream's data keys.

It is in a document that the agent owns anyway, outside its CheckCode; upstream's readers ignore
keys that they do not know (``clusterd#1.3``). It is absent when there is nothing to report,
so an absent key alone means nothing: the agent may be an earlier release.

Version 1 may get more members: a reader ignores those that it does not know. What a reader of
version 1 would misunderstand is another version, which it refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from contract.errors import DocumentError
from contract.validation_texts import decode_text

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

VIGIL_KEY = "NpuVigil"
VERSION = 1
MAX_BYTES = 16 * 1024
_MAX_WHY = 240
_FRAME_BYTES = 128
"""For everything but the list."""

# Before the year 10000, from which on Python has no dates.
Milliseconds = Annotated[int, Meta(ge=0, lt=253_402_300_800_000)]


class BlindSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source that gives its agent no answer since ``since_ms`` (epoch milliseconds).

    ``chip`` is the physical id of the chip that it is blind about; ``None``: the node as a whole.
    """

    source: Annotated[str, Meta(min_length=1, max_length=64)]
    since_ms: Milliseconds
    why: Annotated[str, Meta(max_length=1024)] = ""
    chip: Annotated[int, Meta(ge=0, lt=65536)] | None = None


class FaultAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent answers about ``code`` on the chip with this physical id.

    ``severity`` is the driver's, ``None`` where it gave none. ``device_fault``: whether elastic
    training counts it as a device fault (``docs/spec/consumers.md#5.3``).
    """

    chip: Annotated[int, Meta(ge=0, lt=65536)]
    code: Annotated[str, Meta(min_length=8, max_length=9)]
    severity: Annotated[str, Meta(pattern="^(suggestion|minor|major|critical)$")] | None = None
    device_fault: bool = False


class VigilRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the key has. ``left_out`` counts entries of ``blind`` for which there was no room.
    ``faults`` are about the device-info that has the key; what is not in it has the catalogue's
    answer.

    ``changed_at_ms`` is when ``blind`` changed last, by the node's clock (epoch milliseconds): of
    two documents of a node that have the key the later one counts. Earlier releases do not write
    it.
    """

    version: int
    blind: tuple[BlindSource, ...] = ()
    left_out: Annotated[int, Meta(ge=0)] = 0
    changed_at_ms: Milliseconds = 0
    faults: tuple[FaultAnswer, ...] = ()


class _KeyVersion(msgspec.Struct):
    version: int


_decode_version = msgspec.json.Decoder(_KeyVersion).decode
_decode = msgspec.json.Decoder(VigilRecord).decode


def encode_vigil_key(
    blind: Iterable[BlindSource], changed_at_ms: int = 0, faults: Iterable[FaultAnswer] = ()
) -> str | None:
    """Return the text of the key for these sources, in their order; ``None``: the key is to be
    absent.

    ``changed_at_ms`` (epoch milliseconds) is when they changed last; 0: not written. Long reasons
    are cut; entries that do not fit into ``MAX_BYTES`` are counted only, and ``faults`` have
    the room that is left.
    """
    entries, answers = tuple(map(_cut, blind)), tuple(faults)
    if not entries and not answers:
        return None
    named, room = _fitting(entries, MAX_BYTES - _FRAME_BYTES)
    left_out = len(entries) - len(named)
    answered, _ = _fitting(answers, room)
    record = VigilRecord(VERSION, named, left_out, changed_at_ms, answered)
    return msgspec.json.encode(record).decode()


def _fitting(entries: tuple[T, ...], room: int) -> tuple[tuple[T, ...], int]:
    """Return the first entries, as many as have room, and the room that is left."""
    for number, entry in enumerate(entries):
        # One more byte for the comma.
        size = len(msgspec.json.encode(entry)) + 1
        if size > room:
            return entries[:number], 0
        room -= size
    return entries, room


def _cut(entry: BlindSource) -> BlindSource:
    # A lone surrogate has no UTF-8: one reason of that kind would void the whole key.
    reason = entry.why.encode(errors="replace").decode()
    if len(reason) > _MAX_WHY:
        reason = f"{reason[: _MAX_WHY - 3]}..."
    return msgspec.structs.replace(entry, why=reason)


def decode_vigil_key(text: str, document: str) -> VigilRecord:
    """Read the key of ``document``. Raises ``DocumentError``."""
    data = text.encode(errors="replace")
    if len(data) > MAX_BYTES:
        message = f"has {len(data)} bytes, more than {MAX_BYTES}"
        raise DocumentError(document, VIGIL_KEY, message)
    version: Any = None
    try:
        # The version alone first: another one may have members of other types.
        version = _decode_version(data).version
        if version == VERSION:
            return _decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DocumentError(document, VIGIL_KEY, decode_text(error)) from None
    raise DocumentError(
        document, VIGIL_KEY, f"is of version {version}, this release reads version {VERSION}"
    )
