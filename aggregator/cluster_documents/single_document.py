"""The one document that holds all nodes: its readers replace what they know by it (M10).

Readers take a node that is not in it for healthy, so what does not fit is left out in the order
in which nobody misses it: first healthy nodes without any fault, then healthy ones (defect B7), and
if all that is still too much, the last ones by name: a document that is too large is not written at
all, and would say nothing new of any node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.cluster_documents.shards import Value
from contract.documents.cluster_info import VALUE_LIMIT, member, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class SingleDocument:
    """Members of the document. It has the number 0, so that it looks like ``Shards``.

    ``key`` is the name of a node's member; ``weight`` says from its text how much it is missed:
    0 not at all, 1 by people, 2 by schedulers.
    """

    def __init__(self, key: Callable[[str], str], weight: Callable[[str], int]) -> None:
        self._key = key
        self._weight = weight
        self._texts: dict[str, str] = {}
        self._bytes = 1
        self._revision = 0
        self._value: Value | None = None
        self._annotations: dict[str, str] = {}
        self._limit = VALUE_LIMIT

    @property
    def indices(self) -> tuple[int, ...]:
        """The one document."""
        return (0,)

    def home(self, node: str) -> int | None:
        """The document that holds ``node``."""
        return 0 if node in self._texts else None

    def restore(self, _: int, texts: Mapping[str, str]) -> None:
        """Take over what an earlier run wrote."""
        for node, text in texts.items():
            self.put(node, text)
        self._revision = 0

    def fit(self, limit: int) -> frozenset[int]:
        """Keep the document within ``limit`` bytes from now on."""
        limit = min(limit, VALUE_LIMIT)
        smaller, self._limit = min(limit, self._limit), limit
        return self._changed() if self._bytes > smaller else frozenset()

    def clear(self) -> None:
        """Forget all nodes: they are restored anew."""
        self._texts.clear()
        self._bytes = 1
        self._revision = 0
        self._value = None

    def ensure(self, _: int) -> None:
        """The document is always ours."""

    def put(self, node: str, text: str) -> frozenset[int]:
        """Set a node's entry."""
        self._forget(node)
        self._texts[node] = text
        self._bytes += self._size_of(node)
        return self._changed()

    def drop(self, node: str) -> frozenset[int]:
        """Remove a node."""
        if node not in self._texts:
            return frozenset()
        self._forget(node)
        return self._changed()

    def annotate(self, annotations: Mapping[str, str]) -> frozenset[int]:
        """Write these annotations with the document from now on."""
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
        """Nobody moves."""
        return frozenset()

    def revision(self, _: int) -> int:
        """The revision of the document's value."""
        return self._revision

    def value(self, _: int) -> Value:
        """What the document must say now."""
        if self._value is None:
            kept = self._kept()
            self._value = Value(
                text=value_of(self._member(node) for node in kept),
                nodes=len(kept),
                revision=self._revision,
                left_out=len(self._texts) - len(kept),
                annotations=self._annotations,
            )
        return self._value

    def _kept(self) -> list[str]:
        nodes = sorted(self._texts)
        if self._bytes <= self._limit:
            return nodes
        weights = {node: self._weight(self._texts[node]) for node in nodes}
        for least in (1, 2):
            kept = [node for node in nodes if weights[node] >= least]
            if self._size(kept) <= self._limit:
                return kept
        room = self._limit - 1
        for number, node in enumerate(kept):
            room -= self._size_of(node)
            if room < 0:
                return kept[:number]
        raise AssertionError("they do not fit")

    def _size(self, nodes: Iterable[str]) -> int:
        return 1 + sum(map(self._size_of, nodes))

    def _size_of(self, node: str) -> int:
        return len(self._member(node).encode()) + 1

    def _member(self, node: str) -> str:
        return member(self._key(node), self._texts[node])
