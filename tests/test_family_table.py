"""The table of families names every family, and in each cell tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.parts.tree import is_test

DOCUMENT = Path(__file__).parents[1] / "docs/compatibility.md"
HEAD = "| family | documents | labels, annotations | exporter names | events or period | links |"
FAMILIES = ["910A", "910B (A2)", "A3", "950 (A5)", "310P", "300I Duo", "310, 310B"]


def test_every_cell_names_a_test_that_exists() -> None:
    (below,) = DOCUMENT.read_text(encoding="utf-8").split(HEAD)[1:]
    lines = below.partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines]
    assert [row[0] for row in rows] == FAMILIES
    for family, *cells in rows:
        assert len(cells) == 6
        for cell in cells:
            tests = re.findall(r"`(tests/[^`]+)`", cell)
            assert tests, (family, cell)
            assert [name for name in tests if not is_test(name)] == [], family
