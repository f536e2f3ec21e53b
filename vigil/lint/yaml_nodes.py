"""Turns nodes of YAML into values, and finds wrong keys, tags, aliases and actions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from yaml import MappingNode, ScalarNode, SequenceNode

from advisor.lint.model import Mapping, Scalar, Sequence
from contract.errors import quoted
from vigil.lint.documents import ManifestDocument, Repeated, TooMuch, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.model import Node
    from vigil.lint.documents import UnparsedText

ACTION = re.compile(r"\{\{|\{%")
"""Where an action of a template begins."""
_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "map", "seq", "binary", "timestamp")
)
_STRING = "tag:yaml.org,2002:str"
_MERGE = "<<"
_FREE_TEXT = frozenset(("command", "args", "data", "stringData", "value", "description", "message"))
"""Below these keys braces are ordinary text, such as a format of ``docker inspect``."""
_MERGES = 10
"""How many merges may lead from one mapping to the next, so that none leads to itself."""
_BLOCKS = ("|", ">")
_LOOKS, _MORE_LOOKS = 20, 10_000
"""How often each node of a document may be looked at, and how often more in all."""
_TOO_MUCH = "is many times larger with its aliases than without"


def document_of(
    root: Any, text: str, into: UnparsedText, offset: int
) -> Iterator[ManifestDocument]:
    """Return the document below ``root``, or what of it is never read, into ``into``."""
    if type(root) is ScalarNode and not root.value:
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
        yield ManifestDocument(value, line, tuple(walk.repeated), is_template=walk.is_template)


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
            stack += [one for one in values if type(one) is not ScalarNode or one.tag is not None]

    def for_actions(self, root: Any) -> None:
        """Look for actions of a template outside of texts that may have them."""
        seen: set[int] = set()
        stack = [root]
        while stack and not self.is_template:
            node = stack.pop()
            if type(node) is ScalarNode:
                self.is_template = ACTION.search(node.value) is not None
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
        """Return a mapping with a key that is no text, or that it has twice."""
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
    """Makes values of nodes when they are looked at."""

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
        """Return the members of a mapping, and behind its own those of mappings that it merges."""
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
