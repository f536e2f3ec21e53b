"""Every citation of the specifications leads to a section or an id of ``docs/spec``."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from advisor.findings import RULES
from tests import citations
from tests.citations import DOCUMENTS, SPEC, Citation, all_in, anchors, is_resolved, named
from tests.parts.tree import ROOT, files, syntax

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NOT_PROSE = ("docs/spec/", "tests/vectors/", "tests/vigil/lint/cases/", "contract/wire/")
_GENERATED = {ROOT / "docs" / name for name in ("findings.md", "codes.md", "codes.zh-CN.md")}
"""Made from tables: the sources of ``RULES``, and names of codes that look like ids."""
_TABLES = {"dpu-info", "levels-by-release"}
"""Specifications that are one table or two: they are cited by their path alone."""
_TEXTS = {".c", ".json", ".h", ".md", ".proto", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml", ""}


def _files(suffix: str | None = None) -> list[Path]:
    return [
        ROOT / name
        for name in files()
        if (suffix is None or name.endswith(suffix)) and not name.startswith(_NOT_PROSE)
    ]


def _unresolved(where: str, found: Iterator[Citation]) -> list[str]:
    return [
        f"{where}: {one.document}#{one.anchor}" if one.document else f"{where}: {one.anchor}"
        for one in found
        if not is_resolved(one)
    ]


@pytest.mark.slow
def test_docstrings_and_comments() -> None:
    wrong = [
        line
        for path in _files(".py")
        for number, text in citations.prose(path.read_text(encoding="utf-8"))
        for line in _unresolved(f"{path.relative_to(ROOT)}:{number}", all_in(text))
    ]
    assert wrong == []


@pytest.mark.slow
def test_documents() -> None:
    wrong = [
        line
        for path in _files(".md")
        if path not in _GENERATED
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for line in _unresolved(f"{path.relative_to(ROOT)}:{number}", all_in(text))
    ]
    assert wrong == []


@pytest.mark.slow
def test_other_files() -> None:
    wrong = [
        line
        for path in _files()
        if path.suffix in _TEXTS - {".md", ".py"}
        for line in _unresolved(
            str(path.relative_to(ROOT)), named(path.read_text(errors="replace"))
        )
    ]
    assert wrong == []


def test_sources_of_findings() -> None:
    sources = [rule.source for rule in RULES if rule.source != "-"]
    assert len(sources) > 50
    wrong = [
        (source, part)
        for source in sources
        for part in re.split(r", | to | and ", source)
        if not is_resolved(Citation("consumers", part))
    ]
    assert wrong == []


@pytest.mark.slow
def test_ids_that_the_product_shows() -> None:
    """Rows and rules of a decision, and defects that explain a difference."""
    alone = re.compile(r"(?:(?:D|R|K)\d{1,2})(?:(?:, | or )(?:D|R|K)\d{1,2})*")
    shown = [
        one
        for path in files("*.py")
        if path.startswith(("advisor/", "agent/"))
        if re.search(r'"[DRK]\d', (ROOT / path).read_text("utf-8"))
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and alone.fullmatch(node.value)
        for one in all_in(node.value)
    ]
    assert {one.document for one in shown} == {"consumers", "device-plugin"}
    assert [one for one in shown if not is_resolved(one)] == []


def test_no_anchor_is_there_twice() -> None:
    assert {path.stem for path in SPEC.glob("*.md")} == {*DOCUMENTS, *_TABLES, "README"}
    for document in DOCUMENTS:
        ids = re.findall(r'<a id="([^"]+)"></a>', (SPEC / f"{document}.md").read_text())
        assert len(ids) > 50
        assert sorted(ids) == sorted(anchors(document))


def test_every_section_has_an_anchor_with_its_number() -> None:
    for document in DOCUMENTS:
        is_code = False
        for line in (SPEC / f"{document}.md").read_text().splitlines():
            is_code ^= line.startswith("```")
            if is_code or not (head := re.match(r"#{2,4} (.*)", line)):
                continue
            found = re.match(r'<a id="([^"]+)"></a>(?:Appendix )?([A-Z]?[\d.]*\d|[A-C])\b', head[1])
            assert found is not None, line
            assert found[1] == found[2], line


@pytest.mark.parametrize("document", DOCUMENTS)
def test_ids_and_sections_inside_a_specification(document: str) -> None:
    text = (SPEC / f"{document}.md").read_text()
    own = [one for one in all_in(text) if one.document == document]
    sections = [Citation(document, number) for number in re.findall(r"§(\d+(?:\.\d+)*)", text)]
    assert [one for one in (*own, *sections) if not is_resolved(one)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("docs/spec/noded.md#2.3, 3.2 and 4.1 to 4.3.", "noded 2.3 3.2 4.1 4.3"),
        ("``docs/spec/noded.md#7.10`` and 7.11)", "noded 7.10 7.11"),
        ("``consumers#1.10`` (levels), 2.9 (pods), M13", "consumers 1.10 2.9 M13"),
        ("(clusterd#E26, E29)", "clusterd E26 E29"),
        ("dcmi#A and B", "dcmi A B"),
    ],
)
def test_lists_belong_to_the_document_before_them(text: str, expected: str) -> None:
    document, *found = expected.split()
    assert list(all_in(text)) == [Citation(document, anchor) for anchor in found]


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("defect K35", "device-plugin"),
        ("EX-10b, where", "device-plugin"),
        ("(D-03)", "noded"),
        ("V4:", "noded"),
        ("M21.", "consumers"),
        ("B8", "clusterd"),
    ],
)
def test_an_id_alone_belongs_to_one_document(text: str, document: str) -> None:
    (found,) = all_in(text)
    assert found.document == document
    assert is_resolved(found)


@pytest.mark.parametrize(
    "text",
    [
        "K52",
        "B45",
        "D-29",
        "example E26",
        "K2",
        "noded#99",
        "docs/spec/consumers.md#2.12",
        "docs/spec/consumers.md#2.1 and 2.12",
        "``spec/noded.md`` 7.5",
        "docs/spec/noded.md section 7",
        "the gate (2.5)",
        "chips (2.1, 2.8 and 2.9)",
    ],
)
def test_citation_that_leads_nowhere_is_found(text: str) -> None:
    assert not all(is_resolved(one) for one in all_in(text))


@pytest.mark.parametrize(
    "text", ["Ascend 910B (A2), A3, A5", "ports to L2", "``docs/spec/noded.md`` has it", "(5.0.x)"]
)
def test_other_words_are_no_citations(text: str) -> None:
    assert list(all_in(text)) == []
