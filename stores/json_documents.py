"""Documents as JSON, as a broker and a directory keep them: labels, data, annotations if any."""

from __future__ import annotations

import hashlib

import msgspec

from contract.errors import StoreConflict, StoreRefused
from contract.validation_texts import decode_text
from stores.base import Document
from stores.touch import TOUCHED, touched_now


class _Content(msgspec.Struct, omit_defaults=True):
    labels: dict[str, str]
    data: dict[str, str]
    annotations: dict[str, str] = {}


_decoder = msgspec.json.Decoder(_Content)


def encode(document: Document) -> bytes:
    """Return the JSON text of the document. Raises ``StoreRefused``."""
    content = _Content(document.labels, document.data, document.annotations)
    try:
        return msgspec.json.encode(content)
    # UTF-8 has no lone surrogates, which names of files in Python may contain.
    except (UnicodeEncodeError, TypeError) as error:
        place = f"{document.namespace}/{document.name}"
        raise StoreRefused(f"{place} cannot be written as JSON: {error}") from None


def decode(place: tuple[str, str], text: bytes, version: str) -> Document:
    """Return the document in a JSON text. Raises ``ValueError`` with why it is none."""
    try:
        document = _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(decode_text(error)) from None
    return Document(*place, document.data, document.labels, document.annotations, version)


def digest(content: bytes) -> str:
    """Return a digest of the content of a document."""
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def touched(document: Document) -> Document:
    """Return the document with the annotation of a touch."""
    annotations = document.annotations | {TOUCHED: touched_now()}
    return msgspec.structs.replace(document, annotations=annotations)


def demand_version(place: object, current: Document | None, expected: str) -> None:
    """Raise ``StoreConflict`` where ``current``, which is at ``place``, has another version.

    An empty ``expected`` demands that there is nothing.
    """
    version = "" if current is None else current.version
    if version != expected:
        wanted = f"version {expected}" if expected else "nothing"
        there = f"version {version}" if version else "nothing"
        raise StoreConflict(f"{place}: expected {wanted}, found {there}")
