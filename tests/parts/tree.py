"""The files of this repository but for what ``.gitignore`` leaves out, and the tests in them."""

from __future__ import annotations

import ast
import os
import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _ignored() -> list[str]:
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    return [".git", *(line.strip().strip("/") for line in lines if line.strip())]


def files(*patterns: str) -> list[str]:
    """Return the paths of files relative to ``ROOT`` whose names match a pattern, in order.

    All files without a pattern. No program is started, so a copy without git's folder will do.
    """
    ignored = _ignored()
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [one for one in folders if not any(fnmatch(one, no) for no in ignored)]
        found += [
            str((Path(folder) / name).relative_to(ROOT))
            for name in names
            if not any(fnmatch(name, no) for no in ignored)
            and (not patterns or any(fnmatch(name, pattern) for pattern in patterns))
        ]
    return sorted(found)


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
