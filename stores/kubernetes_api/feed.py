"""All objects of one kind as values by key, of which one that cannot be read spoils no other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from contract.errors import StoreNotFound
from contract.kubernetes import ObjectMetadata, decode_object
from contract.validation_texts import decode_text
from stores.cluster import KindUnavailable, Snapshot, Update
from stores.kubernetes_api.watch import ListPage, read_objects, watched

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    from contract.kubernetes import KubernetesObject
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


@dataclass(frozen=True)
class WatchedKind(Generic[Value]):
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


class Feed(Generic[Value]):
    """Reads a kind, and logs which objects it cannot read."""

    def __init__(self, kind: WatchedKind[Value]) -> None:
        self._kind = kind
        self._unreadable: dict[str, str] = {}

    def follow(
        self, connection: ApiConnection
    ) -> AsyncGenerator[Snapshot[Value] | Update[Value] | Interrupted, None]:
        """Follow them for ever. Raises ``StoreRefused``."""
        kind = self._kind
        return watched(
            connection,
            kind.path,
            kind.query,
            self._read_page,
            kind.name,
            self._snapshot,
            self._one,
            pause_seconds=kind.pause_seconds,
        )

    def _read_page(self, body: bytes) -> ListPage[_Read[Value]]:
        """Return what means something here of a page.

        Mostly all can be read, and it is done in one go.
        """
        try:
            page = read_objects(body)
            read = [self._read(item) for item in page.items or ()]
        except (ValueError, RecursionError):
            raw = _read_raw_page(body)
            each = [self._attempt(item) for item in raw.items or ()]
            return ListPage(raw.metadata, [item for item in each if item is not None])
        kept = [_Read(key, value) for key, value in read if value is not None]
        return ListPage(page.metadata, kept)

    def _snapshot(self, read: list[_Read[Value]]) -> Snapshot[Value]:
        items = {item.key: item.value for item in read if item.value is not None}
        unreadable = frozenset(item.key for item in read if item.value is None)
        for key in self._unreadable.keys() - unreadable:
            self._readable(key)
        return Snapshot(items, unreadable)

    def _one(self, type_: str, content: msgspec.Raw) -> tuple[Update[Value] | None, str]:
        if type_ == "DELETED":
            metadata = decode_object(content).metadata
            key = self._kind.key(metadata)
            self._readable(key)
            return Update(key, None), metadata.resource_version
        try:
            item = decode_object(content)
            key, value = self._read(item)
        except (ValueError, RecursionError) as error:
            _, metadata = self._refuse(content, error)
            return None, metadata.resource_version
        self._readable(key)
        return Update(key, value), item.metadata.resource_version

    def _attempt(self, content: msgspec.Raw) -> _Read[Value] | None:
        """Read one object of a page in which something is wrong."""
        try:
            key, value = self._read(decode_object(content))
        except (ValueError, RecursionError) as error:
            key, _ = self._refuse(content, error)
            return _Read(key, None)
        return None if value is None else _Read(key, value)

    def _read(self, item: KubernetesObject) -> tuple[str, Value | None]:
        key = self._kind.key(item.metadata)
        if not key:
            raise ValueError("it has neither name nor uid")
        return key, self._kind.read(item)

    def _refuse(self, content: msgspec.Raw, error: Exception) -> tuple[str, ObjectMetadata]:
        """Log it; return which object it is, as far as that can be read."""
        try:
            metadata = decode_object(content).metadata
        except (msgspec.DecodeError, RecursionError):
            metadata = ObjectMetadata()
        return self._log_state(metadata, error), metadata

    def _log_state(self, metadata: ObjectMetadata, error: Exception) -> str:
        key = self._kind.key(metadata)
        if key not in self._unreadable and len(self._unreadable) < _NAMED:
            who = (
                "/".join(filter(None, (metadata.namespace, metadata.name))) or "one without a name"
            )
            self._unreadable[key] = who
            _log.warning(
                "of the %s %s cannot be read: %s", self._kind.name, who, decode_text(error)
            )
        return key

    def _readable(self, key: str) -> None:
        who = self._unreadable.pop(key, None)
        if who is not None:
            _log.info("of the %s %s is gone or can be read again", self._kind.name, who)


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
    connection: ApiConnection, kind: WatchedKind[Value]
) -> AsyncIterator[Snapshot[Value] | Update[Value] | KindUnavailable | Interrupted]:
    """Follow all objects of a kind; yields ``KindUnavailable`` while the API has no such kind.

    Raises ``StoreRefused``.
    """
    feed = Feed(kind)
    while True:
        try:
            async with contextlib.aclosing(feed.follow(connection)) as events:
                async for event in events:
                    yield event
        except StoreNotFound as error:
            yield KindUnavailable(str(error))
        await asyncio.sleep(random.uniform(_RETRY_SECONDS / 2, _RETRY_SECONDS))
