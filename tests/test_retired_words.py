"""Names, docstrings and texts get no retired word back; see ``tests/retired_words.py``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.retired_words import LISTED, WORDS, compare, find, main, read_words

_WORDS = read_words("# a remark\ntell told | everywhere | send\nworld | names | cluster state\n")
_PATH = Path("room/module.py")


def _found(source: str, path: Path = _PATH) -> list[tuple[int, str, str]]:
    return [(one.line, one.word, one.place) for one in find(path, source, _WORDS)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / WORDS).write_text("tell told | everywhere | send\n")
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "__init__.py").touch()
    (tmp_path / "room" / "one.py").write_text("def told(): ...\ndef tell(): ...\n")
    assert main(["--write"], tmp_path) == 0
    assert json.loads((tmp_path / LISTED).read_text()) == {"room/one.py": 2}
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
    ],
)
def test_retired_word_is_found(source: str, expected: list[tuple[int, str, str]]) -> None:
    assert _found(source) == expected


def test_retired_word_in_module_name_is_found() -> None:
    assert _found("", Path("room/cluster_world.py")) == [(1, "world", "name")]


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


def test_each_finding_of_a_file_above_its_number_is_named() -> None:
    found = {"room/module.py": find(_PATH, '"""Tells."""\ndef told(): ...', _WORDS)}
    assert list(compare(found, {})) == [
        "room/module.py: 1 retired words, 0 are listed in docs/retired-words.json",
        "room/module.py:2: 'told' in a name; instead: send",
    ]


def test_tree_with_the_listed_numbers_passes(tree: Path) -> None:
    assert main([], tree) == 0


def test_one_word_more_fails_and_is_not_listed_by_the_program(tree: Path) -> None:
    (tree / "room" / "one.py").write_text('"""Told."""\ndef told(): ...\ndef tell(): ...\n')
    assert main([], tree) == 1
    assert main(["--write"], tree) == 1
    assert json.loads((tree / LISTED).read_text()) == {"room/one.py": 2}


def test_new_file_has_no_retired_word(tree: Path) -> None:
    (tree / "room" / "two.py").write_text("def told(): ...\n")
    assert main([], tree) == 1
    assert main(["--write"], tree) == 1


def test_fewer_words_pass_and_the_smaller_number_is_listed(tree: Path) -> None:
    (tree / "room" / "one.py").write_text("def told(): ...\n")
    assert main([], tree) == 0
    assert main(["--write"], tree) == 0
    assert json.loads((tree / LISTED).read_text()) == {"room/one.py": 1}


def test_texts_of_tests_are_not_searched(tree: Path) -> None:
    (tree / "tests").mkdir()
    (tree / "tests" / "__init__.py").write_text('A = f("it was told")\n')
    assert main([], tree) == 0
    (tree / "tests" / "__init__.py").write_text('"""Is told."""\n')
    assert main([], tree) == 1


def test_file_that_is_gone_is_not_listed(tree: Path) -> None:
    (tree / "room" / "one.py").unlink()
    assert main(["--write"], tree) == 0
    assert json.loads((tree / LISTED).read_text()) == {}
