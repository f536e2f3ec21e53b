"""The model of Kubernetes objects: identity is decoded, any other member when it is asked for.

An object is decoded once, by ``decode_object`` or as an item of a list. Members that only some
readers need stay the bytes that they were (``msgspec.Raw``). A reader declares a ``Member`` with
the type of what it needs of it, so that nothing else is made or kept, and with its own answer to
null: stores refuse it, the advisor takes it for a missing member.

A ``Raw`` refers to the bytes of the whole list, so no object outlives the reading of it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar, overload

import msgspec
from msgspec import Raw

from contract.validation_texts import placed_in

T = TypeVar("T")

# Decoded for a missing member. A time or a number that is null is missing to all readers.
_NO_MEMBERS, _NO_ITEMS, _NULL = Raw(b"{}"), Raw(b"[]"), Raw(b"null")


# ``gc=False``: no cycle can contain it, so the collector need not visit each of thousands.
class ObjectMetadata(msgspec.Struct, rename="camel", gc=False):
    """What distinguishes an object from all others, and members that a reader may ask for."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Raw = _NO_MEMBERS
    annotations: Raw = _NO_MEMBERS
    owner_references: Raw = _NO_ITEMS
    creation_timestamp: Raw = _NULL
    deletion_timestamp: Raw = _NULL
    deletion_grace_period_seconds: Raw = _NULL
    generation: Raw = _NULL
    managed_fields: Raw = _NULL


class KubernetesObject(msgspec.Struct, gc=False):
    """An object of any kind. ``data`` is that of a ConfigMap."""

    metadata: ObjectMetadata
    spec: Raw = _NO_MEMBERS
    status: Raw = _NO_MEMBERS
    data: Raw = _NO_MEMBERS


AnyObject: TypeAlias = KubernetesObject | Raw | bytes
"""An object, or its bytes."""

_decode = msgspec.json.Decoder(KubernetesObject).decode


def decode_object(item: AnyObject) -> KubernetesObject:
    """Return the object in these bytes, or one that is decoded already.

    Raises ``msgspec.DecodeError``, ``UnicodeError`` and ``RecursionError``.
    """
    return item if isinstance(item, KubernetesObject) else _decode(item)


def require_name(item: KubernetesObject) -> None:
    """Raise ``msgspec.ValidationError`` for an object without a name."""
    _require(item.metadata.name, "name")


def require_identity(item: KubernetesObject) -> None:
    """Raise ``msgspec.ValidationError`` for an object without a uid or a version."""
    _require(item.metadata.uid, "uid")
    _require(item.metadata.resource_version, "resourceVersion")


def _require(text: str, member: str) -> None:
    if not text:
        # As msgspec has it, because ``validation_texts`` translates that text.
        text = f"Object missing required field `{member}` - at `$.metadata`"
        raise msgspec.ValidationError(text)


_CONTENTS = {
    "metadata.labels": attrgetter("metadata.labels"),
    "metadata.annotations": attrgetter("metadata.annotations"),
    "metadata.ownerReferences": attrgetter("metadata.owner_references"),
    "metadata.creationTimestamp": attrgetter("metadata.creation_timestamp"),
    "metadata.deletionTimestamp": attrgetter("metadata.deletion_timestamp"),
    "metadata.deletionGracePeriodSeconds": attrgetter("metadata.deletion_grace_period_seconds"),
    "metadata.generation": attrgetter("metadata.generation"),
    "metadata.managedFields": attrgetter("metadata.managed_fields"),
    "spec": attrgetter("spec"),
    "status": attrgetter("status"),
    "data": attrgetter("data"),
}
"""What is asked for, by its path in JSON."""


class Member(Generic[T]):
    """A member of objects as one reader needs it. ``path`` is that in JSON, without ``$``."""

    @overload
    def __init__(self, path: str, type_: type[T]) -> None: ...

    @overload
    def __init__(self: Member[Any], path: str, type_: Any) -> None: ...

    def __init__(self, path: str, type_: Any) -> None:
        """Make it. ``type_`` is what msgspec decodes; it has ``None`` where null is allowed."""
        self._path = path
        self._content = _CONTENTS[path]
        self._decode = msgspec.json.Decoder(type_).decode

    def __call__(self, item: KubernetesObject) -> T:
        """Decode the member of ``item``; a missing one is as an empty one.

        Raises ``msgspec.DecodeError`` with the place in the whole object, ``UnicodeError`` and
        ``RecursionError``.
        """
        try:
            value: T = self._decode(self._content(item))
        except msgspec.ValidationError as error:
            raise placed_in(error, f"$.{self._path}") from None
        return value
