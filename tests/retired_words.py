"""Find retired words in names, docstrings and texts of Python files; `make lint` runs it.

``docs/retired-words.txt`` lists the words.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.parts.tree import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[1]
WORDS = Path("docs/retired-words.txt")

_WORD = re.compile(r"[A-Za-z]+")
_WORD_OR_ESCAPE = re.compile(r"\\?[A-Za-z]+")
_ESCAPE_BY_NUMBER = re.compile(r"\\[xuU]")
_PART_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class RetiredWord(NamedTuple):
    """One form of a retired word, with the terms to use instead."""

    only_in_names: bool
    instead: str


class Finding(NamedTuple):
    """One retired word in a file; ``place`` is ``name``, ``docstring`` or ``text``."""

    line: int
    word: str
    place: str
    instead: str


def read_words(text: str) -> dict[str, RetiredWord]:
    """Decode ``docs/retired-words.txt``; return each form in lower case with its rule."""
    words: dict[str, RetiredWord] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        forms, scope, instead = (cell.strip() for cell in line.split("|"))
        if scope not in {"everywhere", "names"}:
            raise ValueError(f"{WORDS}: {forms!r} has the scope {scope!r}: everywhere or names")
        words |= {form: RetiredWord(scope == "names", instead) for form in forms.split()}
    return words


def find(
    path: Path, source: str, words: Mapping[str, RetiredWord], *, texts: bool = True
) -> list[Finding]:
    """Return the retired words of one Python file in the order of their lines.

    ``path`` is relative to the repository: its parts are names. Without ``texts``, only names and
    docstrings are searched.
    """
    found = [_finding(1, word, "name", words) for word in _retired_in_name(path.stem, words)]
    if not _may_have(source, words):
        return found
    for line, place, text in _texts(parsed(source)):
        if place == "name":
            found += [_finding(line, word, place, words) for word in _retired_in_name(text, words)]
        elif place == "docstring" or texts:
            found += [
                _finding(line + text.count("\n", 0, match.start()), word, place, words)
                for match in _WORD.finditer(text)
                if (word := match[0].lower()) in words and not words[word].only_in_names
            ]
    return sorted(found)


def _may_have(source: str, words: Mapping[str, RetiredWord]) -> bool:
    """Return whether a retired word is anywhere in ``source``, such as in a comment.

    Most files have none, and then need no syntax tree, which takes ten times as long. A word may
    follow an escape by number without a space. A word that one literal begins and the next one
    ends is not looked for.
    """
    return _ESCAPE_BY_NUMBER.search(source) is not None or any(
        part in words
        for text in set(_WORD_OR_ESCAPE.findall(source))
        for part in _words_and_parts(text)
    )


@cache
def _words_and_parts(text: str) -> frozenset[str]:
    # The letter behind a backslash belongs to the word only where it is no escape.
    spellings = (text[1:], text[2:]) if text.startswith("\\") else (text,)
    return frozenset(
        part.lower()
        for spelling in spellings
        for part in (spelling, *_PART_OF_NAME.findall(spelling))
    )


def find_all(root: Path) -> Iterator[str]:
    """Yield a line for each retired word of the packages below ``root``.

    Generated code is not searched, nor are texts of tests: they quote what they check, upstream's
    words too.
    """
    words = read_words((root / WORDS).read_text(encoding="utf-8"))
    for package in sorted(root.glob("*/__init__.py")):
        for path in sorted(package.parent.rglob("*.py")):
            relative = path.relative_to(root)
            if path.stem.endswith("_pb2"):
                continue
            source, texts = path.read_text(encoding="utf-8"), relative.parts[0] != "tests"
            for finding in find(relative, source, words, texts=texts):
                yield (
                    f"{relative}:{finding.line}: {finding.word!r} in a {finding.place}; "
                    f"instead: {finding.instead}"
                )


def main(root: Path = ROOT) -> int:
    """Print the retired words of the tree; return the exit status."""
    problems = list(find_all(root))
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    return bool(problems)


def _texts(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    docstrings = set()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, "name", node.name
            case ast.arg():
                yield node.lineno, "name", node.arg
            case ast.AnnAssign(target=ast.Name(name)):
                yield node.lineno, "name", name
            case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                # Behind a field or constant, such a text is its description.
                docstrings.add(constant)
                yield constant.lineno, "docstring", text
            case ast.Constant(value=str(text)) if node not in docstrings and re.search(r"\s", text):
                yield node.lineno, "text", text


def _retired_in_name(name: str, words: Mapping[str, RetiredWord]) -> list[str]:
    return [word for part in _PART_OF_NAME.findall(name) if (word := part.lower()) in words]


def _finding(line: int, word: str, place: str, words: Mapping[str, RetiredWord]) -> Finding:
    return Finding(line, word, place, words[word].instead)


if __name__ == "__main__":
    sys.exit(main())
