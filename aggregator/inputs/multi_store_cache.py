"""Cache of one kind of objects: of one store, and of all stores together.

The first store that has an object counts. Objects of an interrupted store stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from stores.cluster import KindUnavailable, Snapshot, Update
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

V = TypeVar("V")


class StoreCache(Generic[V]):
    """The objects of one kind in one store."""

    def __init__(self, *, is_followed: bool) -> None:
        self.is_followed = is_followed
        """Whether the store has such objects at all."""
        self.known = False
        """Whether they were ever listed; what was known stays."""
        self.interrupted: str | None = None
        """Why no event of them arrives now."""
        self.absent: str | None = None
        """Why there are none, where the store has no such kind; then ``known`` is true as well."""
        self.items: dict[str, V] = {}

    @property
    def answered(self) -> bool:
        """Whether there is nothing left to wait for."""
        # An error is an answer, too: the first publication does not wait for a store that refuses.
        return not self.is_followed or self.known or self.interrupted is not None


class MultiStoreCache(Generic[V]):
    """The objects of one kind in all stores."""

    def __init__(self, followed: Sequence[bool]) -> None:
        self.caches: tuple[StoreCache[V], ...] = tuple(
            StoreCache(is_followed=is_followed) for is_followed in followed
        )

    @property
    def known(self) -> bool:
        """Whether any store has ever listed them."""
        return any(cache.known for cache in self.caches)

    def get(self, key: str) -> V | None:
        """Return the object of the first store that has it; ``None`` where none has."""
        for cache in self.caches:
            value = cache.items.get(key)
            if value is not None:
                return value
        return None

    def __iter__(self) -> Iterator[str]:
        """Iterate over all keys, each once."""
        # One store is the usual case; with several a key may be in two of them.
        if len(self.caches) == 1:
            return iter(self.caches[0].items)
        return iter(dict.fromkeys(key for cache in self.caches for key in cache.items))

    def observe_objects(
        self, source: int, event: Snapshot[V] | Update[V] | KindUnavailable | Interrupted
    ) -> Iterator[tuple[str, V | None, V | None]]:
        """Apply an event; yield the key of each object that changed, with the object before and
        after.
        """
        cache = self.caches[source]
        match event:
            case Interrupted(reason):
                cache.interrupted = reason
            case Update(key, value):
                yield from self._set(cache, key, value)
            case KindUnavailable(reason):
                cache.known, cache.interrupted, cache.absent = True, None, reason
                for key in tuple(cache.items):
                    yield from self._set(cache, key, None)
            case Snapshot(items, unreadable):
                cache.known, cache.interrupted, cache.absent = True, None, None
                # Objects that could not be read exist, so their last good state stays.
                for key in cache.items.keys() - items.keys() - unreadable:
                    yield from self._set(cache, key, None)
                for key, value in items.items():
                    yield from self._set(cache, key, value)

    def _set(
        self, cache: StoreCache[V], key: str, value: V | None
    ) -> Iterator[tuple[str, V | None, V | None]]:
        # A list after an interruption mostly repeats what is known, and must not mark every node.
        if cache.items.get(key) == value:
            return
        # Compared over all stores: a change in the second one is hidden by the first one's object.
        before = self.get(key)
        if value is None:
            del cache.items[key]
        else:
            cache.items[key] = value
        after = self.get(key)
        if before != after:
            yield key, before, after
