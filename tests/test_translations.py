"""Chinese documents have what their English sources have, and are as new.

Below each heading a translation keeps the hash of the English section that it was made from. Who
changes an English section also translates the change, and writes the hash that the test shows.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from itertools import zip_longest

import pytest

from tests.parts.tree import ROOT, files

_SUFFIX = ".zh-CN.md"
_GENERATED = ("docs/codes.zh-CN.md",)
"""Made with its source by ``tests.contract.codes_document``, whose test compares both."""
_MARK = re.compile(r"^<!-- source: (\w+) -->\n\n", re.MULTILINE)
_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_EXAMPLE = """\
# Start

Run `vigil status`, see [more](docs/a.md).

```
vigil scan     # what is missing
```

## Tables

| a | b |
|---|---|
| c | d |
"""


@dataclass(frozen=True)
class _Shape:
    """What of a section stays in each language."""

    level: int
    columns: tuple[int, ...]  # of each row of its tables
    items: int
    blocks: tuple[str, ...]  # with their commands, without comments, which are translated
    code: frozenset[str]
    links: frozenset[str]


def _sections(text: str) -> list[str]:
    """Return the text from each heading to the next; a comment of a shell is not a heading."""
    hidden = _BLOCK.sub(lambda block: "x" * len(block[0]), text)
    starts = [head.start() for head in re.finditer(r"^#+ ", hidden, re.MULTILINE)]
    return [text[start:end].rstrip() for start, end in zip_longest(starts, starts[1:])]


def _shape(section: str) -> _Shape:
    blocks = [re.sub(r"\s+# .*", "", block) for block in _BLOCK.findall(section)]
    prose = _BLOCK.sub("", section)
    rows = re.findall(r"^\|.*\|$", prose, re.MULTILINE)
    return _Shape(
        level=len(section) - len(section.lstrip("#")),
        columns=tuple(row.count("|") - 1 for row in rows),
        items=len(re.findall(r"^\* ", prose, re.MULTILINE)),
        blocks=tuple(blocks),
        code=frozenset(re.findall(r"`([^`\n]+)`", prose)),
        # A translation may lead to translations, and its source leads to it.
        links=frozenset(
            link.replace(_SUFFIX, ".md") for link in re.findall(r"\]\(([^)\s]+)\)", prose)
        ),
    )


def _hash(section: str) -> str:
    return hashlib.sha256(section.encode()).hexdigest()[:12]


def _differences(source: str, translation: str) -> list[str]:
    """Return a line for each section of the translation that is older or has other contents."""
    lines: list[str] = []
    for english, chinese in zip_longest(_sections(source), _sections(translation), fillvalue=""):
        heading = (english or chinese).splitlines()[0]
        if _MARK.findall(chinese) != [_hash(english)]:
            lines.append(f"{heading}: the English text changed; its hash is {_hash(english)}")
        if _shape(english) != _shape(chinese):
            lines.append(f"{heading}: {_shape(english)} is {_shape(chinese)} in the translation")
    return lines


def _marked(text: str) -> str:
    """Return a translation of a text that changes no word."""
    return "".join(
        section.replace("\n\n", f"\n\n<!-- source: {_hash(section)} -->\n\n", 1) + "\n\n"
        for section in _sections(text)
    )


@pytest.mark.parametrize(
    "name",
    [name for name in files("*.md") if name.endswith(_SUFFIX) and name not in _GENERATED],
)
def test_a_translation_has_what_its_source_has(name: str) -> None:
    source = ROOT / (name.removesuffix(_SUFFIX) + ".md")
    texts = [path.read_text(encoding="utf-8") for path in (source, ROOT / name)]
    assert _differences(*texts) == []


def test_the_documents_that_an_operator_reads_first_are_translated() -> None:
    assert {f"README{_SUFFIX}", f"docs/operate{_SUFFIX}"} <= set(files("*.md"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("## Tables", "### Tables"),
        ("| c | d |\n", ""),
        ("| c | d |", "| c |"),
        ("vigil scan", "vigil status"),
        ("`vigil status`", "`vigil faults`"),
        ("docs/a.md", "docs/b.md"),
        ("\n## Tables\n", "\n"),
    ],
)
def test_other_contents_are_reported(before: str, after: str) -> None:
    translation = _marked(_EXAMPLE)
    assert _differences(_EXAMPLE, translation) == []
    assert before in translation
    assert _differences(_EXAMPLE, translation.replace(before, after))


def test_an_older_section_is_reported_and_a_translated_comment_is_not() -> None:
    translation = _marked(_EXAMPLE).replace("# what is missing", "# 缺少什么")
    assert _differences(_EXAMPLE, translation) == []
    (line,) = _differences(_EXAMPLE.replace("| c | d |", "| c | e |"), translation)
    assert line.startswith("## Tables: the English text changed")
