"""YAML with the lines of its values.

libyaml composes the nodes; nothing of a document is constructed, so a tag cannot make an object.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from yaml import MappingNode, MarkedYAMLError, ScalarNode, SequenceNode, YAMLError
from yaml._yaml import CParser

from advisor.lint.model import Mapping, Scalar, Sequence
from contract.errors import quoted
from vigil.lint.documents import DEPTH, Document, Repeated, TooMuch, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.model import Node
    from vigil.lint.documents import Text

_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "map", "seq", "binary", "timestamp")
)
_STRING = "tag:yaml.org,2002:str"
_MERGE = "<<"
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")
_SEPARATOR = re.compile(r"^(?:---(?=[ \t\r\n]|$)|\.\.\.(?=[ \t\r\n]|$))", re.MULTILINE)
_MEMBER = re.compile(r"(\s*(?:-\s+)*)[^\s#].*?:(?:\s|$)")
_ACTION = re.compile(r"\{\{|\{%")
_FREE_TEXT = frozenset(("command", "args", "data", "stringData", "value", "description", "message"))
"""Below these keys braces are ordinary text, such as a format of ``docker inspect``."""
_MERGES = 10
"""How many merges may lead from one mapping to the next, so that none leads to itself."""
_BLOCKS = ("|", ">")
_LOOKS, _MORE_LOOKS = 20, 10_000
"""How often each node of a document may be looked at, and how often more in all."""
_TOO_MUCH = "is many times larger with its aliases than without"
_QUOTE_LINES = 50
"""So many lines before an error a quote is looked for that was never closed."""
_ERRORS = 20
_PARSED = 4 << 20
"""So many characters are parsed again to find them."""
"""How many errors of one document are looked for."""


class _TooDeep(Exception):
    """A value is nested too deep."""

    def __init__(self, line: int) -> None:
        self.line = line


class _Composer(CParser):  # type: ignore[misc]
    """Composes nodes without resolving what their scalars are, which few of them need."""

    depth = 0

    def resolve(self, kind: object, value: object, implicit: object) -> None:
        """Return no tag: the scalar has none of its own."""

    def descend_resolver(self, parent: Any, _: object) -> None:
        """Count a level. Raises ``_TooDeep``."""
        self.depth += 1
        if self.depth > DEPTH:
            raise _TooDeep(parent.start_mark.line)

    def ascend_resolver(self) -> None:
        """Leave a level."""
        self.depth -= 1


def read_yaml(text: str, into: Text, offset: int = 0) -> Iterator[Document]:
    """Return the documents of ``text``, whose first line is line ``offset`` + 1 of its file.

    What is wrong goes into ``into``: all of it at once, as far as one error hides no other. Of a
    document with an error nothing else is returned.
    """
    controls = {
        1 + text.count("\n", 0, found.start()): found[0] for found in _CONTROL.finditer(text)
    }
    if controls:
        for line, found in controls.items():
            why = f"has the control character U+{ord(found):04X}"
            into.unreadable.append(Unreadable(offset + line, why))
        return
    # YAML ends lines with them, editors do not.
    text = _LINE_ENDS.sub(" ", text)
    last = -1
    composer = _Composer(text)
    try:
        while composer.check_node():
            root = composer.get_node()
            last = root.start_mark.line
            yield from _document(root, text, into, offset)
    except (YAMLError, _TooDeep):
        for start, chunk in _chunks(text):
            if start > last:
                yield from _with_errors(chunk, into, offset + start)


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    """The texts of the documents with the index of their first line."""
    starts = [0, *(found.start() for found in _SEPARATOR.finditer(text)), len(text)]
    line = 0
    for start, end in pairwise(starts):
        chunk = text[start:end]
        if chunk.strip():
            yield line, chunk
        line += chunk.count("\n")


def _with_errors(text: str, into: Text, offset: int) -> Iterator[Document]:
    """One document after another one had an error: itself, or its errors."""
    lines = text.split("\n")
    found: list[Unreadable] = []
    for _ in range(max(min(_ERRORS, _PARSED // len(text)), 2)):
        try:
            roots = [*_composed("\n".join(lines))]
            break
        except _TooDeep as error:
            why = f"is nested more than {DEPTH} levels deep"
            found.append(Unreadable(offset + error.line + 1, why))
            break
        except YAMLError as error:
            index, why = _explained(error, lines)
            if not found or offset + index + 1 > found[-1].line:
                found.append(Unreadable(offset + index + 1, why))
                lines[index] = _mended(lines[index], index)
            elif lines[index]:
                lines[index] = ""
            else:
                break
    if not found:
        for root in roots:
            yield from _document(root, text, into, offset)
    elif action := _ACTION.search(text):
        into.templates.append(offset + 1 + text.count("\n", 0, action.start()))
    else:
        into.unreadable.extend(found)


def _composed(text: str) -> Iterator[Any]:
    composer = _Composer(text)
    while composer.check_node():
        yield composer.get_node()


def _explained(error: YAMLError, lines: list[str]) -> tuple[int, str]:
    """The index of the line of ``error``, and what is wrong there."""
    if not isinstance(error, MarkedYAMLError):
        return 0, " ".join(str(error).split())
    context = error.context or ""
    begins = context.startswith(("while scanning", "while parsing a flow"))
    mark = error.context_mark if begins and error.context_mark else error.problem_mark
    why = " ".join(part for part in (error.problem, context and f"({context})") if part)
    index = min(mark.line, len(lines) - 1) if mark else 0
    opened = _opened(lines, index)
    if opened is not None:
        return opened, f"has a quote that does not end in this line ({why})"
    return index, why


def _opened(lines: list[str], index: int) -> int | None:
    """The index of the line whose quote was closed by mistake where another one begins."""
    for end in (index, index - 1):
        if end > 0 and '"' in lines[end]:
            for before in range(end - 1, max(end - _QUOTE_LINES, -1), -1):
                if lines[before].count('"') % 2:
                    return before
    return None


def _mended(line: str, index: int) -> str:
    """A line that keeps the structure around ``line`` and has no error of its own."""
    member = _MEMBER.match(line)
    begin = member[1].replace("\t", "  ") if member else ""
    return f"{begin}unreadable-{index}:" if member else ""


def _document(root: Any, text: str, into: Text, offset: int) -> Iterator[Document]:
    """The document below ``root``, unless it has what is never read."""
    if root is None or (type(root) is ScalarNode and not root.value):
        return
    walk = _Walk(offset)
    walk.through(root)
    if "{{" in text or "{%" in text:
        walk.for_actions(root)
    if walk.unreadable and not walk.is_template:
        into.unreadable.extend(walk.unreadable)
        return
    line = offset + root.start_mark.line + 1
    try:
        value = _Reader(offset, walk.count).node(root)
    except TooMuch as error:
        into.unreadable.append(Unreadable(line, str(error)))
    else:
        yield Document(value, line, tuple(walk.repeated), is_template=walk.is_template)


class _Walk:
    """Looks at every node once, however many aliases lead there."""

    def __init__(self, offset: int) -> None:
        self.count = 0
        self.repeated: list[Repeated] = []
        self.unreadable: list[Unreadable] = []
        self.is_template = False
        self._offset = offset

    def through(self, root: Any) -> None:
        """Look at ``root`` and everything below."""
        seen: set[int] = set()
        stack = [root]
        while stack:
            node = stack.pop()
            if node.tag is not None:
                self._judge_tag(node)
            if type(node) is ScalarNode or id(node) in seen:
                continue
            seen.add(id(node))
            self.count += len(node.value) + 1
            if type(node) is SequenceNode:
                values = node.value
            else:
                keys = {key.value for key, _ in node.value if type(key) is ScalarNode}
                if len(keys) != len(node.value):
                    self._look_at_keys(node)
                values = [value for _, value in node.value]
            for value in values:
                if type(value) is not ScalarNode or value.tag is not None:
                    stack.append(value)

    def for_actions(self, root: Any) -> None:
        """Look for actions of a template outside of texts that may have them."""
        seen: set[int] = set()
        stack = [root]
        while stack and not self.is_template:
            node = stack.pop()
            if type(node) is ScalarNode:
                self.is_template = _ACTION.search(node.value) is not None
            elif id(node) not in seen:
                seen.add(id(node))
                if type(node) is SequenceNode:
                    stack += node.value
                    continue
                # Braces of a template without quotes are a mapping as a key.
                self.is_template = any(type(key) is not ScalarNode for key, _ in node.value)
                stack += [
                    value
                    for key, value in node.value
                    if type(key) is ScalarNode and key.value not in _FREE_TEXT
                ]

    def _judge_tag(self, node: Any) -> None:
        if node.tag not in _TAGS:
            why = f"has the tag {quoted(node.tag)}: tags that make objects are not read"
            self.unreadable.append(Unreadable(self._line(node), why))

    def _look_at_keys(self, node: Any) -> None:
        """A mapping with a key that is no text, or that it has twice."""
        first: dict[str, tuple[int, Any]] = {}
        for key, value in node.value:
            if type(key) is not ScalarNode:
                self.unreadable.append(Unreadable(self._line(key), "has a key that is no text"))
            elif key.value in first and key.value != _MERGE:
                line, other = first[key.value]
                same = type(value) is ScalarNode is type(other) and value.value == other.value
                self.repeated.append(Repeated(key.value, self._line(key), line, same))
            else:
                first[key.value] = (self._line(key), value)

    def _line(self, node: Any) -> int:
        return self._offset + int(node.start_mark.line) + 1


class _Reader:
    """Makes values of nodes when somebody looks at them."""

    __slots__ = ("_left", "_offset")

    def __init__(self, offset: int, count: int) -> None:
        self._offset = offset + 1
        self._left = _LOOKS * count + _MORE_LOOKS

    def node(self, raw: Any) -> Node:
        """Return the value of a node. Raises ``TooMuch``."""
        self._left -= 1
        if self._left < 0:
            raise TooMuch(_TOO_MUCH)
        line = raw.start_mark.line + self._offset
        if type(raw) is ScalarNode:
            style = raw.style
            is_quoted = bool(style) or raw.tag == _STRING
            return Scalar(raw.value, line, is_quoted=is_quoted, is_block=style in _BLOCKS)
        if type(raw) is SequenceNode:
            return Sequence(line, raw.value, self.node)
        return Mapping(line, self._members(raw, 0), self.node, self.line)

    def line(self, key: Any) -> int:
        """Return the line of a key."""
        return int(key.start_mark.line) + self._offset

    def _members(self, raw: Any, merges: int) -> dict[str, tuple[object, object]]:
        """The members of a mapping, with those of the mappings that it merges behind its own."""
        members = {key.value: (key, value) for key, value in raw.value}
        if _MERGE not in members or members[_MERGE][0].style:
            return members
        merged = members.pop(_MERGE)[1]
        others = merged.value if type(merged) is SequenceNode else [merged]
        for other in others if merges < _MERGES else ():
            if type(other) is MappingNode:
                self._left -= len(other.value) + 1
                if self._left < 0:
                    raise TooMuch(_TOO_MUCH)
                members = self._members(other, merges + 1) | members
        return members
