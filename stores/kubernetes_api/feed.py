"""All objects of one kind as values by key, of which one that cannot be read spoils no other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec

from contract.errors import StoreNotFound
from contract.kubernetes import ObjectMetadata, decode_object
from contract.record import Record
from contract.validation_texts import decode_text
from stores.cluster import KindUnavailable, Snapshot, Update
from stores.kubernetes_api.watch import ListPage, read_objects, watched

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence

    from contract.kubernetes import KubernetesObject
    from stores.cluster import ObjectKind, SharedReader
    from stores.interruption import Interrupted
    from stores.kubernetes_api.client.connection import ApiConnection

_log = logging.getLogger(__name__)

_MAX_TEXT = 32 * 1024
"""Characters of one label or annotation that is kept; an object with a longer one is refused."""

_NAMED = 100
"""So many objects that cannot be read are named in the log at a time."""

_RETRY_SECONDS = 45.0
"""A kind may be installed later; a slow retry is enough."""

Value = TypeVar("Value")


_read_raw_page = msgspec.json.Decoder(ListPage[msgspec.Raw]).decode


class WatchedKind(Record, Generic[Value], frozen=True):
    """What is followed, and how it is read. ``name`` is for people, a plural."""

    name: str
    path: str
    query: Mapping[str, str]
    key: Callable[[ObjectMetadata], str]
    """Empty where an object has none: such a one cannot be read."""
    read: Callable[[KubernetesObject], Value | None]
    """``None`` for one that means nothing here. Raises ``ValueError`` and ``RecursionError``."""
    pause_seconds: float = 0.0
    """See ``ObjectKind``."""


class _Read(msgspec.Struct, Generic[Value]):
    """An object of a list; ``value`` of ``None``: it cannot be read."""

    key: str
    value: Value | None


class _ObjectReader(Generic[Value]):
    """Makes values of the objects of a watch, and logs which ones it cannot read."""

    def __init__(
        self,
        name: str,
        key: Callable[[ObjectMetadata], str],
        read: Callable[[KubernetesObject], Value | None],
    ) -> None:
        """See ``WatchedKind``."""
        self._name = name
        self._key = key
        self._value = read
        self._unreadable: dict[str, str] = {}

    def read_item(self, item: KubernetesObject | msgspec.Raw) -> _Read[Value] | None:
        """Read an object of a list; return ``None`` for one that means nothing here."""
        try:
            key, value = self._read(decode_object(item))
        except (ValueError, RecursionError) as error:
            return _Read(self._refuse(item, error), None)
        return None if value is None else _Read(key, value)

    def snapshot(self, read: Iterable[_Read[Value] | None]) -> Snapshot[Value]:
        """Return the event of a list."""
        items, unreadable = {}, set()
        for item in read:
            if item is not None and item.value is not None:
                items[item.key] = item.value
            elif item is not None:
                unreadable.add(item.key)
        for key in self._unreadable.keys() - unreadable:
            self._readable(key)
        return Snapshot(items, frozenset(unreadable))

    def update(self, type_: str, content: KubernetesObject | msgspec.Raw) -> Update[Value] | None:
        """Return the event of a frame; ``None`` where the object cannot be read.

        Raises ``msgspec.DecodeError`` for a deleted object without an identity.
        """
        # Only its identity is read, so that the end of an object
        # that cannot be read is seen as well.
        if type_ == "DELETED":
            key = self._key(decode_object(content).metadata)
            self._readable(key)
            return Update(key, None)
        try:
            key, value = self._read(decode_object(content))
        except (ValueError, RecursionError) as error:
            self._refuse(content, error)
            return None
        self._readable(key)
        return Update(key, value)

    def _read(self, item: KubernetesObject) -> tuple[str, Value | None]:
        key = self._key(item.metadata)
        if not key:
            raise ValueError("it has neither name nor uid")
        return key, self._value(item)

    def _refuse(self, item: KubernetesObject | msgspec.Raw, error: Exception) -> str:
        """Log it; return the key of the object, as far as that can be read."""
        try:
            metadata = decode_object(item).metadata
        except (ValueError, RecursionError):
            metadata = ObjectMetadata()
        key = self._key(metadata)
        if key not in self._unreadable and len(self._unreadable) < _NAMED:
            who = (
                "/".join(filter(None, (metadata.namespace, metadata.name))) or "one without a name"
            )
            self._unreadable[key] = who
            _log.warning("of the %s %s cannot be read: %s", self._name, who, decode_text(error))
        return key

    def _readable(self, key: str) -> None:
        who = self._unreadable.pop(key, None)
        if who is not None:
            _log.info("of the %s %s is gone or can be read again", self._name, who)


_ReadByAll: TypeAlias = tuple[_Read[Any] | None, ...]
"""What the first reader and the others have read of an object."""


class Feed(Generic[Value]):
    """Follows a kind, and decodes each object once for all its readers.

    The widest query of all readers is that of the watch: each leaves out by itself what its own
    query would.
    """

    def __init__(self, kind: WatchedKind[Value], *others: SharedReader[Any]) -> None:
        self._kind = kind
        # Fewer conditions select more; queries of one kind are parts of each other.
        queries = [reader.kind.query for reader in others]
        self._query = min((kind.query, *queries), key=len) if queries else kind.query
        self._first = _ObjectReader(kind.name, kind.key, kind.read)
        self._others: tuple[_ObjectReader[Any], ...] = tuple(
            _ObjectReader(reader.kind.name, key_of(reader.kind), reader.kind.read)
            for reader in others
        )
        self._observe = tuple(reader.observe for reader in others)

    def follow(
        self, connection: ApiConnection
    ) -> AsyncGenerator[Snapshot[Value] | Update[Value] | Interrupted, None]:
        """Follow them for ever. Raises ``StoreRefused``."""
        kind = self._kind
        return watched(
            connection,
            kind.path,
            self._query,
            self._read_page,
            kind.name,
            self._snapshot,
            self._update,
            pause_seconds=kind.pause_seconds,
        )

    def _read_page(self, body: bytes) -> ListPage[_ReadByAll]:
        items: Sequence[KubernetesObject | msgspec.Raw]
        try:
            page = read_objects(body)
            metadata, items = page.metadata, page.items or ()
        except (ValueError, RecursionError):
            # The identity of one is malformed: each is decoded alone.
            raw = _read_raw_page(body)
            metadata, items = raw.metadata, raw.items or ()
        read = [self._read_by_all(item) for item in items]
        nothing = (None,) * (1 + len(self._others))
        return ListPage(metadata, [values for values in read if values != nothing])

    def _read_by_all(self, item: KubernetesObject | msgspec.Raw) -> _ReadByAll:
        others = (reader.read_item(item) for reader in self._others)
        return (self._first.read_item(item), *others)

    def _snapshot(self, read: list[_ReadByAll]) -> Snapshot[Value]:
        for number, (reader, observe) in enumerate(zip(self._others, self._observe, strict=True)):
            observe(reader.snapshot(values[number + 1] for values in read))
        return self._first.snapshot(values[0] for values in read)

    def _update(self, type_: str, content: msgspec.Raw) -> tuple[Update[Value] | None, str]:
        item: KubernetesObject | msgspec.Raw
        try:
            item = decode_object(content)
            version = item.metadata.resource_version
        except (ValueError, RecursionError):
            item, version = content, ""
        update = self._first.update(type_, item)
        for reader, observe in zip(self._others, self._observe, strict=True):
            event = reader.update(type_, item)
            if event is not None:
                observe(event)
        return update, version


def key_of(kind: ObjectKind[Any]) -> Callable[[ObjectMetadata], str]:
    """Return what makes the key of an object."""
    return (lambda metadata: metadata.name) if kind.by_name else (lambda metadata: metadata.uid)


def kept(texts: msgspec.Struct) -> dict[str, str]:
    """Return the labels or annotations that ``texts``, which omits defaults, has.

    Raises ``ValueError`` for one that is too long to be kept.
    """
    labels: dict[str, str] = msgspec.to_builtins(texts)
    check_lengths(*labels.values())
    return labels


def check_lengths(*texts: str) -> None:
    """Raise ``ValueError`` for a label or annotation that is too long to be kept."""
    if any(len(text) > _MAX_TEXT for text in texts):
        raise ValueError(f"a label or annotation has more than {_MAX_TEXT} characters")


async def follow_if_installed(
    connection: ApiConnection, feed: Feed[Value]
) -> AsyncIterator[Snapshot[Value] | Update[Value] | KindUnavailable | Interrupted]:
    """Follow all objects of a kind; yields ``KindUnavailable`` while the API has no such kind.

    Raises ``StoreRefused``.
    """
    while True:
        try:
            async with contextlib.aclosing(feed.follow(connection)) as events:
                async for event in events:
                    yield event
        except StoreNotFound as error:
            yield KindUnavailable(str(error))
        await asyncio.sleep(random.uniform(_RETRY_SECONDS / 2, _RETRY_SECONDS))
