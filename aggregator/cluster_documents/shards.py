"""Divides the nodes of a cluster document into shards. Pure: texts in, values out.

Invariant: at each moment, the documents that a store has acknowledged contain every node that is
not deleted. A move therefore has two writes: ``_move`` puts the node into its new shard and notes
in the old one which revision of the new one has it (``leaving``); ``acknowledged`` takes it out of
the old one once every store has that revision. Between the two, readers see the node twice, with
the same or an older entry.

A node keeps its shard for as long as it fits (defect B8), also across restarts. One that grows
beyond it is written to another shard first and leaves the old one when that was acknowledged, so no
reader ever misses it. A shard that became empty stays and has the empty value (B6, M9). Shards of
an earlier run keep their nodes, whatever their size: no node moves for that alone. Sources:
``docs/spec/clusterd.md#2.5``, ``docs/spec/consumers.md#1.4`` and 7.1 M9, M20.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.documents.cluster_info import VALUE_LIMIT, member, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FILL = 128 * 1024
"""New nodes go elsewhere beyond this. A shard may grow to ``VALUE_LIMIT``, so faults hardly ever
push a node out of it. Chosen by measurement: ``docs/decisions/009``.
"""


_AROUND_BYTES = 2048
"""Of a document beside its text: names, labels and annotations."""
# A store with a tiny limit still gets one node in each document.
_MIN_BYTES = 1024


def text_limit(largest: int) -> int:
    """Return how long a text may be in a document of ``largest`` bytes.

    It is JSON within JSON there: each quote and each backslash takes twice the room.
    """
    return max(_MIN_BYTES, min(VALUE_LIMIT, (largest - _AROUND_BYTES) // 2))


class Value(msgspec.Struct, frozen=True):
    """The desired content of a document. ``revision`` grows with every change of it.

    ``left_out`` is the number of nodes that are not in it for lack of room. ``annotations`` are for
    the next run, not for readers.
    """

    text: str
    nodes: int
    revision: int
    left_out: int = 0
    annotations: dict[str, str] = {}


class _Shard:
    """The nodes of one document, the texts of their entries, and the bytes they take.

    The texts are those of ``EntryTable.entries``: one that begins with its key would be a second
    copy.
    """

    def __init__(self, key: Callable[[str], str]) -> None:
        self._key = key
        self.texts: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        # Braces are one byte more than the commas that ``_size`` counts.
        self.bytes = 1
        self.revision = 0
        self.leaving: dict[str, tuple[int, int]] = {}
        """Nodes that moved: the shard they moved to and its revision that has them."""
        self.value: Value | None = None

    def put(self, node: str, text: str, size: int) -> None:
        self._forget(node)
        self.texts[node] = text
        self.sizes[node] = size
        self.bytes += size
        self.revision += 1

    def drop(self, node: str) -> None:
        self._forget(node)
        self.leaving.pop(node, None)
        self.revision += 1

    def _forget(self, node: str) -> None:
        self.value = None
        self.bytes -= self.sizes.pop(node, 0)
        self.texts.pop(node, None)

    def text(self) -> str:
        return value_of(member(self._key(node), self.texts[node]) for node in sorted(self.texts))


class ShardedDocument:
    """The assignment of nodes to documents and the value of each document.

    ``key`` is the name of a node's member.
    """

    def __init__(self, key: Callable[[str], str]) -> None:
        self._key = key
        self._shards: dict[int, _Shard] = {}
        self._home: dict[str, int] = {}
        self._limit, self._fill = VALUE_LIMIT, FILL
        self._full, self._full_for = 0, 0
        """So many shards at the front have no room for a new node of so many bytes or more."""
        self._moving: set[int] = set()
        """Shards that nodes may be leaving: a write must not look at all of them."""

    @property
    def indices(self) -> tuple[int, ...]:
        """The numbers of all documents there are, empty ones too."""
        return tuple(sorted(self._shards))

    def home(self, node: str) -> int | None:
        """Return the number of the document that holds ``node``; ``None`` where none does."""
        return self._home.get(node)

    def fit(self, limit: int) -> frozenset[int]:
        """Keep documents within ``limit`` bytes from now on; return the shards that changed.

        What is too large loses its last nodes to others. A document of one node stays as it is.
        """
        self._limit = min(limit, VALUE_LIMIT)
        # Three quarters where the limit is small: entries must be able to grow.
        self._fill = min(FILL, self._limit * 3 // 4)
        self._full = 0
        changed: set[int] = set()
        for index, shard in tuple(self._shards.items()):
            staying = {
                node: shard.sizes[node] for node in shard.texts.keys() - shard.leaving.keys()
            }
            # A node that is leaving already needs no room here: it goes when its new shard is
            # stored.
            room = self._limit - 1 - sum(staying.values())
            # The first node stays whatever its size: alone in a document it has nowhere better to
            # go.
            for node in sorted(staying, reverse=True)[:-1]:
                if room >= 0:
                    break
                room += staying[node]
                changed |= self._move(node, shard.texts[node], staying[node], index)
        return frozenset(changed)

    def restore_document(self, index: int, texts: Mapping[str, str]) -> None:
        """Take over the entries of a document of an earlier run.

        A node that is in two documents, because a move was cut short, must be passed only with its
        newer entry; the other document then differs from what the store has and is written.
        """
        self._full = 0
        shard = self._shards[index] = _Shard(self._key)
        for node, text in texts.items():
            shard.put(node, text, self._size(node, text))
            self._home[node] = index
        # What was restored is what the store has: nothing of it is to be written.
        shard.revision = 0

    def clear(self) -> None:
        """Remove all nodes before they are restored again."""
        self._shards.clear()
        self._home.clear()
        self._moving.clear()
        self._full = 0

    def ensure(self, index: int) -> None:
        """Count in a document that exists without being ours: it is to become empty."""
        self._shards.setdefault(index, _Shard(self._key))

    def put(self, node: str, text: str) -> frozenset[int]:
        """Set a node's entry; return the shards that changed."""
        size = self._size(node, text)
        index = self._home.get(node)
        if index is not None:
            shard = self._shards[index]
            grown = shard.bytes - shard.sizes[node] + size
            # A node that is alone has no better shard, so it may exceed the limit.
            if grown <= self._limit or len(shard.texts) == 1:
                # Space came free at the front, so the shortcut over full shards is void.
                if grown < shard.bytes:
                    self._full = 0
                shard.put(node, text, size)
                return frozenset({index})
        return self._move(node, text, size, index)

    def _size(self, node: str, text: str) -> int:
        """Return the bytes of a node's member and its comma.

        The braces of a value are one byte more than its commas.
        """
        return len(member(self._key(node), text).encode()) + 1

    def _move(self, node: str, text: str, size: int, index: int | None) -> frozenset[int]:
        """Put a node where there is room, and let it leave the document ``index``."""
        target = self._room(node, size, index)
        self._shards[target].put(node, text, size)
        # It comes back to a shard that it was about to leave: it stays there.
        self._shards[target].leaving.pop(node, None)
        self._home[node] = target
        if index is not None:
            # The old shard keeps the node until the new one is stored: a reader sees it twice,
            # never not at all.
            self._shards[index].leaving[node] = (target, self._shards[target].revision)
            self._moving.add(index)
        return frozenset({target})

    def _room(self, node: str, size: int, without: int | None) -> int:
        """Return the lowest number that has room for ``size`` bytes, so that the numbers have no
        gap.
        """
        # Shards known to be full are skipped: ten thousand new nodes would otherwise look at each
        # of them.
        begin = self._full if without is None and size >= self._full_for else 0
        index = begin
        while (shard := self._shards.get(index)) is not None:
            # A shard that the node is still leaving may take it back.
            rest = shard.bytes - shard.sizes.get(node, 0)
            # New nodes fill a shard to FILL only, so that those in it can grow and stay.
            if index != without and (rest + size <= self._fill or not shard.texts):
                break
            index += 1
        else:
            self._shards[index] = _Shard(self._key)
        if without is None and index > begin:
            self._full_for = size if begin == 0 else max(size, self._full_for)
            self._full = index
        return index

    def drop(self, node: str) -> frozenset[int]:
        """Remove a node; return the shards that changed."""
        self._home.pop(node, None)
        self._full = 0
        # A node that is being moved is in two shards.
        changed = frozenset(i for i, shard in self._shards.items() if node in shard.texts)
        for index in changed:
            self._shards[index].drop(node)
        return changed

    def acknowledged(self, index: int, revision: int) -> frozenset[int]:
        """Observe that a revision of a document was stored; return the shards that moved nodes
        leave now.
        """
        changed = set()
        for old in tuple(self._moving):
            shard = self._shards[old]
            for node, (target, needed) in tuple(shard.leaving.items()):
                # A later revision has the node as well: the store may have skipped the one that
                # moved it.
                if target == index and needed <= revision:
                    shard.drop(node)
                    self._full = 0
                    changed.add(old)
            if not shard.leaving:
                self._moving.discard(old)
        return frozenset(changed)

    def revision(self, index: int) -> int:
        """Return the revision of a document's value."""
        return self._shards[index].revision

    def value(self, index: int) -> Value:
        """Return the desired content of a document."""
        shard = self._shards[index]
        if shard.value is None:
            shard.value = Value(shard.text(), len(shard.texts), shard.revision)
        return shard.value
