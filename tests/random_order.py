"""The random order of a run: ``VIGIL_TEST_SEED`` draws it, and the same seed repeats it.

Folders are drawn, then the files of each folder, then the tests of each file: tests that share a
fixture of their module or folder stay beside each other, so a random order takes no longer.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

SEED = "VIGIL_TEST_SEED"


class RandomOrder:
    """Sorts the tests of a run by a seed and prints the seed; a plug-in of pytest."""

    def __init__(self, seed: str) -> None:
        self._line = f"random order of tests: {SEED}={seed}"
        self._draw = lru_cache(None)(
            lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest()
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort the tests before pytest brings parameters of shared fixtures together."""
        items.sort(key=lambda item: self.place(item.nodeid))

    def place(self, test: str) -> tuple[bytes, ...]:
        """Return the sort key of a test: a draw for each folder, for the file and for the test.

        It depends on the seed and the test alone, so a selection has the order of the whole run.
        """
        parts = test.partition("::")[0].split("/")
        names: Iterable[str] = ("/".join(parts[: end + 1]) for end in range(len(parts)))
        return (*map(self._draw, names), self._draw(test))

    def pytest_report_header(self) -> str:
        """Return the line with the seed, by which a run that hangs can be repeated."""
        return self._line

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the line with the seed behind the failures, also where ``-q`` omits the header."""
        terminalreporter.write_line(self._line)
