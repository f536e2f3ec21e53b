"""The tables of attacks, troubles and reports name tests that exist, and no row is there twice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.parts.tree import ROOT, is_test

if TYPE_CHECKING:
    from pathlib import Path

SECURITY = ROOT / "docs/security.md"
STORES = ROOT / "docs/stores.md"
REPORTS = ROOT / "docs/reports.md"
CHANGELOG = ROOT / "CHANGELOG.md"
HEADS = {
    SECURITY: "| attack | who could do it | what happens now | what remains open | test |",
    STORES: "| trouble | what agent and aggregator do | when | what an operator sees | test |",
    REPORTS: "| report | source | kind | changelog entry | test |",
}
KINDS = ("broker", "lost answer", "kernel", "file system", "clock", "BMC", "manifest", "metadata")
"""Kinds of reports; a new one is added here."""


def rows(document: Path) -> list[list[str]]:
    """Return the cells of the table with the head that the document has."""
    (below,) = document.read_text(encoding="utf-8").split(HEADS[document] + "\n")[1:]
    lines = below.partition("\n\n")[0].splitlines()
    assert re.fullmatch(r"[|-]+", lines[0])
    return [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("document", HEADS, ids=lambda path: str(path.name))
def test_every_row_names_tests_that_exist(document: Path) -> None:
    found = rows(document)
    assert len(found) > 5
    for row in found:
        assert len(row) == 5, row
        assert all(row), row
        names = row[-1].split(", ")
        assert all(re.fullmatch(r"`[^`]+`", name) for name in names), row[-1]
        missing = [name for name in names if not is_test(name.strip("`"))]
        assert missing == [], row[0]


def test_missing_test_is_found() -> None:
    here = "tests/test_attacks_and_troubles.py"
    assert is_test(f"{here}::test_missing_test_is_found[any]")
    assert is_test("python -m benchmarks.attack_pages")
    for name in (
        f"{here}::test_that_is_missing",
        "tests/test_that_is_missing.py",
        "tests/parts/unread.py",
        "python -m benchmarks.that_is_missing",
        "README.md",
    ):
        assert not is_test(name), name


def test_no_attack_is_there_twice_and_all_are_written_alike() -> None:
    found = rows(SECURITY)
    attacks = [row[0] for row in found]
    assert len(set(attacks)) == len(attacks)
    for attack, *others, _ in found:
        assert attack[0].isupper(), attack
        for cell in others:
            first, _, _ = cell.partition(" ")
            is_a_name = first.isupper() and len(first) > 1
            assert not cell[0].isupper() or is_a_name, cell
            assert not cell.endswith("."), cell
    lines = SECURITY.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("|---") for line in lines) == 2, (
        "the attacks, and what each actor may do"
    )


def test_no_trouble_is_there_twice() -> None:
    troubles = [row[0] for row in rows(STORES)]
    assert len(set(troubles)) == len(troubles)


def changelog_entries() -> frozenset[str]:
    """Return the entries of all releases, each in one line."""
    entries: list[str] = []
    for line in CHANGELOG.read_text(encoding="utf-8").splitlines():
        if line.startswith("- "):
            entries.append(line[2:])
        elif line.startswith("  ") and entries:
            entries[-1] += f" {line.strip()}"
    return frozenset(entries)


def test_every_report_names_its_kind_source_and_changelog_entry() -> None:
    entries = changelog_entries()
    found = rows(REPORTS)
    assert len({row[0] for row in found}) == len(found)
    for report, source, kind, entry, _ in found:
        assert report[0].isupper(), report
        assert kind in KINDS, report
        assert re.search(r"#\d+|[a-z]+/[a-z]+|seen here|samples? of", source, re.IGNORECASE), source
        assert any(one.startswith(entry) for one in entries), f"no entry begins with: {entry}"
    assert [row[2] for row in found] == sorted((row[2] for row in found), key=KINDS.index)


def test_changelog_entry_that_is_missing_is_found() -> None:
    entries = changelog_entries()
    assert any(one.startswith("`vigil isolate` and") for one in entries)
    assert not any(one.startswith("An entry that is missing") for one in entries)
