"""Find retired words in names, docstrings and texts of Python files; `make lint` runs it.

``docs/retired-words.txt`` lists the words, ``docs/retired-words.json`` how many each file has.
A file with more is an error; ``python -m tests.retired_words --write`` lists smaller numbers.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[1]
WORDS = Path("docs/retired-words.txt")
LISTED = Path("docs/retired-words.json")

_WORD = re.compile(r"[A-Za-z]+")
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
    for line, place, text in _texts(ast.parse(source)):
        if place == "name":
            found += [_finding(line, word, place, words) for word in _retired_in_name(text, words)]
        elif place == "docstring" or texts:
            found += [
                _finding(line + text.count("\n", 0, match.start()), word, place, words)
                for match in _WORD.finditer(text)
                if (word := match[0].lower()) in words and not words[word].only_in_names
            ]
    return sorted(found)


def compare(found: Mapping[str, Sequence[Finding]], listed: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines to print for each file with more retired words than are listed."""
    for path in sorted({*found, *listed}):
        findings, limit = found.get(path, ()), listed.get(path, 0)
        if len(findings) > limit:
            yield f"{path}: {len(findings)} retired words, {limit} are listed in {LISTED}"
            for one in findings:
                yield f"{path}:{one.line}: {one.word!r} in a {one.place}; instead: {one.instead}"


def lowered(
    found: Mapping[str, Sequence[Finding]], listed: Mapping[str, int] | None
) -> dict[str, int]:
    """Return the numbers to list: at most those of ``listed``, or all where there is no list."""
    numbers = {path: len(findings) for path, findings in sorted(found.items()) if findings}
    if listed is None:
        return numbers
    least = {path: min(number, listed.get(path, 0)) for path, number in numbers.items()}
    return {path: number for path, number in least.items() if number}


def find_all(root: Path) -> dict[str, list[Finding]]:
    """Return the findings of every file of the packages below ``root``, without generated code.

    Texts of tests are not searched: they quote what they check, upstream's words too.
    """
    words = read_words((root / WORDS).read_text(encoding="utf-8"))
    found = {}
    for package in sorted(root.glob("*/__init__.py")):
        for path in sorted(package.parent.rglob("*.py")):
            if not path.stem.endswith("_pb2"):
                relative = path.relative_to(root)
                texts = relative.parts[0] != "tests"
                source = path.read_text(encoding="utf-8")
                found[str(relative)] = find(relative, source, words, texts=texts)
    return found


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Compare the tree with the list, or lower the list; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.retired_words", description=__doc__)
    parser.add_argument("--write", action="store_true", help="lower the numbers that are listed")
    write = parser.parse_args(arguments).write
    path = root / LISTED
    listed = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    found = find_all(root)
    if write:
        listed = lowered(found, listed)
        path.write_text(json.dumps(listed, indent=0) + "\n", encoding="utf-8")
    problems = list(compare(found, listed or {}))
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
