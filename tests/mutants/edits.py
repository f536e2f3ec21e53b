"""A change of a source text at the place of a syntax node, which keeps the number of each line.

Tests are chosen by the lines that they ran, and a traceback shall lead to the line that is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast

Position = tuple[int, int]
"""A line from 1 and a column from 0, in bytes of UTF-8, as syntax nodes have them."""


class Edit(NamedTuple):
    """What stands from ``begin`` to before ``end`` becomes ``text``."""

    begin: Position
    end: Position
    text: str

    def apply(self, source: str) -> str:
        """Return the changed source; a shorter text is followed by empty lines."""
        data = source.encode()
        begin, end = offset(data, self.begin), offset(data, self.end)
        new = self.text.encode()
        missing = data[begin:end].count(b"\n") - new.count(b"\n")
        if missing < 0:
            raise ValueError(
                f"the text at line {self.begin[0]} has more lines than what it replaces"
            )
        return (data[:begin] + new + b"\n" * missing + data[end:]).decode()


def begin_of(node: ast.expr | ast.stmt) -> Position:
    """Return where a node begins."""
    return node.lineno, node.col_offset


def end_of(node: ast.expr | ast.stmt) -> Position:
    """Return the place after a node."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def text_between(source: str, begin: Position, end: Position) -> str:
    """Return what stands there in the source."""
    data = source.encode()
    return data[offset(data, begin) : offset(data, end)].decode()


def offset(data: bytes, position: Position) -> int:
    """Return the position as an index into the source in UTF-8."""
    line, column = position
    index = 0
    for _ in range(line - 1):
        index = data.index(b"\n", index) + 1
    return index + column
