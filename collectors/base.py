"""The interface of a collector: it declares its settings and runs until cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Protocol, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from contract.observation import Report, Subject
    from contract.settings import Section
    from dcmi_shim.interface import ChipDriver

WallClock: TypeAlias = Callable[[], int]
"""Unix epoch milliseconds of the host."""

Sink: TypeAlias = Callable[[Sequence["Report"]], None]
"""Accepts a batch of reports. Never blocks: it is on the path from event to document."""


Show: TypeAlias = Callable[["Subject", str, float | None], None]
"""Sets the reading of a subject that metrics show, by its name; ``None``: not known any more."""


class SavedState(Protocol):
    """A few bytes that a collector reads again after any kind of restart.

    For what is no observation: how far a log was read, since when a flag is raised.
    """

    def read(self) -> bytes | None:
        """Return what was written last; ``None`` when there is nothing that can be read."""

    def write(self, content: bytes) -> None:
        """Store ``content`` instead, soon; never blocks, and a failure is only logged."""


@dataclass(frozen=True)
class VendorPaths:
    """Where the vendor's libraries and tools are: as configured, not checked.

    ``driver_root`` is ``None`` where none was given (the vendor's default then comes after
    ``LD_LIBRARY_PATH``).
    """

    driver_root: Path | None
    trust_driver: bool
    environment: Mapping[str, str]


@dataclass(frozen=True)
class CollectorContext:
    """What the daemon provides to a collector.

    ``tracked`` holds the lasting faults of this collector's source at start, from the journal:
    subject and code to the time (epoch milliseconds) at which the fault was first seen.
    """

    report: Sink
    wall_clock: WallClock
    tracked: Mapping[tuple[Subject, str], int]
    driver: ChipDriver
    paths: VendorPaths
    show: Show
    saved_state: SavedState
    listen: Callable[[Sink], None]
    """Registers a subscriber, which receives at once what all collectors report."""
    progress: Callable[[], None]
    """To be called at least once per ``period_seconds`` while the collector makes progress."""
    chips: frozenset[int] = frozenset()
    """Physical ids of the chips that are known, which the driver may not list."""


@dataclass(frozen=True)
class AgentOptions:
    """Options of the agent that collectors follow, beside their own settings."""

    npu_exporter_names: bool = False
    hccn_error: Literal["blind", "down"] = "blind"
    file_systems: bool = True
    """Whether file systems are watched, so that one that becomes read-only is followed."""


class Collector(Protocol):
    """One source of observations.

    ``settings`` is the model of its section of the configuration, which is called ``name`` with
    ``_`` for ``-``; a plain ``Section`` stands for none. A class may have ``gauges``: the readings
    that ``/metrics`` shows as ``npu_vigil_<name>{chip}``, each with its HELP text. One with
    ``about_chips = True`` is cancelled and starts again when chips have other physical ids.
    """

    settings: ClassVar[type[Section]]
    name: str
    enabled: bool
    """Whether the collector runs. Otherwise its source counts as switched off."""
    period_seconds: float
    deadline_seconds: float

    def __init__(self, settings: Any, options: AgentOptions, /) -> None:
        """Take over ``settings``, an object of the class's own ``settings``, and the agent's
        options.
        """

    async def run(self, context: CollectorContext) -> NoReturn:
        """Report until cancelled. An exception ends the daemon."""
