"""Which files of the repository import which."""

from __future__ import annotations

import re
from collections import deque
from functools import cache
from typing import TYPE_CHECKING

from tests.parts.tree import ROOT, files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# All files are read for each question, and to parse them takes ten times as long. A line of a text
# that looks like an import takes some tests more.
_IMPORT = re.compile(
    r"^[ \t]*(?:from (?P<from>[\w.]+) import (?P<names>\([^)]*\)|[^\n]*)"
    r"|import (?P<modules>[\w., ]+))",
    re.MULTILINE,
)
_NAME = re.compile(r"\w+")


def importers() -> Mapping[str, set[str]]:
    """Return for each Python file those that import it; paths are relative to the repository.

    Imports inside of functions count. A test file counts as importing each ``conftest.py`` that
    pytest gives it.
    """
    found: dict[str, set[str]] = {path: set() for path in files("*.py")}
    for path in found:
        for imported in _imports(path):
            if imported in found:
                found[imported].add(path)
    return found


def distances(changed: str, importing: Mapping[str, set[str]]) -> dict[str, int]:
    """Return how many imports lie between the file and each that needs it; the file has 0."""
    reached = {changed: 0}
    waiting = deque([changed])
    while waiting:
        path = waiting.popleft()
        for importer in sorted(importing.get(path, ())):
            if importer not in reached:
                reached[importer] = reached[path] + 1
                waiting.append(importer)
    return reached


@cache
def _imports(path: str) -> frozenset[str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return frozenset(
        place for name in (*_names(text), *_conftests(path)) for place in _places(name)
    )


def _names(text: str) -> Iterator[str]:
    for match in _IMPORT.finditer(text):
        if match["from"] is None:
            yield from match["modules"].replace(",", " ").split()
        else:
            yield match["from"]
            # What is imported may be a module itself.
            yield from (f"{match['from']}.{name}" for name in _NAME.findall(match["names"]))


def _conftests(path: str) -> Iterator[str]:
    folders = path.split("/")[:-1]
    if path.rpartition("/")[2].startswith("test_"):
        yield from (
            ".".join([*folders[:depth], "conftest"]) for depth in range(1, len(folders) + 1)
        )


def _places(module: str) -> tuple[str, str]:
    base = module.replace(".", "/")
    return f"{base}.py", f"{base}/__init__.py"
