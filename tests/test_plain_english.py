"""Texts for people: short sentences and right plurals."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.parts.plain_english import (
    blocks,
    command_help,
    counts,
    documents,
    length,
    messages,
    sentences,
)
from tests.parts.tree import ROOT
from tests.retired_words import WORDS, read_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.parts.plain_english import Text

MOST_WORDS = 25
_PLURAL_WITH_VERB = re.compile(
    r"^\{\} [a-z]{3,}s (?:are|came|come|do|dropped|exist|fit|have|stand|wait|were)\b"
)


def _long(texts: Iterable[Text]) -> list[str]:
    return [
        f"{text.place}: {length(one)} words: {' '.join(one.split())}"
        for text in texts
        for one in sentences(text.text)
        if length(one) > MOST_WORDS
    ]


@pytest.mark.slow
def test_sentences_of_messages_are_short() -> None:
    found = messages()
    assert len(found) > 10000
    assert _long(found) == []


@pytest.mark.slow
def test_sentences_of_help_are_short() -> None:
    found = command_help()
    assert len(found) > 200
    assert _long(found) == []


@pytest.mark.slow
def test_sentences_of_documents_are_short() -> None:
    found = documents()
    assert len(found) > 5000
    assert _long(found) == []


@pytest.mark.slow
def test_no_document_has_a_retired_word() -> None:
    words = read_words((ROOT / WORDS).read_text(encoding="utf-8"))
    retired = {form for form, word in words.items() if not word.only_in_names}
    assert "nobody" in retired
    assert [
        f"{text.place}: {word}"
        for text in documents()
        for word in re.findall(r"[a-z]+", text.text.lower())
        if word in retired
    ] == []


@pytest.mark.slow
def test_a_number_that_may_be_1_is_counted() -> None:
    found = counts()
    assert len(found) > 1000
    assert [f"{one.place}: {one.text}" for one in found if _PLURAL_WITH_VERB.match(one.text)] == []


def test_a_sentence_is_measured_without_its_code_and_places() -> None:
    (found,) = blocks("a.md", "Run `vigil status --json | head` on\n[any host](docs/a.md) now.")
    assert sentences(found.text) == ["Run `x` on\nany host now."]
    assert length(found.text) == 6
    assert length("%s of {} nodes: 3 fail") == 6


def test_blocks_are_paragraphs_items_and_cells() -> None:
    text = "One.\n\n```\nno sentence\n```\n* Two, which\n  goes on.\n* Three.\n\n| four | five |\n"
    assert [one.text for one in blocks("a.md", text)] == [
        "One.",
        "Two, which\n  goes on.",
        "Three.",
        "four",
        "five",
    ]


def test_sentences_end_where_they_end() -> None:
    text = "See x, e.g. Volcano. Then v1.2 comes; it stays. `a` ends it:\n1. no"
    assert sentences(text) == [
        "See x, e.g. Volcano.",
        "Then v1.2 comes; it stays.",
        "`a` ends it",
        "1. no",
    ]
