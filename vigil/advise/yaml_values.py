"""Reads what ``kubectl get -o yaml`` writes, as JSON.

Scalars are resolved as Kubernetes resolves them, so a time stays a text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from yaml import MappingNode, SequenceNode, YAMLError
from yaml._yaml import CParser
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_DEPTH = 100
"""Levels of a value: an object of Kubernetes has fewer, and the parser in C would crash."""
_PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "null"))
"""What a plain scalar may be beside a text."""


class YamlDocument(NamedTuple):
    """A document as JSON, the number of its first line, and those of its ``items``."""

    line: int
    text: bytes
    item_lines: tuple[int, ...]


class UnreadableYaml(Exception):
    """What is not YAML of objects: the line, and why."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class _Loader(CParser, SafeConstructor, Resolver):  # type: ignore[misc]
    """Makes plain values of YAML; no tag can make an object."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (as its base has it)
        first: [item for item in resolvers if item[0] in _PLAIN]
        for first, resolvers in Resolver.yaml_implicit_resolvers.items()
    }

    def __init__(self, content: bytes) -> None:
        CParser.__init__(self, content)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)
        self._depth = 0

    def descend_resolver(self, parent: Any, _: object) -> None:
        """Count a level. Raises ``UnreadableYaml`` for too many."""
        # The parser in C calls this at each node; a check of the result would come too late.
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            line = 1 if parent is None else parent.start_mark.line + 1
            raise UnreadableYaml(line, f"a value is nested more than {_MAX_DEPTH} levels deep")

    def ascend_resolver(self) -> None:
        """Leave a level."""
        self._depth -= 1


def documents_of(content: bytes) -> Iterator[YamlDocument]:
    """Yield the documents that are not empty. Raises ``UnreadableYaml`` for other values."""
    try:
        loader = _Loader(content)
        while loader.check_node():
            node = loader.get_node()
            line = node.start_mark.line + 1
            if not isinstance(node, MappingNode):
                if getattr(node, "value", "") in ("", "null", "~"):
                    continue
                raise UnreadableYaml(line, "it is not an object")
            # Without both signs there is no alias, and the walk over all nodes is saved.
            if b"*" in content and b"&" in content:
                _refuse_aliases(node, set())
            lines = _item_lines(node)
            yield YamlDocument(line, msgspec.json.encode(loader.construct_document(node)), lines)
    except (YAMLError, TypeError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise UnreadableYaml(1 if mark is None else mark.line + 1, reason[:200]) from None


def _item_lines(node: Any) -> tuple[int, ...]:
    for key, value in node.value:
        if key.value == "items" and isinstance(value, SequenceNode):
            return tuple(item.start_mark.line + 1 for item in value.value)
    return ()


def _refuse_aliases(node: Any, seen: set[int]) -> None:
    """Raise ``UnreadableYaml`` for a value that is used twice: JSON would repeat it each time."""
    if not isinstance(node, MappingNode | SequenceNode):
        return
    if id(node) in seen:
        raise UnreadableYaml(node.start_mark.line + 1, "an alias uses a value again")
    seen.add(id(node))
    for item in node.value:
        for part in item if isinstance(item, tuple) else (item,):
            _refuse_aliases(part, seen)
