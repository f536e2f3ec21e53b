"""Look up what ``make coverage`` measured: which test ran which line, and how long it took."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from coverage import CoverageData

from tests.measured.places import DATA, TIMES
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable


class Measured:
    """The last measurement. ``FileNotFoundError`` where there is none."""

    def __init__(self) -> None:
        if not DATA.is_file():
            raise FileNotFoundError(f"{DATA} is missing; make coverage writes it")
        self._data = CoverageData(basename=str(DATA))
        self._data.read()
        lines = TIMES.read_text(encoding="utf-8").splitlines()
        self.seconds: dict[str, float] = dict(json.loads(line) for line in lines)
        """How long each test took that passed."""

    def tests_of_lines(self, path: str, lines: Iterable[int]) -> set[str]:
        """Return the tests that ran one of these lines of a file, in whatever process."""
        by_line = self._data.contexts_by_lineno(str(ROOT / path))
        return self._passed(test for line in lines for test in by_line.get(line, ()))

    def tests_of_file(self, path: str) -> set[str]:
        """Return the tests that ran a line of a file, in whatever process."""
        by_line = self._data.contexts_by_lineno(str(ROOT / path))
        return self._passed(test for tests in by_line.values() for test in tests)

    def _passed(self, tests: Iterable[str]) -> set[str]:
        return self.seconds.keys() & set(tests)
