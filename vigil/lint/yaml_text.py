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
from vigil.lint.documents import DEPTH, Budget, Document, Repeated, Unreadable

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
_SEPARATOR = re.compile(r"^(?:---(?=[ \t\r\n]|$)|\.\.\.(?=[ \t\r\n]|$))", re.MULTILINE)
_MEMBER = re.compile(r"(\s*(?:-\s+)*)[^\s#].*?:(?:\s|$)")
_ACTION = re.compile(r"\{\{|\{%")
_FREE_TEXT = frozenset(("command", "args", "data", "stringData", "value", "description", "message"))
"""Below these keys braces are ordinary text, such as a format of ``docker inspect``."""
_MERGES = 10
"""How many merges may lead from one mapping to the next, so that none leads to itself."""
_ERRORS = 20
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
    for _ in range(_ERRORS):
        try:
            roots = [*_composed("\n".join(lines))]
            break
        except _TooDeep as error:
            why = f"is nested more than {DEPTH} levels deep"
            found.append(Unreadable(offset + error.line + 1, why))
            break
        except YAMLError as error:
            index, why = _explained(error, len(lines))
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


def _explained(error: YAMLError, lines: int) -> tuple[int, str]:
    """The index of the line of ``error``, and what is wrong there."""
    if not isinstance(error, MarkedYAMLError):
        return 0, " ".join(str(error).split())
    context = error.context or ""
    begins = context.startswith(("while scanning", "while parsing a flow"))
    mark = error.context_mark if begins and error.context_mark else error.problem_mark
    why = " ".join(part for part in (error.problem, context and f"({context})") if part)
    return (min(mark.line, lines - 1) if mark else 0), why


def _mended(line: str, index: int) -> str:
    """A line that keeps the structure around ``line`` and has no error of its own."""
    member = _MEMBER.match(line)
    begin = member[1].replace("\t", "  ") if member else ""
    return f"{begin}unreadable-{index}:" if member else ""


def _document(root: Any, text: str, into: Text, offset: int) -> Iterator[Document]:
    """The document below ``root``, unless it has what is never read."""
    if root is None or (type(root) is ScalarNode and not root.value):
        return
    walk = _Walk(offset, has_actions=_ACTION.search(text) is not None)
    walk.through(root)
    if walk.unreadable and not walk.is_template:
        into.unreadable.extend(walk.unreadable)
        return
    budget = Budget(walk.count)
    yield Document(
        _Reader(offset, budget).node(root),
        offset + root.start_mark.line + 1,
        tuple(walk.repeated),
        is_template=walk.is_template,
    )


class _Walk:
    """Looks at every node once, however many aliases lead there."""

    def __init__(self, offset: int, *, has_actions: bool) -> None:
        self.count = 0
        self.repeated: list[Repeated] = []
        self.unreadable: list[Unreadable] = []
        self.is_template = False
        self._offset = offset
        self._has_actions = has_actions

    def through(self, root: Any) -> None:
        """Look at ``root`` and everything below."""
        seen: set[int] = set()
        stack = [(root, False)]
        while stack:
            node, is_free = stack.pop()
            if node.tag is not None:
                self._judge_tag(node)
            if type(node) is ScalarNode:
                if self._has_actions and not is_free and _ACTION.search(node.value):
                    self.is_template = True
                continue
            if id(node) in seen:
                continue
            seen.add(id(node))
            self.count += len(node.value) + 1
            if type(node) is MappingNode:
                self._look_at_keys(node)
                stack += [
                    (value, is_free or (self._has_actions and key.value in _FREE_TEXT))
                    for key, value in node.value
                    if type(key) is ScalarNode
                    and (type(value) is not ScalarNode or value.tag or self._has_actions)
                ]
            else:
                stack += [
                    (value, is_free)
                    for value in node.value
                    if type(value) is not ScalarNode or value.tag or self._has_actions
                ]

    def _judge_tag(self, node: Any) -> None:
        if node.tag not in _TAGS:
            why = f"has the tag {quoted(node.tag)}: tags that make objects are not read"
            self.unreadable.append(Unreadable(self._line(node), why))

    def _look_at_keys(self, node: Any) -> None:
        keys = [key.value for key, _ in node.value]
        if all(type(key) is str for key in keys) and len(set(keys)) == len(keys):
            return
        first: dict[str, tuple[int, Any]] = {}
        for key, value in node.value:
            if type(key) is not ScalarNode:
                # Braces of a template without quotes are a mapping as a key.
                self.is_template = self.is_template or self._has_actions
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

    __slots__ = ("_budget", "_offset")

    def __init__(self, offset: int, budget: Budget) -> None:
        self._offset = offset + 1
        self._budget = budget

    def node(self, raw: Any) -> Node:
        """Return the value of a node. Raises ``TooMuch``."""
        self._budget.spend()
        line = raw.start_mark.line + self._offset
        if type(raw) is ScalarNode:
            is_quoted = raw.style is not None and raw.style != ""
            return Scalar(
                raw.value,
                line,
                is_quoted=is_quoted or raw.tag == _STRING,
                is_block=raw.style == "|" or raw.style == ">",
            )
        if type(raw) is SequenceNode:
            return Sequence(line, raw.value, self.node)
        return Mapping(line, self._members(raw, 0), self.node)

    def _members(self, raw: Any, merges: int) -> dict[str, tuple[int, object]]:
        """The members of a mapping, with those of the mappings that it merges behind its own."""
        members: dict[str, tuple[int, object]] = {}
        merged = []
        for key, value in raw.value:
            if key.value == _MERGE and not key.style:
                merged += value.value if type(value) is SequenceNode else [value]
            else:
                members[key.value] = (key.start_mark.line + self._offset, value)
        for other in merged if merges < _MERGES else ():
            if type(other) is MappingNode:
                self._budget.spend()
                members = self._members(other, merges + 1) | members
        return members
