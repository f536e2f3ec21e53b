"""The one document that holds all nodes: its readers replace all entries at once (M10).

Readers take a node that is not in it for healthy. So what does not fit is left out in this order:
healthy nodes without any fault, healthy ones (defect B7), and then the last nodes by name. A
document that is too large would not be written at all, and change nothing about any node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.cluster_documents.shards import Value
from contract.documents.cluster_info import VALUE_LIMIT, member, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class SingleDocument:
    """Members of the document. It has the number 0, with the interface of ``ShardedDocument``.

    ``key`` is the name of a node's member. ``weight`` returns from its text which readers need it:
    0 none, 1 people, 2 schedulers.
    """

    indices = (0,)

    def __init__(self, key: Callable[[str], str], weight: Callable[[str], int]) -> None:
        self._key = key
        self._weight = weight
        self._texts: dict[str, str] = {}
        self._bytes = 1
        self._revision = 0
        self._value: Value | None = None
        self._annotations: dict[str, str] = {}
        self._limit = VALUE_LIMIT

    def home(self, node: str) -> int | None:
        """Return the number of the document that holds ``node``; ``None`` where it does not."""
        return 0 if node in self._texts else None

    def restore_document(self, _: int, texts: Mapping[str, str]) -> None:
        """Take over the entries that an earlier run wrote."""
        for node, text in texts.items():
            self.put(node, text)
        # What was restored is what the store has, as in ``ShardedDocument.restore_document``.
        self._revision = 0

    def fit(self, limit: int) -> frozenset[int]:
        """Keep the document within ``limit`` bytes from now on; return whether that changed it."""
        limit = min(limit, VALUE_LIMIT)
        smaller, self._limit = min(limit, self._limit), limit
        # Also where the limit grows again and nodes had been left out before.
        return self._changed() if self._bytes > smaller else frozenset()

    def clear(self) -> None:
        """Remove all nodes before they are restored again."""
        self._texts.clear()
        self._bytes = 1
        self._revision = 0
        self._value = None

    def ensure(self, _: int) -> None:
        """Do nothing: this document is always ours."""

    def put(self, node: str, text: str) -> frozenset[int]:
        """Set a node's entry; return the changed document."""
        self._forget(node)
        self._texts[node] = text
        self._bytes += self._size_of(node)
        return self._changed()

    def drop(self, node: str) -> frozenset[int]:
        """Remove a node; return the changed document."""
        if node not in self._texts:
            return frozenset()
        self._forget(node)
        return self._changed()

    def annotate(self, annotations: Mapping[str, str]) -> frozenset[int]:
        """Write these annotations with the document from now on; return the changed document."""
        if self._annotations == annotations:
            return frozenset()
        self._annotations = dict(annotations)
        return self._changed()

    def _forget(self, node: str) -> None:
        if node in self._texts:
            self._bytes -= self._size_of(node)
            del self._texts[node]

    def _changed(self) -> frozenset[int]:
        self._revision += 1
        self._value = None
        return frozenset({0})

    def acknowledged(self, _: int, __: int) -> frozenset[int]:
        """Return no document: no node moves."""
        return frozenset()

    def revision(self, _: int) -> int:
        """Return the revision of the document's value."""
        return self._revision

    def value(self, _: int) -> Value:
        """Return the desired content of the document."""
        if self._value is None:
            shown_nodes = self._kept()
            self._value = Value(
                text=value_of(self._member(node) for node in shown_nodes),
                nodes=len(shown_nodes),
                revision=self._revision,
                left_out=len(self._texts) - len(shown_nodes),
                annotations=self._annotations,
            )
        return self._value

    def _kept(self) -> list[str]:
        nodes = sorted(self._texts)
        if self._bytes <= self._limit:
            return nodes
        weights = {node: self._weight(self._texts[node]) for node in nodes}
        # First without nodes that no reader needs, then only with those that schedulers need.
        for least in (1, 2):
            heaviest = [node for node in nodes if weights[node] >= least]
            if self._size(heaviest) <= self._limit:
                return heaviest
        # One byte for the braces, as in ``_Shard.bytes``.
        room = self._limit - 1
        for number, node in enumerate(heaviest):
            room -= self._size_of(node)
            if room < 0:
                return heaviest[:number]
        raise AssertionError("they do not fit")

    def _size(self, nodes: Iterable[str]) -> int:
        return 1 + sum(map(self._size_of, nodes))

    def _size_of(self, node: str) -> int:
        return len(self._member(node).encode()) + 1

    def _member(self, node: str) -> str:
        return member(self._key(node), self._texts[node])
