"""What a collector is: it declares itself and runs until cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from contract.observation import Report, Subject
    from dcmi_shim.interface import ChipDriver

WallClock: TypeAlias = Callable[[], int]
"""Unix epoch milliseconds of the host."""

Sink: TypeAlias = Callable[[Sequence["Report"]], None]
"""Takes a batch of reports at once. Never blocks: it is on the path from event to document."""


Show: TypeAlias = Callable[["Subject", str, float | None], None]
"""Shows the newest reading of a subject for metrics, by its name; ``None``: not known any more."""


class SavedState(Protocol):
    """A few bytes that a collector finds again after a restart, whatever ended the one before.

    For what is no observation: how far a log was read, since when a flag stands.
    """

    def read(self) -> bytes | None:
        """What was written last; ``None`` when there is nothing that can be read."""

    def write(self, content: bytes) -> None:
        """Keep ``content`` instead, soon; never blocks, and a failure is only said in the log."""


@dataclass(frozen=True)
class VendorPaths:
    """Where the vendor's libraries and tools are: as configured, not yet looked at.

    ``driver_root`` is ``None`` where none was given (the vendor's default then comes after
    ``LD_LIBRARY_PATH``).
    """

    driver_root: Path | None
    trust_driver: bool
    environment: Mapping[str, str]


@dataclass(frozen=True)
class CollectorContext:
    """What a collector gets from the daemon.

    ``believed`` holds what the journal remembers of this collector's source at start: subject and
    code to the time (epoch milliseconds) at which the fault was first seen.
    """

    report: Sink
    wall_clock: WallClock
    believed: Mapping[tuple[Subject, str], int]
    driver: ChipDriver
    places: VendorPaths
    show: Show
    memory: SavedState
    listen: Callable[[Sink], None]
    """Registers who also wants to hear, at once, what all collectors report."""
    progress: Callable[[], None]
    """To be called at least once per ``period_seconds`` while the collector makes progress."""
    chips: frozenset[int] = frozenset()
    """Physical ids of the chips that are remembered, which the driver may not list."""


class Collector(Protocol):
    """One source of observations."""

    name: str
    period_seconds: float
    deadline_seconds: float

    async def run(self, surroundings: CollectorContext) -> NoReturn:
        """Report until cancelled. An exception ends the daemon."""
