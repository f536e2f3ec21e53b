"""The key ``writes`` of a heartbeat: which documents an agent owns, and its last write of each.

The number of a write grows with each write of its document, also after a restart of the agent. It
is the time in seconds that the document has in it anyway: ``UpdateTime`` of device-info,
``updateTime`` of node-info (in generations that have none, the heartbeat in it), ``timestamp`` of
a public fault. A negative number means that there must be no document, since the write of that
number. So a reader can compare it with what it has read (``docs/decisions/017``). 0 is for none:
the document is the agent's, and no write of it is to be compared. ``whole``: each document
of the agent is named: what is not named is none of its (``docs/decisions/021``).

Version 1 may get more members: a reader ignores those that it does not know. What a reader of
version 1 would misunderstand is another version, which it refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from contract.validation_texts import decode_text

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
MAX_BYTES = 144
"""Of the text. With the longest name that the key has in a store, 160."""
KINDS = ("device-info", "node-info", "dpc-fault", "dtfs-fault")
"""The documents that an agent can own, as ``documents`` of its configuration names them."""
_LATEST = 253_402_300_800
"""The year 10000."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class NoWrites(ValueError):
    """A text that is not a valid key ``writes``; the message gives the reason."""


def encode_writes(numbers: Mapping[str, int], *, whole: bool = False) -> str:
    """Return the text of the key for the number of each document, empty without documents."""
    if not numbers and not whole:
        return ""
    more = {"whole": True} if whole else {}
    return msgspec.json.encode({"version": VERSION} | dict(numbers) | more).decode()


def text_found(value: object) -> str:
    """Return what a store has in place of the text as a text, to be judged like one."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def decode_writes(text: str) -> dict[str, int]:
    """Return the number of each document that is known here and has one. Raises ``NoWrites``."""
    return {kind: number for kind, number in _named(text)[0].items() if number}


def decode_owned(text: str) -> frozenset[str] | None:
    """Return the documents of the agent; ``None`` where not all are named. Raises ``NoWrites``."""
    numbers, is_whole = _named(text)
    return frozenset(numbers) if is_whole else None


def _named(text: str) -> tuple[dict[str, int], bool]:
    """Return the number of each document, and whether all documents of the agent are named."""
    if len(text) > MAX_BYTES:
        raise NoWrites(f"it has {len(text)} characters, more than {MAX_BYTES}")
    try:
        decoded = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise NoWrites(f"it is not a JSON object: {decode_text(error)}") from None
    version = decoded.get("version")
    if version != VERSION:
        raise NoWrites(f"it is of version {version!r}, this release reads version {VERSION}")
    numbers = {kind: decoded[kind] for kind in KINDS if kind in decoded}
    for kind, number in numbers.items():
        # ``bool`` is an ``int`` in Python, and no number of a write.
        if type(number) is not int or not -_LATEST < number < _LATEST:
            raise NoWrites(f"the number of {kind} is {number!r}")
    # Only ``true`` counts: what is not named is then none of the agent's (decision 21).
    return numbers, decoded.get("whole") is True
