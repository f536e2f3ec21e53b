"""What came of recordings that were played, and how that is printed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.compatibility import Difference


@dataclass(frozen=True)
class Result:
    """The result of one recording. ``problem`` is why it could not be played to its end."""

    name: str
    known: int = 0
    unknown: tuple[Difference, ...] = ()
    problem: str | None = None
    surprises: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        """Return whether the result has no problem, difference or surprise."""
        return self.problem is None and not self.unknown and not self.surprises


def show(result: Result) -> None:
    """Print what came of one."""
    if result.problem is not None:
        _print(f"{result.name}: NOT PLAYED: {result.problem}")
        return
    known = f", {result.known} known differences" if result.known else ""
    _print(f"{result.name}: {'as expected' if result.is_well else 'DIFFERS'}{known}")
    for one in result.unknown:
        _print(f"    {one.path}: upstream {one.upstream}, ours {one.ours}")
    for surprise in result.surprises:
        _print(f"    {surprise}")


def status_of(results: Sequence[Result]) -> int:
    """Print the sum; the exit status."""
    well = sum(result.is_well for result in results)
    _print(f"{well} of {len(results)} as expected")
    return 0 if well == len(results) else 1


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
