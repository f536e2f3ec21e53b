"""A ConfigMap in Kubernetes' protobuf encoding, for writes.

A large document costs the API server a third of the time as protobuf that it costs as JSON: 430 KB
are stored in 10 ms instead of 30. Only the few fields that a write sets are known here. Field
numbers: ``k8s.io/api/core/v1/generated.proto``, ``k8s.io/apimachinery`` ``meta/v1`` and
``runtime`` ``generated.proto``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stores.base import Document, ObjectOwner

# The prefix by which API servers recognise this encoding; a ``runtime.Unknown`` follows.
_MAGIC = b"k8s\x00"
_LENGTH_DELIMITED = 2

_UNKNOWN_TYPE, _UNKNOWN_RAW = 1, 2
_TYPE_VERSION, _TYPE_KIND = 1, 2
_CONFIG_MAP_METADATA, _CONFIG_MAP_DATA = 1, 2
_NAME, _NAMESPACE, _RESOURCE_VERSION, _LABELS, _ANNOTATIONS = 1, 3, 6, 11, 12
_OWNERS, _FINALIZERS = 13, 14
_OWNER_KIND, _OWNER_NAME, _OWNER_UID, _OWNER_VERSION = 1, 3, 4, 5
_OWNER_CONTROLLER, _OWNER_BLOCKS = 6, 7
_KEY, _VALUE = 1, 2


def config_map(document: Document, version: str | None) -> bytes:
    """Return the body of a create or replace; ``version`` makes it conditional.

    Raises ``UnicodeEncodeError`` for text that is not Unicode.
    """
    kind = _text(_TYPE_VERSION, "v1") + _text(_TYPE_KIND, "ConfigMap")
    metadata = b"".join(
        (
            _text(_NAME, document.name),
            _text(_NAMESPACE, document.namespace),
            _text(_RESOURCE_VERSION, version) if version else b"",
            *_map(_LABELS, document.labels),
            *_map(_ANNOTATIONS, document.annotations),
            *(_field(_OWNERS, _owner(owner)) for owner in document.owners),
            *(_text(_FINALIZERS, finalizer) for finalizer in document.finalizers),
        )
    )
    raw = b"".join((_field(_CONFIG_MAP_METADATA, metadata), *_map(_CONFIG_MAP_DATA, document.data)))
    return _MAGIC + _field(_UNKNOWN_TYPE, kind) + _field(_UNKNOWN_RAW, raw)


def _map(number: int, items: Mapping[str, str]) -> Iterator[bytes]:
    for key, value in items.items():
        yield _field(number, _text(_KEY, key) + _text(_VALUE, value))


def _owner(owner: ObjectOwner) -> bytes:
    flags = ((_OWNER_CONTROLLER, owner.controller), (_OWNER_BLOCKS, owner.block_owner_deletion))
    return b"".join(
        (
            _text(_OWNER_KIND, owner.kind),
            _text(_OWNER_NAME, owner.name),
            _text(_OWNER_UID, owner.uid),
            _text(_OWNER_VERSION, owner.api_version),
            *(_varint(number << 3) + _varint(flag) for number, flag in flags if flag is not None),
        )
    )


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
