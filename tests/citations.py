"""Finds citations of ``docs/spec`` in code and documents.

Their forms are those of ``docs/spec/README.md``.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEC = Path(__file__).parents[1] / "docs" / "spec"
DOCUMENTS = ("clusterd", "consumers", "dcmi", "device-plugin", "noded")

_NAME = "|".join(DOCUMENTS)
_ID = r"EX-\d+[a-z]?|D-\d\d|[A-Z]\d{1,2}[a-z]?"
_ANCHOR = rf"(?:{_ID}|\d+(?:\.\d+)*(?:-\d+)?|[ABC])(?![\w.]*\w)"
_REMARK = r"(?:\s+\([^()]*\))?"
_BEHIND = r"(?:,\s+(?:and\s+)?|\s+(?:and|to|or)\s+|;\s+)"
_ITEM = re.compile(rf"(?P<before>{_BEHIND})(?P<anchor>{_ANCHOR}){_REMARK}")
_CITATION = re.compile(
    rf"(?<![\w/.-])(?:docs/spec/(?P<path>{_NAME})\.md|(?P<name>{_NAME}))#(?P<anchor>[\w.-]*\w)`*"
    rf"{_REMARK}"
)
_WITHOUT_ANCHOR = re.compile(rf"spec/(?:{_NAME})\.md`*,?\s+(?:sections?\s+)?(?:{_ID}|\d)")
_SECTION_ALONE = re.compile(
    r"\((?=\d{1,2}\.\d{1,2}\b(?!\.))[\d.,; ]*(?:\band\b|\bto\b|[\d.,; ])*\)"
)

ALONE = {
    "B": "clusterd",
    "D": "consumers",
    "D-": "noded",
    "EX-": "device-plugin",
    "K": "device-plugin",
    "M": "consumers",
    "R": "consumers",
    "S": "consumers",
    "V": "noded",
    "X": "consumers",
}
"""The document of an id that carries none, by what the id begins with."""

SHARED = frozenset("EHNP")
"""Ids that begin with these occur in several documents and carry theirs."""

_ALONE = re.compile(rf"(?<![\w@/.#$-])(?:{_ID})(?![\w-])(?!\.\d)")


class Citation(NamedTuple):
    """One anchor that a text names; ``document`` is empty where the text does not name it."""

    document: str
    anchor: str


@cache
def anchors(document: str) -> frozenset[str]:
    """Return the anchors of a document of ``docs/spec``, by its name without suffix."""
    return frozenset(re.findall(r'<a id="([^"]+)"></a>', (SPEC / f"{document}.md").read_text()))


def is_resolved(citation: Citation) -> bool:
    """Return whether the citation leads to an anchor; ``EX-10b`` leads to ``EX-10``."""
    if citation.document not in DOCUMENTS:
        return False
    known = anchors(citation.document)
    return citation.anchor in known or (
        citation.anchor.startswith("EX-") and citation.anchor.rstrip("abcd") in known
    )


def named(text: str) -> Iterator[Citation]:
    """Yield the citations that name their document, and the lists that follow them."""
    yield from (one for one, _ in _named(text))


def _named(text: str) -> Iterator[tuple[Citation, range]]:
    for match in _CITATION.finditer(text):
        document = match["path"] or match["name"]
        end = match.end()
        found = [Citation(document, match["anchor"])]
        while item := _ITEM.match(text, end):
            found.append(Citation(document, item["anchor"]))
            end = item.end()
        for one in found:
            yield one, range(match.start(), end)


def all_in(text: str) -> Iterator[Citation]:
    """Yield all citations of a text for people, ids that stand alone included."""
    covered: list[range] = []
    for one, where in _named(text):
        yield one
        covered.append(where)
    for match in _ALONE.finditer(text):
        if not any(match.start() in where for where in covered):
            yield from _of_id(match[0])
    for pattern in (_WITHOUT_ANCHOR, _SECTION_ALONE):
        yield from (Citation("", match[0]) for match in pattern.finditer(text))


def _of_id(text: str) -> Iterator[Citation]:
    family = re.match(r"[A-Z]+-?", text)
    assert family is not None
    if family[0] in ALONE:
        is_other = family[0] == "K" and not re.fullmatch(r"K\d\d", text)
        yield Citation("" if is_other else ALONE[family[0]], text)
    elif family[0] in SHARED:
        yield Citation("", text)


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and comments of a Python file, each with its first line's number.

    Comments that follow each other line by line are one text. A file without any citation has none.
    """
    if next(all_in(source), None) is None:
        return
    strings: list[tokenize.TokenInfo] = []
    comments: list[tokenize.TokenInfo] = []
    has_code = False
    # One pass over the tokens: to parse each file besides would take twice as long again.
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if comments and token.start[0] != comments[-1].start[0] + 1:
                yield _of_comments(comments)
                comments = []
            comments.append(token)
        elif token.type == tokenize.STRING:
            strings.append(token)
        elif token.type == tokenize.NEWLINE:
            # A statement that is nothing but a string.
            if strings and not has_code:
                text = ast.literal_eval(" ".join(part.string for part in strings))
                yield strings[0].start[0], text
            strings, has_code = [], False
        elif token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            has_code = True
    if comments:
        yield _of_comments(comments)


def _of_comments(tokens: list[tokenize.TokenInfo]) -> tuple[int, str]:
    lines = (token.string.lstrip("# ") for token in tokens)
    return tokens[0].start[0], "\n".join(lines)
