"""Every worked example of the specifications of the device plugin and NodeD has a test, or is a
documented no.

An example is tested by a test function that names it: in its text, in its decorators, or in a
constant of its module that it uses. Those of NodeD have ids that others have, too, so they count
only in the modules that are about it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent
EXAMPLES = frozenset(f"EX-{number:02}" for number in range(1, 64))
NOT_DONE = frozenset({"EX-39", "EX-41", "EX-49", "EX-50"})
"""vNPU, hot reset's sibling chips, custom resources and A5's names: `docs/compatibility.md`."""
NODED = frozenset(
    f"{kind}{number}"
    for kind, last in {"K": 3, "E": 19, "H": 7, "P": 5, "N": 2, "M": 4, "C": 4}.items()
    for number in range(1, last + 1)
)
NODED_NOT_DONE = frozenset({"M1", "M2", "M3", "M4", "P5", "N2", "H7"})
"""Pingmesh, container snapshots: `docs/compatibility.md`. noded#H7 is a reader's own notes."""
NODED_MODULES = (
    *("collectors/storage/test_collector.py", "contract/documents/test_node_generations.py"),
    *("contract/operator_rules/test_node_levels.py", "contract/documents/test_public_fault.py"),
    *(
        "agent/publishing/test_node_info.py",
        "replay/test_noded_examples.py",
        "agent/heartbeat/test_heartbeat_times.py",
    ),
)
_ID = re.compile(r"EX(?:AMPLE)?[-_](\d\d)")
_NODED_ID = re.compile(r"(?<![A-Z0-9])([KEHPNMC]\d{1,2})(?![A-Z0-9])")


def named(tree: ast.AST, pattern: re.Pattern[str] = _ID) -> set[str]:
    """Return the examples that texts and names below ``tree`` name."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(pattern.findall(node.value))
        elif isinstance(node, ast.Name):
            found.update(pattern.findall(node.id.upper()))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.update(pattern.findall(node.name.upper()))
    return found


def examples_of(
    module: ast.Module, pattern: re.Pattern[str] = _ID, prefix: str = "EX-"
) -> Iterator[tuple[str, str]]:
    """Yield each example that a test function of ``module`` names, and the function."""
    constants = {
        name.id: statement.value
        for statement in module.body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
        for target in _targets(statement)
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }
    for statement in module.body:
        for function in _test_functions(statement):
            # The docstring of a class of tests is about all of them.
            texts = [ast.Constant(ast.get_docstring(owner) or "") for owner in _owners(statement)]
            used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            for tree in (function, *texts, *(constants[name] for name in used & constants.keys())):
                for example in named(tree, pattern):
                    yield f"{prefix}{example}", function.name


def _owners(statement: ast.stmt) -> list[ast.ClassDef]:
    return [statement] if isinstance(statement, ast.ClassDef) else []


def _test_functions(statement: ast.stmt) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    inside = statement.body if isinstance(statement, ast.ClassDef) else [statement]
    return [
        one
        for one in inside
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name.startswith("test_")
    ]


def _targets(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


@pytest.mark.slow
def test_every_example_is_tested_or_a_documented_no() -> None:
    found: dict[str, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        # To parse all files takes seconds; names have their examples in lower case.
        if path != Path(__file__) and _ID.search(text.upper()):
            for example, function in examples_of(ast.parse(text)):
                found.setdefault(example, set()).add(f"{path.name}::{function}")
    assert found.keys() <= EXAMPLES
    missing = EXAMPLES - NOT_DONE - found.keys()
    assert not missing, f"no test names {', '.join(sorted(missing))}"


def test_every_example_of_noded_is_tested_or_a_documented_no() -> None:
    found = set()
    for name in NODED_MODULES:
        module = ast.parse((TESTS / name).read_text())
        found |= {example for example, _ in examples_of(module, _NODED_ID, "")}
    missing = NODED - NODED_NOT_DONE - found
    assert not missing, f"no test names {', '.join(sorted(missing))}"


def test_files_that_name_an_example_are_found() -> None:
    source = """
EXAMPLES = {"EX-02": 1}
OTHER = {"EX-03": 1}
@pytest.mark.parametrize("example", EXAMPLES)
def test_one(example):
    'EX-04, as everybody has it.'
    check("device-plugin/EX-05a", ex_06)
async def test_ex_07():
    pass
def not_a_test():
    'EX-08'
class TestThose:
    'EX-09'
    def test_that(self):
        judge("EX-10b")
"""
    assert sorted({example for example, _ in examples_of(ast.parse(source))}) == [
        *("EX-02", "EX-04", "EX-05", "EX-06", "EX-07", "EX-09", "EX-10"),
    ]
