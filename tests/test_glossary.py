"""``docs/glossary.md`` explains every word once, in order."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "docs" / "glossary.md"
_ROW = re.compile(r"^\| (?!word |verb |---)(.+?) \| (.+) \|$")


def _sections() -> dict[str, list[tuple[str, str]]]:
    parts = DOCUMENT.read_text(encoding="utf-8").split("\n## ")[1:]
    return {
        part.partition("\n")[0]: [
            (row[1], row[2]) for line in part.splitlines() if (row := _ROW.match(line))
        ]
        for part in parts
    }


def test_a_word_is_there_once() -> None:
    sections = _sections()
    assert len(sections) > 5
    words = [
        word.strip("`").lower()
        for name, rows in sections.items()
        if name not in {"Verbs", "Terms of other projects"}
        for cell, _ in rows
        for word in cell.split(", ")
    ]
    assert len(words) > 100
    assert sorted({word for word in words if words.count(word) > 1}) == []


def test_words_are_in_order() -> None:
    for name, rows in _sections().items():
        if name == "Terms of other projects":
            continue
        words = [cell.strip("`").lower() for cell, _ in rows]
        assert words == sorted(words), name


def test_every_word_has_a_meaning() -> None:
    for rows in _sections().values():
        assert rows
        assert [word for word, meaning in rows if not meaning.strip()] == []
