"""Each code of the table: a file that raises it, and the smallest correction, which does not.

The first lines of a wrong file name what it raises, and nothing else may be found in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from advisor.findings import BY_CODE, LIVE_CODES
from tests.vigil.lint.case_files import CASES, DOES_WITHOUT, NAMES
from vigil.lint.reading import files
from vigil.lint.run import lint

if TYPE_CHECKING:
    from pathlib import Path

_EXPECTED = re.compile(r"^# ([A-Z_]+): line (\d+)$", re.MULTILINE)


def found(path: Path) -> list[tuple[str, int]]:
    """Return what is found in a file: codes and lines."""
    codes = [(one.rule.code, one.place.line) for one in lint(files([str(path)])).findings]
    return [one for one in codes if one[0] not in DOES_WITHOUT or path.name.startswith(one[0])]


@pytest.mark.parametrize("name", NAMES)
def test_the_wrong_file_raises_its_finding_and_its_correction_nothing(name: str) -> None:
    path = CASES / f"{name}.wrong.yaml"
    expected = [(code, int(line)) for code, line in _EXPECTED.findall(path.read_text())]
    assert name.partition("-")[0] in dict(expected)
    assert found(path) == expected
    assert found(CASES / f"{name}.right.yaml") == []


def test_every_code_has_its_files() -> None:
    # No file raises them: a defect, which a test plays, and what is for standard input alone.
    codes = BY_CODE.keys() - set(LIVE_CODES) - {"NOT_JUDGED", "NOT_YAML"}
    assert {name.partition("-")[0] for name in NAMES} == codes
