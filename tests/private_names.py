"""Find names that only this project uses, and method names with several meanings.

``make lint`` runs it on the packages of the product. A reader of other code expects a local name
for what the value is, and constants that are called ``MAX_...``, ``..._SECONDS`` or
``RETRY_...``. Fields of classes are not searched: documents and pages have their names.

A method is called ``apply``, ``begin``, ``observe`` or ``restore`` only where it implements an
interface. Other classes name what the method does and to what, so that a search for the name
returns its callers. mypy checks that ``@override`` is true.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.parts.tree import parsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[1]
_LOCAL_NAMES = frozenset({"found", "known", "one", "what", "why"})
_METHODS = frozenset({"apply", "begin", "observe", "restore"})
_CONSTANT = re.compile(
    r"(?:^|_)(?:AGAIN|AT_ONCE|FEWEST|LARGEST|LEAST|LONGEST|LOOK|MOST|SHORTEST|SMALLEST)(?:_|$)"
)


class Finding(NamedTuple):
    """A refused name: the line, the name, and why it is refused."""

    line: int
    name: str
    problem: str


def find(source: str) -> list[Finding]:
    """Return the refused names of one Python file in the order of their lines."""
    tree = parsed(source)
    # Read once: to walk through a tree takes longer than to make it.
    nodes = list(ast.walk(tree))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    return sorted({*_local_names(nodes, classes), *_constants(tree, classes), *_methods(classes)})


def find_all(root: Path) -> Iterator[str]:
    """Yield a line for each refused name of the product below ``root``."""
    for package in packages(root):
        for path in sorted((root / package).rglob("*.py")):
            if not path.stem.endswith("_pb2"):
                for finding in find(path.read_text(encoding="utf-8")):
                    place = f"{path.relative_to(root)}:{finding.line}"
                    yield f"{place}: {finding.name!r} {finding.problem}"


def packages(root: Path) -> list[str]:
    """Return the packages of the product: those whose layers import-linter checks."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    listed: list[str] = project["tool"]["importlinter"]["root_packages"]
    return listed


def main(root: Path = ROOT) -> int:
    """Print the refused names of the product; return the exit status."""
    problems = list(find_all(root))
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    return bool(problems)


def _local_names(nodes: Iterable[ast.AST], classes: Iterable[ast.ClassDef]) -> Iterator[Finding]:
    fields = {
        id(statement.target)
        for node in classes
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in nodes:
        match node:
            case ast.Name(name, ast.Store()) if id(node) not in fields:
                pass
            case ast.arg(name) | ast.MatchAs(name=str(name)) | ast.MatchStar(str(name)):
                pass
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                pass
            case _:
                continue
        if name in _LOCAL_NAMES:
            yield Finding(node.lineno, name, "is a private local name")


def _constants(tree: ast.Module, classes: Iterable[ast.ClassDef]) -> Iterator[Finding]:
    for body in (tree.body, *(node.body for node in classes)):
        for statement in body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                for node in ast.walk(statement):
                    if (
                        isinstance(node, ast.Name)
                        and isinstance(node.ctx, ast.Store)
                        and node.id.isupper()
                        and _CONSTANT.search(node.id)
                    ):
                        yield Finding(node.lineno, node.id, "is a private constant")


def _methods(classes: Iterable[ast.ClassDef]) -> Iterator[Finding]:
    for node in classes:
        if "Protocol" in _names(node.bases):
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                is_of_interface = _names(method.decorator_list) & {"abstractmethod", "override"}
                if method.name in _METHODS and not is_of_interface:
                    yield Finding(method.lineno, method.name, "is a method of no interface")


def _names(expressions: Iterable[ast.expr]) -> set[str]:
    """Return the names in ``expressions``: ``Protocol`` and ``T`` of ``Protocol[T]``."""
    return {
        node.id
        for expression in expressions
        for node in ast.walk(expression)
        if isinstance(node, ast.Name)
    }


if __name__ == "__main__":
    sys.exit(main())
