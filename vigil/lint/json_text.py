"""Reads JSON with the lines of its values, without recursion."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from advisor.lint.model import Mapping, Scalar, Sequence
from vigil.lint.documents import (
    DEPTH,
    IN_ONE,
    MAX_VALUES,
    ManifestDocument,
    Repeated,
    Unreadable,
    UnreadableFrom,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.model import Node
    from vigil.lint.documents import UnparsedText

_Members: TypeAlias = dict[str, tuple[object, object]]

# One pattern for all tokens: a scanner in Python that looks at each character is far slower.
_TOKEN = re.compile(
    r"[ \t\r\n]*(?:"
    r'("[^"\\\x00-\x1f]*")'
    r'|("(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")'
    r"|(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)"
    r"|([{}\[\]:,]))"
)
_BLANK = re.compile(r"[ \t\r\n]*")
_LIST = re.compile(
    r'\s*\{\s*(?:"(?:apiVersion|kind)"\s*:\s*"[^"\\]*"\s*,\s*|"metadata"\s*:\s*\{[^{}]*\}\s*,\s*)*'
    r'"items"\s*:\s*\['
)
"""How a List begins, as kubectl and the API server write it."""
_HEADER = re.compile(r'"(kind|apiVersion)"\s*:\s*"([^"\\]*)"')
# The API server writes ``kind`` and ``apiVersion`` before or behind the items.
_HEADER_LENGTH = 2000
"""So many characters at the end of a List may have its kind."""


class NoJson(UnreadableFrom):
    """The text is not valid JSON from ``line`` on."""


def read_json(text: str, into: UnparsedText) -> Iterator[ManifestDocument]:
    """Return the values of ``text``, one by one; what is not valid JSON goes into ``into``."""
    scanner = _Scanner(text, 0)
    try:
        if is_long_list(text):
            yield from scanner.items()
        while scanner.has_more():
            yield scanner.document()
    except NoJson as error:
        into.unreadable.append(Unreadable(error.line, error.why))


def is_long_list(text: str) -> bool:
    """Return whether a text is a List whose items are read one at a time."""
    return len(text) > IN_ONE and _LIST.match(text) is not None


def json_value(text: str, offset: int) -> ManifestDocument:
    """Return the one value of ``text``. Raises ``NoJson``."""
    scanner = _Scanner(text, offset)
    document = scanner.document()
    if scanner.has_more():
        raise NoJson(scanner.line(), "has something behind its end")
    return document


class _Scanner:
    """Reads values off a text."""

    def __init__(self, text: str, offset: int) -> None:
        self._text = text
        self._at = 0
        self._offset = offset
        # An array of integers: the offsets of a million lines in 8 MB.
        self._ends = array("L", (result.start() for result in re.finditer("\n", text)))
        self._repeated: list[Repeated] = []

    def line(self) -> int:
        """Return the line of what was read last."""
        return bisect_right(self._ends, self._at - 1) + self._offset + 1

    def has_more(self) -> bool:
        """Skip blanks, and return whether anything follows."""
        match = _BLANK.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at < len(self._text)

    def document(self) -> ManifestDocument:
        """Return the next value. Raises ``NoJson``."""
        self._repeated = []
        self.has_more()
        line = bisect_right(self._ends, self._at) + self._offset + 1
        return ManifestDocument(self._value(), line, tuple(self._repeated))

    def items(self) -> Iterator[ManifestDocument]:
        """Return the items of the List that is next, one in memory at a time. Raises ``NoJson``.

        An item of a typed list, which has no kind of its own, comes back in such a list.
        """
        begin = _LIST.match(self._text, self._at)
        assert begin is not None
        # Only behind the last bracket: the items before it have kinds of their own.
        header = dict(_HEADER.findall(self._text[-_HEADER_LENGTH:].rpartition("]")[2]))
        header |= dict(_HEADER.findall(begin[0]))
        self._at = begin.end()
        self.has_more()
        kind = "]" if self._text.startswith("]", self._at) else ","
        self._at += kind == "]"
        while kind == ",":
            document = self.document()
            yield replace(document, root=_in_list(document.root, header))
            kind, _ = self._token()
        if kind != "]":
            raise NoJson(self.line(), "has no comma or ']' here")
        while (kind := self._token()[0]) == ",":
            self._key(_Open("{", self.line()), needed=True)
            self._value()
        if kind != "}":
            raise NoJson(self.line(), "has no comma or '}' here")

    def _token(self) -> tuple[str, str]:
        """Return what kind of token is next, and its text without quotes."""
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            self.has_more()
            self._at += 1
            raise NoJson(self.line(), self._why())
        self._at = match.end()
        match match.lastindex:
            case 1:
                return "text", match[1][1:-1]
            case 2:
                # Only texts with escapes pay for decoding them.
                return "text", json.loads(match[2])
            case 3:
                return "word", match[3]
            case _:
                return match[4], ""

    def _why(self) -> str:
        rest = self._text[self._at - 1 : self._at + 1]
        if not rest:
            return "is cut off"
        if rest[0] == "#" or rest == "//" or rest == "/*":
            return "has a comment, which JSON does not know"
        if rest[0] == '"':
            return "has a text that does not end, or has a control character"
        return "is not valid JSON here"

    def _value(self) -> Node:
        """Return the next value with everything in it."""
        # A stack of its own: recursion would end at a thousand levels, and input may be an attack.
        stack: list[_Open] = []
        for _ in range(MAX_VALUES):
            kind, text = self._token()
            if kind in "}]" and stack and stack[-1].may_end(kind):
                node: Node = stack.pop().closed()
            elif kind in "{[":
                if len(stack) >= DEPTH:
                    raise NoJson(self.line(), f"is nested more than {DEPTH} levels deep")
                stack.append(_Open(kind, self.line()))
                if kind == "[" or self._key(stack[-1]):
                    continue
                node = stack.pop().closed()
            elif kind in ("text", "word"):
                node = Scalar(text, self.line(), is_quoted=kind == "text")
            else:
                raise NoJson(self.line(), f"has {kind!r} where a value belongs")
            while True:
                if not stack:
                    return node
                self._add(stack[-1], node)
                kind, _ = self._token()
                if kind == ",":
                    if stack[-1].members is not None and not self._key(stack[-1], needed=True):
                        raise NoJson(self.line(), "has a comma at its end")
                    break
                if kind != stack[-1].end:
                    raise NoJson(self.line(), f"has no comma or {stack[-1].end!r} here")
                node = stack.pop().closed()
        raise NoJson(self.line(), f"has more than {MAX_VALUES:,} values")

    def _add(self, to: _Open, node: Node) -> None:
        if to.members is None:
            to.items.append(node)
            to.is_fresh = False
            return
        before = to.members.get(to.key)
        if before is not None:
            other = before[1]
            same = (
                isinstance(node, Scalar) and isinstance(other, Scalar) and node.text == other.text
            )
            self._repeated.append(Repeated(to.key, to.key_line, _line(before[0]), same))
        # The last one counts, as in Go and in Python.
        to.members[to.key] = (to.key_line, node)

    def _key(self, of: _Open, *, needed: bool = False) -> bool:
        """Read a key with its colon; false where the mapping ends instead."""
        kind, text = self._token()
        if kind == "}" and not needed:
            return False
        if kind != "text":
            raise NoJson(self.line(), "has no key in quotes here")
        of.key, of.key_line = text, self.line()
        if self._token()[0] != ":":
            raise NoJson(self.line(), "has no colon behind a key")
        return True


class _Open:
    """A mapping or list whose end was not read yet."""

    __slots__ = ("end", "is_fresh", "items", "key", "key_line", "line", "members")

    def __init__(self, begin: str, line: int) -> None:
        self.line = line
        self.members: _Members | None = {} if begin == "{" else None
        self.items: list[Node] = []
        self.end = "}" if begin == "{" else "]"
        self.is_fresh = True
        self.key, self.key_line = "", line

    def may_end(self, kind: str) -> bool:
        """Return whether ``kind`` closes it before its first member."""
        return kind == self.end == "]" and self.is_fresh

    def closed(self) -> Node:
        """Return the value."""
        if self.members is None:
            return Sequence(self.line, self.items, _same)
        return Mapping(self.line, self.members, _same, _line)


def _in_list(item: Node, header: dict[str, str]) -> Node:
    """Return an item with the kind of its list, where it has none of its own."""
    if not isinstance(item, Mapping) or "kind" in item or not header.get("kind"):
        return item
    line = item.line
    members: _Members = {
        key: (line, Scalar(value, line, is_quoted=True)) for key, value in header.items()
    }
    members["items"] = (line, Sequence(line, [item], _same))
    return Mapping(line, members, _same, _line)


def _line(key: object) -> int:
    assert isinstance(key, int)
    return key


def _same(raw: object) -> Node:
    assert isinstance(raw, (Scalar, Sequence, Mapping))
    return raw
