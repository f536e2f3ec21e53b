"""Objects of any kind, whose bytes a reader outside of this room understands."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from stores.kubernetes_api.feed import WatchedKind, follow_if_installed, read_raw_page
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


def _read_item(content: msgspec.Raw) -> _Bytes:
    return _Bytes(item_decoder.decode(content).metadata, msgspec.Raw(content))


def _read_page(body: bytes) -> ListPage[_Bytes]:
    page = read_raw_page(body)
    return ListPage(page.metadata, [_read_item(raw) for raw in page.items or ()])


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
            read_page=_read_page,
            read_item=_read_item,
            key=lambda metadata: metadata.uid,
            read=lambda item: kind.read(item.content),
        ),
    )
