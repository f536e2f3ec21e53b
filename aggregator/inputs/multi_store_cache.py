"""What stores tell of one kind of objects, and what is believed of it.

What two stores know is as the first one says. A store that has been interrupted stays believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from stores.cluster import KindUnavailable, Snapshot, Update
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

V = TypeVar("V")


class StoreCache(Generic[V]):
    """What one store tells of one kind."""

    def __init__(self, *, is_followed: bool) -> None:
        self.is_followed = is_followed
        """Whether the store can tell of such things at all."""
        self.known = False
        """Whether it has ever told all of them; what was known stays."""
        self.interrupted: str | None = None
        """Why nothing is heard of them now."""
        self.absent: str | None = None
        """Why there are none, where the store has no such kind: that is known, too."""
        self.items: dict[str, V] = {}

    @property
    def answered(self) -> bool:
        """Whether waiting for it makes no sense any more."""
        return not self.is_followed or self.known or self.interrupted is not None


class MultiStoreCache(Generic[V]):
    """One kind of objects of all stores."""

    def __init__(self, followed: Sequence[bool]) -> None:
        self.caches: tuple[StoreCache[V], ...] = tuple(
            StoreCache(is_followed=one) for one in followed
        )

    @property
    def known(self) -> bool:
        """Whether any store has ever told all of them."""
        return any(one.known for one in self.caches)

    def get(self, key: str) -> V | None:
        """What the first store says that knows it."""
        for one in self.caches:
            value = one.items.get(key)
            if value is not None:
                return value
        return None

    def __iter__(self) -> Iterator[str]:
        """All keys, each once."""
        if len(self.caches) == 1:
            return iter(self.caches[0].items)
        return iter(dict.fromkeys(key for one in self.caches for key in one.items))

    def observe(
        self, source: int, event: Snapshot[V] | Update[V] | KindUnavailable | Interrupted
    ) -> Iterator[tuple[str, V | None, V | None]]:
        """Take in an event; of all that changed by it the key, what it was and what it is."""
        one = self.caches[source]
        match event:
            case Interrupted(reason):
                one.interrupted = reason
            case Update(key, value):
                yield from self._set(one, key, value)
            case KindUnavailable(reason):
                one.known, one.interrupted, one.absent = True, None, reason
                for key in tuple(one.items):
                    yield from self._set(one, key, None)
            case Snapshot(items, unreadable):
                one.known, one.interrupted, one.absent = True, None, None
                for key in one.items.keys() - items.keys() - unreadable:
                    yield from self._set(one, key, None)
                for key, value in items.items():
                    yield from self._set(one, key, value)

    def _set(
        self, one: StoreCache[V], key: str, value: V | None
    ) -> Iterator[tuple[str, V | None, V | None]]:
        if one.items.get(key) == value:
            return
        before = self.get(key)
        if value is None:
            del one.items[key]
        else:
            one.items[key] = value
        after = self.get(key)
        if before != after:
            yield key, before, after
