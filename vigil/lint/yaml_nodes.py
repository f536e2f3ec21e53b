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
_OF_AN_OBJECT = frozenset(("apiVersion", "kind"))
_FREE_TEXT = frozenset(("command", "args", "data", "stringData", "value", "description", "message"))
"""Below these keys braces are ordinary text, such as a format of ``docker inspect``."""
_MERGES = 10
"""How many merges may lead from one mapping to the next, so that none leads to itself."""
_BLOCKS = ("|", ">")
# Decision 28: aliases are looked at at most twenty times as often as the text has nodes.
_LOOKS, _MORE_LOOKS = 20, 10_000
"""How often each node of a document may be looked at, and how often more in all."""
_TOO_MUCH = "is many times larger with its aliases than without"


def document_of(
    root: Any, text: str, into: UnparsedText, offset: int, *, is_partial: bool = False
) -> Iterator[ManifestDocument]:
    """Return the document below ``root``, or what of it is never read, into ``into``."""
    # An empty document between two separators.
    if type(root) is ScalarNode and not root.value:
        return
    walk = _Walk(offset)
    walk.check(root)
    if "{{" in text or "{%" in text:
        walk.find_actions(root)
    # Braces of a template are such keys until it is rendered, so they are no error there.
    if walk.unreadable and not walk.is_template:
        (into.unreadable if _is_object(root) else into.no_manifests).extend(walk.unreadable)
        return
    line = offset + root.start_mark.line + 1
    try:
        value = _NodeReader(offset, walk.count).node(root)
    except TooMuch as error:
        into.unreadable.append(Unreadable(line, str(error)))
    else:
        repeated = tuple(walk.repeated)
        yield ManifestDocument(value, line, repeated, walk.is_template, is_partial)


def _is_object(root: Any) -> bool:
    """Return whether a root is meant as an object of Kubernetes."""
    pairs = root.value if type(root) is MappingNode else ()
    return any(type(key) is ScalarNode and key.value in _OF_AN_OBJECT for key, _ in pairs)


class _Walk:
    """Looks at every node once, however many aliases lead there."""

    def __init__(self, offset: int) -> None:
        self.count = 0
        self.repeated: list[Repeated] = []
        self.unreadable: list[Unreadable] = []
        self.is_template = False
        self._offset = offset

    def check(self, root: Any) -> None:
        """Check the keys and tags of ``root`` and of everything below."""
        # By ``id``: an alias is the same node again, and a billion aliases cost nothing.
        seen: set[int] = set()
        stack = [root]
        while stack:
            node = stack.pop()
            if node.tag is not None:
                self._check_tag(node)
            if type(node) is ScalarNode or id(node) in seen:
                continue
            seen.add(id(node))
            self.count += len(node.value) + 1
            if type(node) is SequenceNode:
                values = node.value
            else:
                keys = {key.value for key, _ in node.value if type(key) is ScalarNode}
                # Only then can there be a key twice, or one that is not text.
                if len(keys) != len(node.value):
                    self._check_keys(node)
                values = [value for _, value in node.value]
            stack += [
                value for value in values if type(value) is not ScalarNode or value.tag is not None
            ]

    def find_actions(self, root: Any) -> None:
        """Look for actions of a template outside of texts that may have them."""
        # With the kind of text: an alias may lead there from free text and from another key.
        seen: set[tuple[int, bool]] = set()
        stack = [(root, False)]
        while stack and not self.is_template:
            node, is_free = stack.pop()
            if type(node) is ScalarNode:
                self.is_template = not is_free and ACTION.search(node.value) is not None
            elif (id(node), is_free) not in seen:
                seen.add((id(node), is_free))
                if type(node) is SequenceNode:
                    stack += [(value, is_free) for value in node.value]
                    continue
                for key, value in node.value:
                    # Braces of a template without quotes are a mapping as a key.
                    if type(key) is not ScalarNode or (not is_free and ACTION.search(key.value)):
                        self.is_template = True
                        break
                    stack.append((value, is_free or key.value in _FREE_TEXT))

    def _check_tag(self, node: Any) -> None:
        if node.tag not in _TAGS:
            reason = f"has the tag {quoted(node.tag)}: tags that make objects are not read"
            self.unreadable.append(Unreadable(self._line(node), reason))

    def _check_keys(self, node: Any) -> None:
        """Note keys that are not text, and keys that the mapping has twice."""
        first: dict[str, tuple[int, Any]] = {}
        for key, value in node.value:
            if type(key) is not ScalarNode:
                self.unreadable.append(Unreadable(self._line(key), "has a key that is not text"))
            elif key.value in first and key.value != _MERGE:
                line, other = first[key.value]
                same = type(value) is ScalarNode is type(other) and value.value == other.value
                self.repeated.append(Repeated(key.value, self._line(key), line, same))
            else:
                first[key.value] = (self._line(key), value)

    def _line(self, node: Any) -> int:
        return self._offset + int(node.start_mark.line) + 1


class _NodeReader:
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
        """Return the members of a mapping, and behind its own those of mappings that it merges.

        A key that is not text, which a template has, is not among them.
        """
        members = {key.value: (key, value) for key, value in raw.value if type(key) is ScalarNode}
        # A quoted ``<<`` is a key as any other (YAML 1.1, merge type).
        if _MERGE not in members or members[_MERGE][0].style:
            return members
        merged = members.pop(_MERGE)[1]
        others = merged.value if type(merged) is SequenceNode else [merged]
        for other in others if merges < _MERGES else ():
            if type(other) is MappingNode:
                # Merged members count as looks: chains of merges multiply them as aliases do.
                self._left -= len(other.value) + 1
                if self._left < 0:
                    raise TooMuch(_TOO_MUCH)
                # Own members win over merged ones, and earlier merges over later.
                members = self._members(other, merges + 1) | members
        return members
