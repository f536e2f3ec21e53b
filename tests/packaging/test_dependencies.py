"""What the packages import is declared, and each of it is in the lock."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest

from tests.parts.tree import ROOT, files, statements, syntax

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_OF_TYPE_CHECKERS = "_typeshed"
PACKAGES = PROJECT["tool"]["importlinter"]["root_packages"]


def normal(name: str) -> str:
    """Return the name of a distribution, as package indices compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(name: str) -> set[str]:
    """Return the packages that the file ``name`` imports, at its top or later."""
    names: set[str] = set()
    for node in statements(syntax(name)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


@pytest.mark.slow
def test_every_import_is_declared_and_locked() -> None:
    packages = set().union(
        *(imported(name) for name in files("*.py") if name.partition("/")[0] in PACKAGES)
    )
    foreign = packages - sys.stdlib_module_names - set(PACKAGES) - {_OF_TYPE_CHECKERS}
    of = packages_distributions()
    needed = {normal(name) for package in foreign for name in of[package]}
    declared = {
        normal(re.split(r"[<>=~ ;\[]", line)[0]) for line in PROJECT["project"]["dependencies"]
    }
    assert needed <= declared, needed - declared
    locked = {
        normal(line.partition("==")[0])
        for line in (ROOT / "requirements.lock").read_text().splitlines()
        if "==" in line
    }
    assert declared <= locked
