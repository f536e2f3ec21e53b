"""What a collector is: it declares itself and runs until cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeAlias

if TYPE_CHECKING:
    from contract.observation import Report, Subject
    from dcmi_shim.interface import ChipDriver

WallClock: TypeAlias = Callable[[], int]
"""Unix epoch milliseconds of the host."""

Sink: TypeAlias = Callable[[Sequence["Report"]], None]
"""Takes a batch of reports at once. Never blocks: it is on the path from event to document."""


class Need(StrEnum):
    """What a collector cannot work without."""

    DRIVER = "driver"


@dataclass(frozen=True)
class Surroundings:
    """What a collector gets from the daemon.

    ``believed`` holds what the journal remembers of this collector's source at start: subject and
    code to the time (epoch milliseconds) at which the fault was first seen.
    """

    report: Sink
    wall_clock: WallClock
    believed: Mapping[tuple[Subject, str], int]
    driver: ChipDriver
    progress: Callable[[], None]
    """To be called at least once per ``period_seconds`` while the collector makes progress."""


class Collector(Protocol):
    """One source of observations."""

    name: str
    period_seconds: float
    deadline_seconds: float
    needs: frozenset[Need]

    async def run(self, surroundings: Surroundings) -> NoReturn:
        """Report until cancelled. An exception ends the daemon."""
