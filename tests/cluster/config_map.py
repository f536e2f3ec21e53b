"""A ConfigMap out of Kubernetes' protobuf encoding, as an API server decodes it.

Field numbers: ``k8s.io/api/core/v1/generated.proto``, ``k8s.io/apimachinery`` ``meta/v1`` and
``runtime`` ``generated.proto``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC = b"k8s\0"
_TEXTS = {1: "name", 3: "namespace", 6: "resourceVersion"}
_MAPS = {11: "labels", 12: "annotations"}


def config_map_of(body: bytes) -> dict[str, Any]:
    """Return the object in a request's body."""
    raw = dict(_fields(body.removeprefix(_MAGIC)))[2]
    found: dict[str, Any] = {"metadata": {}, "data": {}}
    for number, content in _fields(raw):
        if number == 1:
            found["metadata"] = _metadata(content)
        elif number == 2:
            found["data"] |= _entry(content)
        else:
            raise AssertionError(f"a ConfigMap with field {number}")
    return found


def _metadata(content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(content):
        if number in _TEXTS:
            found[_TEXTS[number]] = value.decode()
        else:
            found.setdefault(_MAPS[number], {}).update(_entry(value))
    return found


def _entry(content: bytes) -> dict[str, str]:
    parts = dict(_fields(content))
    return {parts.get(1, b"").decode(): parts.get(2, b"").decode()}


def _fields(content: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        assert key & 7 == 2, "nothing but texts and messages"
        length, at = _varint(content, at)
        yield key >> 3, content[at : at + length]
        at += length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
