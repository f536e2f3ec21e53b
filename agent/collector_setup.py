"""The collectors of this agent: how each is configured, what it reports, and what it saves."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from agent.policy.state import recently_ended, tracked
from collectors.base import AgentOptions, CollectorContext
from collectors.file_systems.collector import FileSystemsSection
from collectors.registry import COLLECTORS
from contract.codes.host_codes import HOST_CODES
from contract.observation import NODE, Assertion, Gap, Observation, SourceBlind
from contract.record import Record
from dcmi_shim.library.discovery import VendorPaths
from service.files.atomic import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from agent.config import AgentConfiguration
    from agent.fault_state import FaultState
    from collectors.base import Collector, SavedState, Sink, WallClock
    from contract.observation import Report, Subject
    from dcmi_shim.driver import Driver
    from service.watchdog import Watchdog

log = logging.getLogger("agent.sources")

_FOLDER = "memory"
_MAX_BYTES = 1 << 20


def options_of(configuration: AgentConfiguration) -> AgentOptions:
    """Return the options that collectors follow beside their own settings."""
    return AgentOptions(
        npu_exporter_names=configuration.metrics.npu_exporter_names,
        hccn_error=configuration.compatibility.hccn_error,
        file_systems=configuration.settings_of(FileSystemsSection).enabled,
        excluded=configuration.settings_of(FileSystemsSection).excluded,
    )


def collectors_of(
    configuration: AgentConfiguration,
) -> Iterator[tuple[str, type[Collector[Any]] | None]]:
    """Yield every source by its name, with ``None`` for one that is switched off."""
    options = options_of(configuration)
    for collector in COLLECTORS:
        section = configuration.settings_of(collector.settings)
        yield collector.name, collector if collector.is_enabled(section, options) else None


def reports_when_disabled(
    source: str, tracked: Iterable[tuple[Subject, str]], now_ms: int
) -> list[Report]:
    """Return the reports for a source that is switched off.

    Faults of a host check end, because no report of their recovery would ever come. Faults of other
    sources stay as they are; the source is reported blind.
    """
    faults = sorted(tracked)
    if source in {host_code.source for host_code in HOST_CODES.values()}:
        return [Observation(source, *fault, Assertion.ABSENT, now_ms) for fault in faults]
    reason = "the collector is switched off; its last known faults stay"
    return [SourceBlind(source, NODE, now_ms, reason)] if faults else []


class _CollectorState(Record, frozen=True):
    """See ``SavedState``."""

    read: Callable[[], bytes | None]
    write: Callable[[bytes], None]


class SavedStates:
    """The saved states of collectors, one small file for each in ``<state_dir>/memory``."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / _FOLDER
        self._unwritten: dict[str, bytes] = {}
        self._to_write = asyncio.Event()
        self._troubled: set[str] = set()
        # The thread of ``run`` may still write when the end calls ``write_pending``.
        self._one_by_one = threading.Lock()

    def of(self, source: str) -> SavedState:
        """Return access to the saved state of one collector."""
        return _CollectorState(partial(self._read, source), partial(self._write, source))

    async def run(self) -> NoReturn:
        """Write states as they change, until cancelled."""
        while True:
            await self._to_write.wait()
            self._to_write.clear()
            await asyncio.to_thread(self.write_pending)

    def write_pending(self) -> None:
        """Write all states that changed since the last call. Blocking."""
        with self._one_by_one:
            while self._unwritten:
                source, content = self._unwritten.popitem()
                try:
                    replace(self._folder / source, content)
                except OSError as error:
                    if source not in self._troubled:
                        log.error("the saved state of %s cannot be written: %s", source, error)
                    self._troubled.add(source)
                else:
                    self._troubled.discard(source)

    def _read(self, source: str) -> bytes | None:
        # A collector that starts again reads the state that its run before has just written.
        waiting = self._unwritten.get(source)
        if waiting is not None:
            return waiting
        try:
            with (self._folder / source).open("rb") as file:
                return file.read(_MAX_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.error("the saved state of %s cannot be read: %s", source, error)
            return None

    def _write(self, source: str, content: bytes) -> None:
        self._unwritten[source] = content
        self._to_write.set()


class Collecting:
    """What all collectors report and show, and the parts of the agent that they use."""

    def __init__(
        self,
        configuration: AgentConfiguration,
        driver: Driver,
        fault_state: FaultState,
        stalls: Watchdog,
        wall_clock: WallClock,
    ) -> None:
        self.saved_states = SavedStates(configuration.state_dir)
        self.readings: dict[tuple[Subject, str], float] = {}
        self.gap = asyncio.Event()
        """Set when something about chips may have been missed."""
        self.gaps: Counter[str] = Counter()
        """How often that was so, by source."""
        self.other_chips = asyncio.Event()
        """Set, and replaced by a new event, when chips have other physical ids."""
        self._listeners: dict[str, Sink] = {}
        """By collector: one that starts again takes the place of its run before."""
        self._configuration = configuration
        self._driver = driver
        self._fault_state = fault_state
        self._stalls = stalls
        self._wall_clock = wall_clock
        self._paths = VendorPaths(configuration.driver_root, configuration.trust_driver, os.environ)

    def restart_chip_collectors(self) -> None:
        """Restart the collectors of chips with the present state."""
        before, self.other_chips = self.other_chips, asyncio.Event()
        before.set()
        self.gap.set()

    def report(self, reports: Sequence[Report]) -> None:
        """Apply the reports of a collector, then pass them on to those that listen."""
        gaps = [report.source for report in reports if isinstance(report, Gap)]
        if gaps:
            self.gaps.update(gaps)
            self.gap.set()
        self._fault_state.apply_inputs(reports)
        for listener in self._listeners.values():
            listener(reports)

    def new_collector(self, kind: type[Collector[Any]]) -> Collector[Any]:
        """Return a collector of ``kind`` for one run, with the present state."""
        state = self._fault_state.state
        section = self._configuration.settings_of(kind.settings)
        context = CollectorContext(
            report=self.report,
            wall_clock=self._wall_clock,
            tracked=tracked(state, kind.name),
            ended=recently_ended(state, kind.name),
            chips=frozenset(number for number, chip in state.chips.items() if chip.was_read),
            driver=self._driver,
            paths=self._paths,
            show=self._show,
            saved_state=self.saved_states.of(kind.name),
            listen=partial(self._listeners.__setitem__, kind.name),
            # Three periods: a single slow answer of the driver is not a stall.
            progress=self._stalls.register(kind.name, 3 * sum(kind.times_of(section))),
            options=options_of(self._configuration),
        )
        return kind(section, context)

    def _show(self, subject: Subject, name: str, value: float | None) -> None:
        if value is None:
            self.readings.pop((subject, name), None)
        else:
            self.readings[subject, name] = value
