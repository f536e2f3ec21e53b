"""Names that only this project uses are refused; see ``tests/private_names.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.private_names import find, find_all, main

if TYPE_CHECKING:
    from pathlib import Path


def _names(source: str) -> list[tuple[int, str]]:
    return [(finding.line, finding.name) for finding in find(source)]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("def f(one): ...", "one"),
        ("def f(*, known): ...", "known"),
        ("g = lambda one: one", "one"),
        ("def f():\n    found = 1", "found"),
        ("def f():\n    why: str = ''", "why"),
        ("def f():\n    for _, what in a: ...", "what"),
        ("[one for one in a]", "one"),
        ("if (found := a): ...", "found"),
        ("match a:\n    case str() as what: ...", "what"),
        ("match a:\n    case [*known]: ...", "known"),
        ("try: ...\nexcept E as why: ...", "why"),
        ("import a as one", "one"),
        ("_MOST = 1", "_MOST"),
        ("MOST_ROWS: Final = 1", "MOST_ROWS"),
        ("_ROWS_AT_ONCE = 1", "_ROWS_AT_ONCE"),
        ("_LOOK_SECONDS, _B = 1, 2", "_LOOK_SECONDS"),
        ("class A:\n    _AGAIN_MS = 1", "_AGAIN_MS"),
        ("class A:\n    def apply(self): ...", "apply"),
        ("class A(B):\n    @staticmethod\n    def begin(): ...", "begin"),
        ("class A:\n    async def restore(self): ...", "restore"),
    ],
)
def test_a_private_name_is_found(source: str, name: str) -> None:
    (found,) = _names(source)
    assert found[1] == name


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    why: str = ''",
        "a.found = 1",
        "f(known=1)",
        "one_row = 1",
        "_MAX_ROWS, _RETRY_SECONDS, _ALMOST, OUTLOOK = 1, 2, 3, 4",
        "print(_MOST)",
        '"""What is found."""',
        "class A(Protocol):\n    def observe(self): ...",
        "class A(Protocol[T]):\n    def observe(self): ...",
        "class A(B):\n    @abstractmethod\n    def apply(self): ...",
        "class A(B):\n    @override\n    def apply(self): ...",
        "class A:\n    def apply_change(self): ...",
        "def apply(): ...",
    ],
)
def test_other_names_are_not_found(source: str) -> None:
    assert _names(source) == []


def test_the_packages_of_the_product_are_searched(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.importlinter]\nroot_packages = ["a", "b"]\n')
    for package in "abc":
        (tmp_path / package).mkdir()
        (tmp_path / package / "m.py").write_text("known = 1\n")
    assert list(find_all(tmp_path)) == [
        "a/m.py:1: 'known' is a private local name",
        "b/m.py:1: 'known' is a private local name",
    ]
    assert main(tmp_path) == 1
    (tmp_path / "a" / "m.py").unlink()
    (tmp_path / "b" / "m.py").unlink()
    assert main(tmp_path) == 0
