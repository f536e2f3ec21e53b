"""The problems of a document: the first ones, and the number of the others.

A ConfigMap may have a mebibyte, of which every few bytes can be wrong. An operator reads only the
first of that, and all of it would take more memory than an agent may have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_LISTED = 1000
"""How many problems of one document are kept."""


class FoundProblems:
    """Keeps the first ``MAX_LISTED`` problems and counts the others."""

    def __init__(self) -> None:
        self._kept: list[Problem] = []
        self._more = 0

    def add(self, problem: Problem) -> None:
        """Add a problem."""
        if len(self._kept) < MAX_LISTED:
            self._kept.append(problem)
        else:
            self._more += 1

    def extend(self, problems: Iterable[Problem]) -> int:
        """Add problems; return how many they were."""
        count = 0
        for problem in problems:
            self.add(problem)
            count += 1
        return count

    def all(self) -> tuple[Problem, ...]:
        """Return the problems; the first one is their number where not all are kept."""
        if not self._more:
            return tuple(self._kept)
        count = len(self._kept) + self._more
        message = f"has {count} problems, of which the first {MAX_LISTED} are listed"
        return (Problem("$", message), *self._kept)
