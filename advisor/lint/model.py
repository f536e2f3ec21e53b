"""A document as values that know their line, whatever it was written in.

Who reads files makes these values; a mapping is taken apart when it is looked into, because
checks look at a small part of a manifest.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, NoReturn, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class ScalarKind(Enum):
    """What a scalar is after the rules of YAML 1.1, by which kubectl reads."""

    STRING = auto()
    INTEGER = auto()
    FLOAT = auto()
    BOOLEAN = auto()
    NULL = auto()


_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), ScalarKind.NULL),
    **{
        form: ScalarKind.BOOLEAN
        for word in ("true", "false", "yes", "no", "on", "off", "y", "n")
        for form in (word, word.capitalize(), word.upper())
    },
}
_NUMBER_START = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", re.ASCII)
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
    r"|\.(?:nan|NaN|NAN)",
    re.ASCII,
)


def plain_kind(text: str) -> ScalarKind:
    """Return what ``text`` without quotes is."""
    word = _WORDS.get(text)
    if word is not None:
        return word
    # Most values are words, which their first letter shows quicker than a pattern.
    if text[0] not in _NUMBER_START:
        return ScalarKind.STRING
    if _INTEGER.fullmatch(text):
        return ScalarKind.INTEGER
    return ScalarKind.FLOAT if _FLOAT.fullmatch(text) else ScalarKind.STRING


class Scalar:
    """A text, number, boolean or null. ``is_block``: its text begins one line below ``line``."""

    __slots__ = ("is_block", "is_quoted", "line", "text")

    def __init__(self, text: str, line: int, *, is_quoted: bool, is_block: bool = False) -> None:
        self.text = text
        self.line = line
        self.is_quoted = is_quoted
        self.is_block = is_block

    @property
    def kind(self) -> ScalarKind:
        """What it is."""
        return ScalarKind.STRING if self.is_quoted else plain_kind(self.text)


class Sequence:
    """A list, taken apart when it is looked at."""

    __slots__ = ("_items", "_nodes", "_read", "line")

    def __init__(self, line: int, items: Iterable[object], read: Callable[[object], Node]) -> None:
        self.line = line
        self._items = items
        self._nodes: list[Node] | None = None
        self._read = read

    def __iter__(self) -> Iterator[Node]:
        if self._nodes is None:
            self._nodes = [*map(self._read, self._items)]
        return iter(self._nodes)

    def mappings(self) -> Iterator[Mapping]:
        """Return the members that are mappings."""
        return (item for item in self if isinstance(item, Mapping))


class Mapping:
    """Members by key; of a key that is there twice, the later one."""

    __slots__ = ("_line", "_members", "_nodes", "_read", "line")

    def __init__(
        self,
        line: int,
        members: dict[str, tuple[object, object]],
        read: Callable[[object], Node],
        line_of: Callable[[object], int],
    ) -> None:
        self.line = line
        self._members = members
        self._nodes: dict[str, Node] = {}
        self._read = read
        self._line = line_of

    def __iter__(self) -> Iterator[str]:
        """Return the keys in their order."""
        return iter(self._members)

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def line_of(self, key: str, without: int | None = None) -> int:
        """Return the line of ``key``, or ``without``, by default the mapping's own, without one."""
        member = self._members.get(key)
        if without is None:
            without = self.line
        return without if member is None else self._line(member[0])

    def get(self, key: str) -> Node | None:
        """Return the value of ``key``."""
        node = self._nodes.get(key)
        if node is None:
            member = self._members.get(key)
            if member is None:
                return None
            node = self._nodes[key] = self._read(member[1])
        return node

    def items(self) -> Iterator[tuple[str, Node]]:
        """Return all members."""
        for key in self._members:
            node = self.get(key)
            if node is not None:
                yield key, node

    def mapping(self, *path: str) -> Mapping | None:
        """Return the mapping below ``path``."""
        item = self
        for key in path:
            below = item.get(key)
            if not isinstance(below, Mapping):
                return None
            item = below
        return item

    def scalar(self, *path: str) -> Scalar | None:
        """Return the scalar below ``path``."""
        above = self.mapping(*path[:-1])
        result = above.get(path[-1]) if above is not None else None
        return result if isinstance(result, Scalar) else None

    def text(self, *path: str) -> str:
        """Return the text below ``path``, empty where there is none."""
        scalar = self.scalar(*path)
        return "" if scalar is None or scalar.kind is ScalarKind.NULL else scalar.text

    def count(self, *path: str) -> int | None:
        """Return the whole number below ``path``: 1 without one, ``None`` if not a number."""
        scalar = self.scalar(*path)
        return 1 if scalar is None else whole(scalar)

    def sequence(self, *path: str) -> Iterator[Mapping]:
        """Return the mappings of the list below ``path``."""
        above = self.mapping(*path[:-1])
        result = above.get(path[-1]) if above is not None else None
        return result.mappings() if isinstance(result, Sequence) else iter(())


Node: TypeAlias = Scalar | Sequence | Mapping


def empty(line: int) -> Mapping:
    """Return a mapping without members."""

    def refuse(raw: object) -> NoReturn:
        raise AssertionError(raw)

    return Mapping(line, {}, refuse, refuse)


def whole(scalar: Scalar | None) -> int | None:
    """Return the whole number that ``scalar`` is, as a number or as a text."""
    # Up to 18 digits: these always fit the integers of Go.
    if scalar is None or not re.fullmatch(r"[+-]?[0-9]{1,18}", scalar.text, re.ASCII):
        return None
    return int(scalar.text)
