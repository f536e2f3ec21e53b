"""Desired cluster documents for a publisher by itself: nothing observes what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aggregator.cluster_documents.shards import Value
    from aggregator.publish.publisher import StorePublisher
    from stores.base import Document


class Desired:
    """``ClusterDocuments`` with the contents that ``value`` returns."""

    def __init__(self, value: Callable[[str], Value]) -> None:
        self._value = value

    def value(self, name: str) -> Value:
        return self._value(name)

    def on_acknowledged(self, publisher: StorePublisher, name: str) -> None:
        pass

    def on_appeared(self, documents: Iterable[Document]) -> None:
        pass

    def on_followed(self, publisher: StorePublisher, document: Document) -> None:
        pass

    def on_maybe_lost(self) -> None:
        pass
