"""Objects of any kind, whose bytes a reader outside of this room understands."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from stores.kubernetes_api.feed import WatchedKind, follow_if_installed
from stores.kubernetes_api.watch import ListPage
from stores.kubernetes_api.wire import Item, item_decoder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.cluster import KindUnavailable, ObjectKind, Snapshot, Update
    from stores.interruption import Interrupted
    from stores.kubernetes_api.client.connection import ApiConnection

Value = TypeVar("Value")


class _Bytes(Item):
    """An object of which only its identity is read; ``content`` is all of it."""

    content: msgspec.Raw


_pages: msgspec.json.Decoder[ListPage[msgspec.Raw]] = msgspec.json.Decoder(ListPage[msgspec.Raw])


class _Items:
    """Reads one object. Raises ``msgspec.DecodeError``."""

    def decode(self, content: msgspec.Raw | bytes, /) -> _Bytes:
        return _Bytes(item_decoder.decode(content).metadata, msgspec.Raw(content))


class _Pages:
    """Reads a page of objects. Raises ``msgspec.DecodeError``."""

    def decode(self, body: bytes, /) -> ListPage[_Bytes]:
        page = _pages.decode(body)
        return ListPage(page.metadata, [_Items().decode(raw) for raw in page.items or ()])


def follow_objects(
    connection: ApiConnection, kind: ObjectKind[Value]
) -> AsyncIterator[Snapshot[Value] | Update[Value] | KindUnavailable | Interrupted]:
    """See ``Cluster.objects``. Raises ``StoreRefused``."""
    return follow_if_installed(
        connection,
        WatchedKind[_Bytes, Value](
            name=kind.name,
            path=kind.path,
            query=kind.query,
            pages=_Pages(),
            item=_Items(),
            key=lambda metadata: metadata.uid,
            read=lambda item: kind.read(item.content),
        ),
    )
