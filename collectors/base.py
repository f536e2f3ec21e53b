"""The interface of a collector: it declares its settings and runs until cancelled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    ClassVar,
    Generic,
    Literal,
    NoReturn,
    Protocol,
    TypeAlias,
    TypeVar,
)

import msgspec

from contract.record import Record
from contract.settings import Section

if TYPE_CHECKING:
    from contract.observation import Report, Subject
    from dcmi_shim.interface import ChipDriver
    from dcmi_shim.library.discovery import VendorPaths

WallClock: TypeAlias = Callable[[], int]
"""Unix epoch milliseconds of the host."""

Sink: TypeAlias = Callable[[Sequence["Report"]], None]
"""Accepts a batch of reports. Never blocks: it is on the path from event to document."""

Show: TypeAlias = Callable[["Subject", str, float | None], None]
"""Sets the reading of a subject that metrics show, by its name; ``None``: not known any more."""

S = TypeVar("S", bound=Section)


class SavedState(Protocol):
    """A few bytes that a collector reads again after any kind of restart.

    For what is not an observation: how far a log was read, since when a flag is raised.
    """

    def read(self) -> bytes | None:
        """Return what was written last; ``None`` when there is nothing that can be read."""

    def write(self, content: bytes) -> None:
        """Store ``content`` instead, soon; never blocks, and a failure is only logged."""


class AgentOptions(Record, frozen=True):
    """Options of the agent that collectors follow, beside their own settings."""

    npu_exporter_names: bool = False
    hccn_error: Literal["blind", "down"] = "blind"
    file_systems: bool = True
    """Whether file systems are watched, so that one that fails is followed."""
    excluded: tuple[str, ...] | None = None
    """File systems mounted only below these paths are not watched; ``None``: the default."""


class CollectorContext(Record, frozen=True):
    """What the daemon provides to a collector.

    ``tracked`` holds the lasting faults of this collector's source at start, from the journal:
    subject and code to the time (epoch milliseconds) at which the fault was first seen. ``ended``
    holds those that recovered lately, with the time of the recovery.
    """

    report: Sink
    wall_clock: WallClock
    tracked: Mapping[tuple[Subject, str], int]
    driver: ChipDriver
    paths: VendorPaths
    show: Show
    saved_state: SavedState
    listen: Callable[[Sink], None]
    """Registers this collector, which then receives at once what all collectors report."""
    progress: Callable[[], None]
    """To be called at least once per ``period_seconds`` while the collector makes progress."""
    options: AgentOptions
    ended: Mapping[tuple[Subject, str], int] = msgspec.field(default_factory=dict)
    chips: frozenset[int] = frozenset()
    """Physical ids of the chips that are known, which the driver may not list."""


class Collector(ABC, Generic[S]):
    """One source of observations, from what it declares to one run of it.

    ``settings`` is the model of its section of the configuration, which is called ``name`` with
    ``_`` for ``-``; a plain ``Section`` stands for none. An object runs once: the daemon makes a
    new one for each run, so its state begins in ``__init__`` with what ``context`` has then.
    """

    name: ClassVar[str]
    settings: ClassVar[type[Section]] = Section
    gauges: ClassVar[Mapping[str, str]] = {}
    """Readings that ``/metrics`` shows as ``npu_vigil_<name>{chip}``, each with its HELP text."""
    about_chips: ClassVar[bool] = False
    """Whether it is cancelled and starts again when chips have other physical ids."""
    starts_first: ClassVar[bool] = False
    """Whether it starts before the first device-info is written; the others start behind that.

    That document waits for its answers, or it listens to what another one reports first.
    """
    period_option: ClassVar[str] = "period_seconds"
    """The option in ``settings`` with the period, where it is configurable."""
    period_seconds: float = 60.0
    deadline_seconds: float = 5.0

    def __init__(self, section: S, context: CollectorContext) -> None:
        self.section = section
        self.context = context
        self.period_seconds, self.deadline_seconds = self.times_of(section)

    @classmethod
    def is_enabled(cls, section: Section, options: AgentOptions) -> bool:  # noqa: ARG003
        """Return whether the collector runs. Otherwise its source counts as switched off."""
        return bool(getattr(section, "enabled", True))

    @classmethod
    def times_of(cls, section: Section) -> tuple[float, float]:
        """Return the period and the deadline in seconds: the section's, else the class's."""
        period = getattr(section, cls.period_option, cls.period_seconds)
        return period, getattr(section, "deadline_seconds", cls.deadline_seconds)

    @abstractmethod
    async def run(self) -> NoReturn:
        """Report until cancelled. An exception ends the daemon."""
