"""The files of this repository but for what ``.gitignore`` leaves out, and the tests in them."""

from __future__ import annotations

import ast
import gc
import os
import re
from fnmatch import translate
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).parents[2]


def _ignored() -> list[str]:
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    return [".git", *(line.strip().strip("/") for line in lines if line.strip())]


def _matcher(patterns: Iterable[str]) -> Callable[[str], re.Match[str] | None]:
    """Return a function that matches a name with any pattern; one expression is quicker."""
    return re.compile("|".join(map(translate, patterns))).match


def files(*patterns: str) -> list[str]:
    """Return the paths of files relative to ``ROOT`` whose names match a pattern, in order.

    All files without a pattern. No program is started, so a copy without git's folder will do.
    """
    is_ignored, is_wanted = _matcher(_ignored()), _matcher(patterns or ("*",))
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not is_ignored(name)]
        below = Path(folder).relative_to(ROOT)
        prefix = "" if below == Path() else f"{below}/"
        found += [prefix + name for name in names if is_wanted(name) and not is_ignored(name)]
    return sorted(found)


def syntax(path: str) -> ast.Module:
    """Return the syntax tree of a file, relative to ``ROOT``.

    It is not kept for other readers: garbage collection takes longer for the trees of all files
    than it takes to parse them again.
    """
    return parsed((ROOT / path).read_text(encoding="utf-8"))


def parsed(source: str) -> ast.Module:
    """Return the syntax tree of a text, without garbage collection meanwhile.

    A tree has no cycles. To look for them again and again takes twice as long as to parse.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if collects:
            gc.enable()


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield ``tree`` and all statements, handlers and cases below it: a tenth of all nodes.

    Expressions are left out.
    """
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            nodes += getattr(node, field, ())


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Return the names of all test functions of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )


def is_test(name: str) -> bool:
    """Return whether a test, a file of tests or a program of ours has this name."""
    program = re.fullmatch(r"python -m ([\w.]+)", name)
    if program is not None:
        return (ROOT / f"{program[1].replace('.', '/')}.py").is_file()
    file, _, function = name.partition("::")
    path = ROOT / file
    if not file.startswith("tests/") or not path.is_file():
        return False
    return bool(functions_of(path)) and (
        not function or function.partition("[")[0] in functions_of(path)
    )
