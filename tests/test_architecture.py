"""``docs/architecture.md`` and the documents of the packages agree with the tree."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.imports import distances, importers
from tests.parts.tree import ROOT, files, statements, syntax

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Set

DOCUMENT = ROOT / "docs" / "architecture.md"
PACKAGES = sorted((ROOT / "docs" / "packages").glob("*.md"))
_SCREENS = 120
"""Lines, which are a few screens."""

_MOST_TERMS = 20
_MAX_PARTS = 15
"""Of one function that wires parts, and public ones of a class that has all parts of a daemon."""

_MIN_LINES = 100
_MAY_BE_SMALL = {
    "pure beside I/O": """
        agent/publishing/update_times
        aggregator/scheduler_signals/pending_writes
        collectors/chip_faults/health_word
        collectors/links/unified_bus
        collectors/memory/pressure
        elastic/metrics
    """,
    "a wire format": """
        advisor/inputs/quantities
        aggregator/grpc/wire_messages
        collectors/kernel_log/records
        collectors/links/readings
        dcmi_shim/ipmi/serial_number
        dcmi_shim/worker/outbox
        stores/kubernetes_api/protobuf
    """,
    "a layer of its own": """
        agent/all_chips_blind
        agent/exit_deadline
        dcmi_shim/library/second_generation
        stores/kubernetes_api/client/official_client
    """,
    "loaded only where it is used: gRPC, requests to an API server": """
        agent/publishing/fault_service_call
        vigil/support/cluster_parts
    """,
    "a rule with one subject, as the specification has it": """
        advisor/lint/retries
        advisor/lint/scheduler
        advisor/rescheduling/fault_scheduling
    """,
    "its importer would have more than 500 lines": """
        stores/directory/lock
    """,
}
"""Modules below ``_MIN_LINES`` with one importer beside them, by the reason (CONTRIBUTING.md)."""

_ROW = re.compile(r"^\| `([\w.]+)/` \| .* \| (\d?) ?\|$", re.MULTILINE)
_NAMED = re.compile(
    r"(?<![\w./*-])(?:[\w.][\w./*-]*(?:\.(?:py|c|h)\b|/(?![\w/]))|[\w./*-]+/[\w.*-]+\.(?:json|toml)\b)"
)


def _rows() -> dict[str, str]:
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Folders")[2].partition("\n## ")[0]
    return dict(_ROW.findall(section))


def test_it_begins_with_a_picture_and_fits_on_a_few_screens() -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert lines[2] == "```"
    assert len(lines) <= _SCREENS


def test_every_top_level_folder_is_named() -> None:
    sources = files("*.py", "*.md", "*.yaml", "*.toml", "run")
    assert _rows().keys() == {name.partition("/")[0] for name in sources if "/" in name}


def test_tests_lie_in_folders_that_mirror_the_product() -> None:
    folders = {name.rpartition("/")[0] for name in files("*.py")}
    assert [
        test
        for test in files("test_*.py")
        if (folder := test.removeprefix("tests/").rpartition("/")[0]).partition("/")[0] in _rows()
        and folder not in folders
    ] == []


@pytest.mark.slow
def test_what_tests_share_is_in_no_test_module() -> None:
    importing = importers()
    assert importing["tests/imports.py"] >= {"tests/affected.py", "tests/test_architecture.py"}
    shared = {
        name: sorted(users)
        for name, users in importing.items()
        if users and name.rpartition("/")[2].startswith("test_")
    }
    assert shared == {}, "move the shared code to a module that is called after what it holds"


def test_the_acceptance_harness_needs_no_emulator() -> None:
    importing = importers()
    emulator = [name for name in importing if name.startswith("dcmi_shim/emulator/")]
    needs = {name for module in emulator for name in distances(module, importing)}
    assert "tests/end_to_end/node.py" in needs
    harness = {name for name in importing if re.fullmatch(r"tests/acceptance/(?!test_).*", name)}
    assert "tests/acceptance/daemons.py" in harness
    assert sorted(harness & needs) == []


def _small_modules(importing: Mapping[str, Set[str]], lines: Mapping[str, int]) -> set[str]:
    """Return the modules below ``_MIN_LINES`` whose only importer lies in their own folder."""
    small = set()
    for name, count in lines.items():
        users = [user for user in importing[name] if user in lines]
        if count < _MIN_LINES and len(users) == 1:
            small |= {name} if Path(users[0]).parent == Path(name).parent else set()
    return small


@pytest.mark.slow
def test_a_small_module_with_one_importer_has_a_reason() -> None:
    lines = {
        name: len((ROOT / name).read_text(encoding="utf-8").splitlines())
        for name in files("*.py")
        if _rows().get(name.partition("/")[0]) and not name.endswith("/__init__.py")
    }
    assert len(lines) > 500
    allowed = {f"{name}.py" for names in _MAY_BE_SMALL.values() for name in names.split()}
    small = _small_modules(importers(), lines)
    assert sorted(small - allowed) == [], "join it with its importer, or give the reason here"
    assert sorted(allowed - small) == [], "not small or not with one importer: take it out"


def test_a_small_module_is_found() -> None:
    importing = {"a/b.py": {"a/c.py", "tests/a/test_b.py"}, "a/c.py": {"d.py"}, "d.py": set[str]()}
    assert _small_modules(importing, {"a/b.py": 99, "a/c.py": 99, "d.py": 9}) == {"a/b.py"}
    assert _small_modules(importing, {"a/b.py": 100, "a/c.py": 99, "d.py": 9}) == set()


def test_layers_are_those_that_are_checked() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = next(
        one["layers"]
        for one in settings["tool"]["importlinter"]["contracts"]
        if one["type"] == "layers" and "vigil" in one["layers"]
    )
    expected = {
        package.strip(): str(number)
        for number, layer in enumerate(packages, 1)
        for package in layer.split("|")
    }
    assert {package: number for package, number in _rows().items() if number} == expected


def test_every_package_has_its_document() -> None:
    packages = {package for package, number in _rows().items() if number}
    assert {path.stem for path in PACKAGES} == packages
    text = DOCUMENT.read_text(encoding="utf-8")
    assert all(f"(packages/{package}.md)" in text for package in packages)


def _paths(text: str) -> Iterator[str]:
    """Yield the files and folders that a document names: between backticks, and in diagrams."""
    for quoted in re.findall(r"`([^`\n]+)`", text):
        yield from _NAMED.findall(quoted)


def _is_there(name: str, package: Path) -> bool:
    pattern = name.rstrip("/")
    return any(ROOT.glob(pattern)) or any(package.rglob(pattern))


def test_files_and_folders_that_are_named_exist() -> None:
    for document in (DOCUMENT, *PACKAGES):
        names = list(_paths(document.read_text(encoding="utf-8")))
        assert names, document
        package = ROOT / document.stem if document != DOCUMENT else ROOT / "docs"
        assert [name for name in names if not _is_there(name, package)] == [], document


def _parts(package: str) -> set[str]:
    """Return the files and folders of a package, a folder with a slash at its end."""
    below = [name.split("/")[1:] for name in files("*.py") if name.startswith(f"{package}/")]
    known = {"__init__.py", "__main__.py", "main.py"}
    return {way[0] if len(way) == 1 else f"{way[0]}/" for way in below} - known


def test_each_document_names_folders_and_files_of_its_package() -> None:
    for document in PACKAGES:
        text = document.read_text(encoding="utf-8")
        parts = _parts(document.stem)
        assert parts, document
        missing = [one for one in sorted(parts) if not re.search(rf"(?<!\w){re.escape(one)}", text)]
        assert missing == [], document


def test_a_file_that_is_not_there_is_found() -> None:
    (name,) = _paths("in `agent/policy/nowhere.py`")
    assert not _is_there(name, ROOT / "agent")


class _Module(NamedTuple):
    """What tests ask of each module of the product; its syntax tree is not kept."""

    imports: list[ast.Import | ast.ImportFrom]
    """Also those for types only and inside of functions."""
    classes: set[str]
    boolean_terms: dict[str, int]
    """The operands of ``and`` and ``or``, by function."""


@cache
def _modules() -> dict[str, _Module]:
    """Return each module of the product by its dotted name, generated code aside."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["importlinter"]["root_packages"]
    return {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): _module(syntax(name))
        for name in files("*.py")
        if name.partition("/")[0] in packages and "_pb2" not in name
    }


def _module(tree: ast.Module) -> _Module:
    module = _Module([], set(), {})
    for node in statements(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                module.imports.append(node)
            case ast.ClassDef(name):
                module.classes.add(name)
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                terms = _boolean_terms(node)
                module.boolean_terms[name] = max(terms, module.boolean_terms.get(name, 0))
    return module


def _boolean_terms(function: ast.AST) -> int:
    """Return how many operands ``and`` and ``or`` have in a function, without functions in it."""
    terms = 0
    nodes = [*ast.iter_child_nodes(function)]
    while nodes:
        node = nodes.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            terms += len(node.values) if isinstance(node, ast.BoolOp) else 0
            nodes += ast.iter_child_nodes(node)
    return terms


@pytest.mark.slow
def test_no_function_has_more_than_20_boolean_terms() -> None:
    found = {
        f"{name}: {function}": terms
        for name, module in _modules().items()
        for function, terms in module.boolean_terms.items()
        if terms > _MOST_TERMS
    }
    assert found == {}


def test_boolean_terms_are_the_operands_of_and_and_or() -> None:
    (function,) = ast.parse("def one():\n    return a and (b or not c) if d < 1 else e\n").body
    assert _boolean_terms(function) == 4


def _imported(module: _Module, modules: Set[str]) -> Iterator[str]:
    """Yield what a module imports."""
    for node in module.imports:
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        else:
            assert not node.level, "imports are absolute"
            for one in node.names:
                whole = f"{node.module}.{one.name}"
                yield whole if whole in modules else str(node.module)


def _arrows(depth: int) -> dict[str, set[str]]:
    """Return which folder or file imports which, where names have ``depth`` parts at most."""

    def cut(name: str) -> str:
        return ".".join(name.split(".")[:depth])

    found: dict[str, set[str]] = defaultdict(set)
    modules = _modules()
    for name, module in modules.items():
        imported = _imported(module, modules.keys())
        found[cut(name)] |= {cut(one) for one in imported if one in modules}
    return {name: behind - {name} for name, behind in found.items()}


def _in_circles(arrows: Mapping[str, Set[str]]) -> set[str]:
    """Return the names from which a way leads back to them, and those between two of these."""
    left = {name: set(behind) for name, behind in arrows.items()}
    while ends := {name for name, behind in left.items() if not behind & left.keys()}:
        left = {name: behind for name, behind in left.items() if name not in ends}
    while begins := left.keys() - set().union(*left.values()):
        left = {name: behind for name, behind in left.items() if name not in begins}
    return set(left)


@pytest.mark.slow
def test_no_files_import_each_other_in_a_circle() -> None:
    arrows = _arrows(99)
    assert len(arrows) > 700
    assert _in_circles(arrows) == set()


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_no_folders_import_each_other_in_a_circle(depth: int) -> None:
    assert _in_circles(_arrows(depth)) == set()


def test_a_circle_is_found() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": set[str]()}
    assert _in_circles(arrows) == {"b", "c"}


@pytest.mark.slow
def test_a_public_class_name_stands_for_one_thing() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for name, module in _modules().items():
        for class_name in module.classes:
            if not class_name.startswith("_"):
                found[class_name].add(name)
    assert len(found) > 1000
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def _parts_made(function: ast.AST, makers: Set[str]) -> set[str]:
    """Return the classes and functions among ``makers`` of which ``function`` calls for a part."""
    names = {
        node.func.id
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return {name for name in names if name.lstrip("_")[:1].isupper() or name in makers}


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _public_attributes(hub: ast.ClassDef) -> set[str]:
    return {
        node.attr
        for node in ast.walk(hub)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and not node.attr.startswith("_")
    }


@pytest.mark.slow
@pytest.mark.parametrize("package", ["agent", "aggregator"])
def test_no_function_wires_more_than_15_parts(package: str) -> None:
    wiring, daemon = (syntax(f"{package}/{name}.py") for name in ("wiring", "daemon"))
    makers = {function.name for function in _functions(wiring)}
    made = {
        # With its line: each class has an ``__init__``.
        f"{function.name}, line {function.lineno}": parts
        for tree in (wiring, daemon)
        for function in _functions(tree)
        if (parts := _parts_made(function, makers))
    }
    assert any(len(parts) > 10 for parts in made.values()), "a daemon has parts"
    assert {name: parts for name, parts in made.items() if len(parts) > _MAX_PARTS} == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name"), [("agent/wiring.py", "AgentParts"), ("aggregator/daemon.py", "Aggregator")]
)
def test_a_hub_has_at_most_15_public_attributes(module: str, name: str) -> None:
    (hub,) = (
        node
        for node in statements(syntax(module))
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    attributes = _public_attributes(hub)
    assert len(attributes) > 10, "a hub has parts"
    assert len(attributes) <= _MAX_PARTS, sorted(attributes)


def test_parts_and_public_attributes_are_counted() -> None:
    text = "class Hub:\n    def __init__(self):\n        self.a, self._b = Part(), made(_Own())\n"
    (hub,) = ast.parse(text + "        self.c = print(Part())\n").body
    assert isinstance(hub, ast.ClassDef)
    assert _public_attributes(hub) == {"a", "c"}
    assert _parts_made(hub, {"made"}) == {"Part", "_Own", "made"}
