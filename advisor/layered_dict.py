"""A dictionary of all nodes whose copies cost as much as their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Final, TypeVar, cast, overload

V = TypeVar("V")
D = TypeVar("D")

_MOST_CHANGES = 256
"""Beside a base; a copy of one with more has a base of its own."""


class _Gone:
    """What stands for a key of the base that is not there any more."""


_GONE: Final = _Gone()


class LayeredDict(MutableMapping[str, V]):
    """A dictionary in two layers: a base that copies share, and what is otherwise than in it.

    The order is that of the base, then that of insertion. No value is ``None``.
    """

    __slots__ = ("_base", "_changes", "_length")

    def __init__(self, base: dict[str, V]) -> None:
        """``base`` is never changed: neither here nor by who gives it."""
        self._base = base
        self._changes: dict[str, V | _Gone] = {}
        self._length = len(base)

    def copy(self) -> LayeredDict[V]:
        """Return one that is changed by itself."""
        if len(self._changes) > _MOST_CHANGES:
            whole = self._base | self._changes
            for key in [key for key, value in self._changes.items() if value is _GONE]:
                del whole[key]
            return LayeredDict(cast("dict[str, V]", whole))
        found = LayeredDict(self._base)
        found._changes, found._length = self._changes.copy(), self._length
        return found

    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, /, default: V | D) -> V | D: ...
    def get(self, key: str, /, default: V | D | None = None) -> V | D | None:
        """As that of ``dict``."""
        value = self._changes.get(key)
        if value is None:
            return self._base.get(key, default)
        return default if isinstance(value, _Gone) else value

    def has_place(self, key: str) -> bool:
        """Whether ``key`` has a place in the order, be it there or not."""
        return key in self._base or key in self._changes

    def others(self, values: Mapping[str, V]) -> dict[str, V]:
        """Return those of ``values`` that are not the same objects here."""
        known = self._base.get
        found = {key: value for key, value in values.items() if known(key) is not value}
        for key in self._changes.keys() & values.keys():
            if self._changes[key] is values[key]:
                found.pop(key, None)
            else:
                found[key] = values[key]
        return found

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
        if key in self._base:
            self._changes[key] = _GONE
        else:
            del self._changes[key]
        self._length -= 1

    def __contains__(self, key: object) -> bool:
        if key in self._changes:
            return not isinstance(self._changes[key], _Gone)  # type: ignore[index]
        return key in self._base

    def __iter__(self) -> Iterator[str]:
        if not self._changes:
            yield from self._base
            return
        for key in self._base:
            if not isinstance(self._changes.get(key), _Gone):
                yield key
        for key in self._changes:
            if key not in self._base:
                yield key

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"


def layered(values: Mapping[str, V]) -> LayeredDict[V]:
    """Return a copy of ``values`` that can be changed; a ``dict`` of them is not changed later."""
    if isinstance(values, LayeredDict):
        return values.copy()
    return LayeredDict(values if isinstance(values, dict) else dict(values))


def as_dict(value: object) -> object:
    """Return what ``msgspec`` encodes for a ``LayeredDict``: an ``enc_hook``."""
    if isinstance(value, LayeredDict):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")
