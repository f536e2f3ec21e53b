"""YAML with the lines of its values.

libyaml composes the nodes; nothing of a document is constructed, so a tag cannot make an object.

A text without an error is read in one pass. After an error, each document is read by itself, so
that it hides no other. Wrong lines are mended and the document is composed again, which finds all
of its errors at once.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from yaml import MarkedYAMLError, ScalarNode, YAMLError
from yaml._yaml import CParser

from vigil.lint.documents import (
    DEPTH,
    IN_ONE,
    MAX_VALUES,
    ManifestDocument,
    Unreadable,
    UnreadableFrom,
)
from vigil.lint.yaml_nodes import ACTION, document_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vigil.lint.documents import UnparsedText

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")
_SEPARATOR = re.compile(r"^(?:---(?=[ \t\r\n]|$)|\.\.\.(?=[ \t\r\n]|$))", re.MULTILINE)
_BANNER = re.compile(
    r"^(?:[=*~_-]{4,}[ \t]*|={3,}.*|-{4,}[^\n]*|-{3,}[ \t]+\S.*(?<=---)[ \t]*|```.*)$", re.MULTILINE
)
"""A line that tools print, and pages have, around a document."""
_REST = re.compile(r"^[ \t]+(?:-[ \t]+)?(?:\.{3,}|…+)[ \t]*(?:#.*)?$|^(?:\.{4,}|…+)[ \t]*$")
"""A line that stands for what a page does not show, where YAML refuses it."""
_OF_AN_OBJECT = re.compile(r"^(?:apiVersion|kind)[ \t]*:", re.MULTILINE)
_MEMBER = re.compile(r"(\s*(?:-\s+)*)[^\s#].*?:(?:\s|$)")
_DUMP = re.compile(r"(?:(?:apiVersion|kind): [^\n]*\n)*items:\n(?=- (?:apiVersion|kind): )")
"""How a List begins that kubectl, or another program, writes."""
_ITEM = re.compile(r"^(?:- |\w+:)", re.MULTILINE)
"""Where an item of it begins, and what is behind all of them."""
_QUOTE_LINES = 50
"""So many lines before an error a quote is looked for that was never closed."""
_ERRORS = 20
"""How many errors of one document are looked for."""
_PARSED = 4 << 20
"""So many characters are parsed again to find them."""


class _TooLarge(UnreadableFrom):
    """A value is nested too deep, or a document has too many of them."""


class _Composer(CParser):  # type: ignore[misc]
    """Composes nodes without resolving what their scalars are, which few of them need."""

    depth = 0
    values_left = MAX_VALUES

    def resolve(self, kind: object, value: object, implicit: object) -> None:
        """Return no tag: the scalar has none of its own."""

    def descend_resolver(self, parent: Any, _: object) -> None:
        """Count a level and a value. Raises ``_TooLarge``."""
        self.depth += 1
        self.values_left -= 1
        if self.depth > DEPTH:
            raise _TooLarge(parent.start_mark.line, f"is nested more than {DEPTH} levels deep")
        if self.values_left < 0:
            raise _TooLarge(parent.start_mark.line, f"has more than {MAX_VALUES:,} values")

    def ascend_resolver(self) -> None:
        """Leave a level."""
        self.depth -= 1


def read_yaml(text: str, into: UnparsedText, offset: int = 0) -> Iterator[ManifestDocument]:
    """Return the documents of ``text``, whose first line is line ``offset`` + 1 of its file.

    What is wrong goes into ``into``: all of it at once, as far as one error hides no other. Of a
    document with an error nothing else is returned.
    """
    # libyaml ends at the first one; here each line is named once.
    controls = {
        1 + text.count("\n", 0, result.start()): result[0] for result in _CONTROL.finditer(text)
    }
    if controls:
        for line, result in controls.items():
            reason = f"has the control character U+{ord(result):04X}"
            into.unreadable.append(Unreadable(offset + line, reason))
        return
    dump = _DUMP.match(text) if len(text) > IN_ONE else None
    if dump and not _SEPARATOR.search(text, dump.end()):
        yield from _items(text, dump.end(), into, offset)
        return
    # YAML ends lines with them, editors do not.
    text = _LINE_ENDS.sub(" ", text)
    text, rest = _without_ends(text, into, offset)
    last = -1
    try:
        for root in _composed(text):
            last = root.start_mark.line
            if type(root) is ScalarNode and _BANNER.fullmatch(root.value):
                into.left_out.append(offset + last + 1)
                continue
            is_partial = _has_any(rest, last, root.end_mark.line)
            yield from document_of(root, text, into, offset, is_partial=is_partial)
    except (YAMLError, _TooLarge) as error:
        if isinstance(error, _TooLarge):
            into.unreadable.append(Unreadable(offset + error.line + 1, error.why))
            last = error.line
        text = _without_banners(text, last, into, offset)
        # Each document by itself, so that an error hides no other document.
        for start, chunk in _chunks(text):
            # Documents up to there were returned before the error.
            if start > last:
                is_partial = _has_any(rest, start, start + chunk.count("\n"))
                yield from _with_errors(chunk, into, offset + start, is_partial=is_partial)


def _items(text: str, begin: int, into: UnparsedText, offset: int) -> Iterator[ManifestDocument]:
    """Return the items of a List as kubectl writes it, one in memory at a time."""
    starts = [begin, *(mark.start() for mark in _ITEM.finditer(text, begin)), len(text)]
    line = text.count("\n", 0, begin)
    for start, end in pairwise(starts):
        chunk = text[start:end]
        if chunk.startswith("- "):
            # The dash becomes a blank, so that the members of the item stay aligned.
            yield from read_yaml(f" {chunk[1:]}", into, offset + line)
        line += chunk.count("\n")


def _without_ends(text: str, into: UnparsedText, offset: int) -> tuple[str, list[int]]:
    """Return ``text`` without ``...`` that ends a document and has no ``---`` behind it.

    YAML takes nothing behind it. On a page it stands for what is not shown: the indexes of these
    lines come back. Where an object ends and another begins, it is a separator.
    """
    rest: list[int] = []
    if "\n..." not in text and not text.startswith("..."):
        return text, rest
    parts = []
    end = line = 0
    separators = [*_SEPARATOR.finditer(text)]
    edges = [0, *(mark.start() for mark in separators), len(text)]
    for number, mark in enumerate(separators):
        before = text[edges[number] : mark.start()]
        same, _, behind = text[mark.end() : edges[number + 2]].partition("\n")
        line += before.count("\n")
        if mark[0] != "..." or not behind.strip():
            continue
        into.left_out.append(offset + line + 1)
        begins = _OF_AN_OBJECT.search(before) or not before.strip("-. \t\n")
        is_separator = begins and _OF_AN_OBJECT.search(behind)
        if not is_separator:
            rest.append(line)
        parts += [text[end : mark.start()], "---" if is_separator else ""]
        end = mark.end() + len(same)
    return "".join((*parts, text[end:])), rest


def _has_any(lines: list[int], first: int, last: int) -> bool:
    """Return whether any of ``lines``, which are sorted, is from ``first`` to ``last``."""
    return bisect_left(lines, first) < bisect_left(lines, last + 1)


def _without_banners(text: str, last: int, into: UnparsedText, offset: int) -> str:
    """Return ``text`` with a separator for each banner behind the line of index ``last``."""
    if _BANNER.search(text) is None:
        return text
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if index > last and _BANNER.match(line):
            lines[index] = "---"
            into.left_out.append(offset + index + 1)
    return "\n".join(lines)


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    """Return the texts of the documents with the index of their first line."""
    starts = [0, *(result.start() for result in _SEPARATOR.finditer(text)), len(text)]
    line = 0
    for start, end in pairwise(starts):
        chunk = text[start:end]
        if chunk.strip():
            yield line, chunk
        line += chunk.count("\n")


def _with_errors(
    text: str, into: UnparsedText, offset: int, *, is_partial: bool
) -> Iterator[ManifestDocument]:
    """Yield a document of a text with an error elsewhere; add its own errors to ``into``."""
    lines = text.split("\n")
    rest = [index for index, line in enumerate(lines) if _REST.match(line)]
    result: list[Unreadable] = []
    # At least twice: the second pass finds whether the mended text can be read.
    for _ in range(max(min(_ERRORS, _PARSED // len(text)), 2)):
        try:
            roots = [*_composed("\n".join(lines))]
            break
        except _TooLarge as error:
            result.append(Unreadable(offset + error.line + 1, error.why))
            break
        except YAMLError as error:
            if rest:
                into.left_out += (offset + index + 1 for index in rest)
                for index in rest:
                    lines[index] = ""
                rest, is_partial = [], True
                continue
            index, reason = _explained(error, lines)
            if not result or offset + index + 1 > result[-1].line:
                result.append(Unreadable(offset + index + 1, reason))
                lines[index] = _mended(lines[index], index)
            elif lines[index]:
                # Mended once and refused again: emptied, and not reported twice.
                lines[index] = ""
            else:
                break
    if not result:
        for root in roots:
            yield from document_of(root, text, into, offset, is_partial=is_partial)
    elif action := ACTION.search(text):
        into.templates.append(offset + 1 + text.count("\n", 0, action.start()))
    else:
        into.unreadable.extend(result)


def _composed(text: str) -> Iterator[Any]:
    composer = _Composer(text)
    while composer.check_node():
        composer.values_left = MAX_VALUES
        root = composer.get_node()
        if root is not None:
            yield root


def _explained(error: YAMLError, lines: list[str]) -> tuple[int, str]:
    """Return the index of the line of ``error``, and what is wrong there."""
    if not isinstance(error, MarkedYAMLError):
        return 0, " ".join(str(error).split())
    context = error.context or ""
    # libyaml reports where it noticed an open quote or bracket; the error is where that begins.
    begins = context.startswith(("while scanning", "while parsing a flow"))
    mark = error.context_mark if begins and error.context_mark else error.problem_mark
    reason = " ".join(part for part in (error.problem, context and f"({context})") if part)
    index = min(mark.line, len(lines) - 1) if mark else 0
    opened = _opened(lines, index)
    if opened is not None:
        return opened, f"has a quote that does not end in this line ({reason})"
    return index, reason


def _opened(lines: list[str], index: int) -> int | None:
    """Return the index of the line whose quote was closed by mistake where another one begins."""
    for end in (index, index - 1):
        # An odd number of quotes on an earlier line: the quote that was never closed.
        if end > 0 and '"' in lines[end]:
            for before in range(end - 1, max(end - _QUOTE_LINES, -1), -1):
                if lines[before].count('"') % 2:
                    return before
    return None


def _mended(line: str, index: int) -> str:
    """Return a line that keeps the structure around ``line`` and has no error of its own."""
    member = _MEMBER.match(line)
    begin = member[1].replace("\t", "  ") if member else ""
    return f"{begin}unreadable-{index}:" if member else ""
