"""Names, docstrings and texts get no retired word back; see ``tests/retired_words.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.retired_words import WORDS, find, find_all, main, read_words

_WORDS = read_words("# a remark\ntell told | everywhere | send\nworld | names | cluster state\n")
_PATH = Path("package/module.py")


def _found(source: str, path: Path = _PATH) -> list[tuple[int, str, str]]:
    return [(item.line, item.word, item.place) for item in find(path, source, _WORDS)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / WORDS).write_text("tell told | everywhere | send\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "module.py").write_text("def send(): ...\n")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class ToldNodes: ...", [(1, "told", "name")]),
        ("async def tell_all(): ...", [(1, "tell", "name")]),
        ("def send(*, told_at_ms): ...", [(1, "told", "name")]),
        ("class A:\n    world: int", [(2, "world", "name")]),
        ('"""Sends.\n\nIs told so."""', [(3, "told", "docstring")]),
        ('def send():\n    """Tell it."""', [(2, "tell", "docstring")]),
        ('A = 1\n"""What is told."""', [(2, "told", "docstring")]),
        ('log("%s was told", a)', [(1, "told", "text")]),
        ('log(f"{a} was told")', [(1, "told", "text")]),
        (r'log("a\ntold b")', [(2, "told", "text")]),
        (r'log(r"a \told b")', [(1, "told", "text")]),
        (r'log("the \u00abtell me")', [(1, "tell", "text")]),
    ],
)
def test_retired_word_is_found(source: str, expected: list[tuple[int, str, str]]) -> None:
    assert _found(source) == expected


def test_retired_word_in_module_name_is_found() -> None:
    assert _found("", Path("package/cluster_world.py")) == [(1, "world", "name")]


@pytest.mark.parametrize(
    "source",
    [
        'store["told"]',
        '"""Runs in the whole world."""',
        "def teller(): ...",
        "def is_toldable(): ...",
        "# It is told.",
    ],
)
def test_other_words_are_not_found(source: str) -> None:
    assert _found(source) == []


def test_scope_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="'tell' has the scope 'documents'"):
        read_words("tell | documents | send")


def test_each_finding_is_named_with_what_to_use(tree: Path) -> None:
    assert main(tree) == 0
    (tree / "package" / "module.py").write_text('"""Tells."""\ndef told(): ...')
    (tree / WORDS).write_text("tells told | everywhere | send\n")
    assert list(find_all(tree)) == [
        "package/module.py:1: 'tells' in a docstring; instead: send",
        "package/module.py:2: 'told' in a name; instead: send",
    ]
    assert main(tree) == 1


def test_texts_of_tests_are_not_searched(tree: Path) -> None:
    (tree / "tests").mkdir()
    (tree / "tests" / "__init__.py").write_text('A = f("it was told")\n')
    assert main(tree) == 0
    (tree / "tests" / "__init__.py").write_text('"""Is told."""\n')
    assert main(tree) == 1
