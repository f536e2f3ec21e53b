"""Mutants and defects are made at their places, by syntax."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.defects import DEFECTS, Defect, DefectMisplaced, locate
from tests.mutants.draw import GROUPS, REST, constants_at, draw
from tests.mutants.edits import Edit
from tests.mutants.sites import KINDS, Site, sites_of
from tests.parts.tree import ROOT

SOURCE = '''"""A module."""

LIMIT = 3


class Queue:
    size: int = 0

    async def put(self, item: int, wait: bool = True) -> None:
        """Put it, if there is place."""
        if self.size < LIMIT and item > 0:
            await self._put(
                item, "时间"
            )
            self.size += 1
        elif not wait:
            raise ValueError(item)
'''


def mutants(kind: str) -> list[str]:
    return [
        next(line.strip() for line in changed.splitlines() if line not in SOURCE.splitlines())
        for site in sites_of(SOURCE, "queue.py")
        if site.kind == kind
        if (changed := site.edit.apply(SOURCE))
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "comparison",
            ["if self.size > LIMIT and item > 0:", "if self.size < LIMIT and item < 0:"],
        ),
        ("bound", ["if self.size <= LIMIT and item > 0:", "if self.size < LIMIT and item > -1:"]),
        ("condition", ["if (not (self.size < LIMIT and item > 0)):", "elif (not (not wait)):"]),
        ("boolean", ["if self.size < LIMIT or item > 0:"]),
        ("statement", ["pass", "pass"]),
        ("await", ["self._put("]),
        ("arguments", ['"时间", item']),
        ("exception", ["pass"]),
        (
            "default",
            ["LIMIT = 4", "size: int = 1", SOURCE.splitlines()[8].strip().replace("True", "False")],
        ),
    ],
)
def test_places_of_a_kind_are_changed(kind: str, expected: list[str]) -> None:
    assert mutants(kind) == expected


def test_each_kind_is_a_case_above() -> None:
    assert {site.kind for site in sites_of(SOURCE, "queue.py")} == set(KINDS)


def test_lines_keep_their_numbers() -> None:
    for site in sites_of(SOURCE, "queue.py"):
        changed = site.edit.apply(SOURCE)
        assert changed.count("\n") == SOURCE.count("\n")
        assert changed.splitlines()[-1] == SOURCE.splitlines()[-1] or site.line >= 16
        ast.parse(changed)


def test_an_edit_that_would_move_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="more lines"):
        Edit((1, 0), (1, 1), "\n\n").apply(SOURCE)


def test_a_seed_draws_the_same_places_when_a_file_is_moved() -> None:
    before = sites_of(SOURCE, "contract/queue.py")
    after = sites_of(f"# Moved.\n{SOURCE}", "contract/queue.py")
    others: dict[str, list[Site]] = {name: [] for name in (*GROUPS, REST)}
    drawn = [
        [site.key for site in draw(others | {"contract": sites}, 40, 7)]
        for sites in (before, after)
    ]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 6


CONSTANTS = """
AFTER = BEFORE = 1
class Limits:
    size: int = 2
    def take(self): return 3
"""


@pytest.mark.parametrize(
    ("line", "names"), [(2, ["AFTER", "BEFORE"]), (4, ["size"]), (5, []), (3, []), (9, [])]
)
def test_what_a_statement_of_a_module_or_class_defines(line: int, names: list[str]) -> None:
    assert constants_at(CONSTANTS, line) == names


@pytest.mark.slow
def test_each_defect_is_one_place_of_the_product() -> None:
    for defect in DEFECTS:
        place = locate(defect)
        source = (ROOT / place.path).read_text(encoding="utf-8")
        changed = place.edit.apply(source)
        assert changed != source
        ast.parse(changed)


def test_invariants_and_decisions_have_a_defect() -> None:
    begins = {defect.breaks.partition(":")[0] for defect in DEFECTS}
    expected = [f"invariant {number}" for number in range(1, 9)]
    expected += [f"decision {number}" for number in range(1, 22)]
    assert begins == set(expected)
    assert len(DEFECTS) == 30


@pytest.mark.slow
def test_a_defect_without_a_place_is_named() -> None:
    with pytest.raises(DefectMisplaced, match="decision 0: 'gone' of Journal is in no file"):
        locate(Defect("decision 0", "Journal", "gone", "pass"))
