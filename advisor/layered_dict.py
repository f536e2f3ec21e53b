"""Dictionaries and rows of all nodes whose copies cost as much as their changes."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import chain
from typing import Final, TypeVar, cast, overload

V = TypeVar("V")
D = TypeVar("D")

# Copying 256 changes is cheap beside copying 10,000 nodes (decision 31).
_MAX_CHANGES = 256
"""Beside a base; a copy of one with more has a base of its own."""
T_co = TypeVar("T_co", covariant=True)
# A changed row copies 128 others; 10,000 rows are 79 chunks.
_CHUNK_ROWS = 128


class _Gone:
    """The value that marks a deleted key of the base."""


_GONE: Final = _Gone()


class LayeredDict(MutableMapping[str, V]):
    """A dictionary in two layers: a base that copies share, and the changes to it.

    The order is that of the base, then that of insertion. No value is ``None``.
    """

    __slots__ = ("_base", "_changes", "_length")

    def __init__(self, base: dict[str, V]) -> None:
        """Begin with ``base``, which neither this class nor its caller may change."""
        self._base = base
        self._changes: dict[str, V | _Gone] = {}
        self._length = len(base)

    def copy(self) -> LayeredDict[V]:
        """Return a dictionary that can be changed independently."""
        # The changes become a new base, which later copies share again.
        if len(self._changes) > _MAX_CHANGES:
            return LayeredDict(self.plain())
        copy = LayeredDict(self._base)
        copy._changes, copy._length = self._changes.copy(), self._length
        return copy

    def plain(self) -> dict[str, V]:
        """Return it as a ``dict``, which is not to be changed."""
        # The base itself, without a copy; no caller may change it.
        if not self._changes:
            return self._base
        values = self._base | self._changes
        # Listed first: a dictionary must not change while it is iterated over.
        for key in [key for key, value in self._changes.items() if value is _GONE]:
            del values[key]
        return cast("dict[str, V]", values)

    def items(self) -> ItemsView[str, V]:
        """Behave as the method of ``dict``."""
        return self.plain().items()

    def pairs(self) -> Iterator[tuple[str, V]]:
        """Yield the items one by one, for callers that do not need all of them."""
        for key, value in self._base.items():
            now = self._changes.get(key, value)
            if not isinstance(now, _Gone):
                yield key, now
        for key, added in self._changes.items():
            if key not in self._base and not isinstance(added, _Gone):
                yield key, added

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LayeredDict):
            # Copies of one base differ in few keys, so most comparisons end here.
            if self._base is other._base and self._changes == other._changes:
                return True
            other = other.plain()
        return self.plain() == other

    __hash__ = None  # type: ignore[assignment]

    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, /, default: V | D) -> V | D: ...
    def get(self, key: str, /, default: V | D | None = None) -> V | D | None:
        """Behave as the method of ``dict``."""
        value = self._changes.get(key)
        # No value is ``None`` (see the class), so this means that nothing was changed.
        if value is None:
            return self._base.get(key, default)
        return default if isinstance(value, _Gone) else value

    def has_place(self, key: str) -> bool:
        """Return whether ``key`` has a place in the order, even if it was deleted."""
        return key in self._base or key in self._changes

    def others(self, values: Mapping[str, V]) -> dict[str, V]:
        """Return those of ``values`` that are not the same objects here."""
        base_value = self._base.get
        others = {key: value for key, value in values.items() if base_value(key) is not value}
        for key in self._changes.keys() & values.keys():
            if self._changes[key] is values[key]:
                others.pop(key, None)
            else:
                others[key] = values[key]
        return others

    def __getitem__(self, key: str) -> V:
        value = self._changes.get(key)
        if value is None:
            return self._base[key]
        if isinstance(value, _Gone):
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: V) -> None:
        self._length += key not in self
        self._changes[key] = value

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        # A key of the shared base cannot be deleted, only marked.
        if key in self._base:
            self._changes[key] = _GONE
        else:
            del self._changes[key]
        self._length -= 1

    def __contains__(self, key: object) -> bool:
        if key in self._changes:
            return not isinstance(self._changes[key], _Gone)
        return key in self._base

    def __iter__(self) -> Iterator[str]:
        return iter(self.plain())

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.plain()!r})"


def layered(values: Mapping[str, V]) -> LayeredDict[V]:
    """Return a copy of ``values`` that can be changed; a ``dict`` of them is not changed later."""
    if isinstance(values, LayeredDict):
        return values.copy()
    return LayeredDict(values if isinstance(values, dict) else dict(values))


def as_dict(value: object) -> object:
    """Return what ``msgspec`` encodes for a ``LayeredDict``: an ``enc_hook``."""
    if isinstance(value, LayeredDict):
        return value.plain()
    # What msgspec expects of an ``enc_hook`` for a type that it does not know.
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")


class ChunkedRows(Sequence[T_co]):
    """Rows that never change. Those that follow from others share the chunks that are the same."""

    __slots__ = ("_chunks", "_length")

    def __init__(self, rows: Iterable[T_co] = ()) -> None:
        copied = tuple(rows)
        self._length = len(copied)
        self._chunks = [copied[at : at + _CHUNK_ROWS] for at in range(0, self._length, _CHUNK_ROWS)]

    def replaced(self: ChunkedRows[T_co], rows: Mapping[int, T_co]) -> ChunkedRows[T_co]:
        """Return these rows with others at some places."""
        copy = ChunkedRows[T_co]()
        # Only the list of chunks is copied; the chunks themselves are shared.
        copy._length, copy._chunks = self._length, self._chunks.copy()
        for place, row in rows.items():
            number, at = divmod(place, _CHUNK_ROWS)
            chunk = copy._chunks[number]
            copy._chunks[number] = (*chunk[:at], row, *chunk[at + 1 :])
        return copy

    @overload
    def __getitem__(self, place: int) -> T_co: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T_co]: ...
    def __getitem__(self, place: int | slice) -> T_co | Sequence[T_co]:
        if isinstance(place, slice):
            return tuple(self)[place]
        # Checked here, since a place in the last chunk beyond its end is not an error of the first
        # index.
        if not -self._length <= place < self._length:
            raise IndexError(place)
        number, at = divmod(place % self._length, _CHUNK_ROWS)
        return self._chunks[number][at]

    def __iter__(self) -> Iterator[T_co]:
        return chain.from_iterable(self._chunks)

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ChunkedRows):
            return self._chunks == other._chunks
        return tuple(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"
