"""A sequence of rows for all nodes whose copies cost as much as their changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar, overload

T_co = TypeVar("T_co", covariant=True)

# A changed row copies 128 others; 10,000 rows are 79 chunks.
_SIZE = 128


class ChunkedRows(Sequence[T_co]):
    """Rows that never change. Those that follow from others share the chunks that are the same."""

    __slots__ = ("_chunks", "_length")

    def __init__(self, rows: Iterable[T_co] = ()) -> None:
        kept = tuple(rows)
        self._length = len(kept)
        self._chunks = [kept[at : at + _SIZE] for at in range(0, self._length, _SIZE)]

    def replaced(self: ChunkedRows[T_co], rows: Mapping[int, T_co]) -> ChunkedRows[T_co]:
        """Return these rows with others at some places."""
        copy = ChunkedRows[T_co]()
        # Only the list of chunks is copied; the chunks themselves are shared.
        copy._length, copy._chunks = self._length, self._chunks.copy()
        for place, row in rows.items():
            number, at = divmod(place, _SIZE)
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
        number, at = divmod(place % self._length, _SIZE)
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
