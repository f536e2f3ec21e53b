"""The collectors of this agent: how each is configured, and the state that each saves."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from collectors.base import AgentOptions
from collectors.file_systems.collector import FileSystemsSection
from collectors.registry import COLLECTORS
from contract.codes.host_codes import HOST_CODES
from contract.observation import NODE, Assertion, Observation, SourceBlind
from service.files.atomic import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from agent.config import AgentConfiguration
    from collectors.base import Collector, SavedState
    from contract.observation import Report, Subject

log = logging.getLogger("agent.sources")

_FOLDER = "memory"
_LARGEST_BYTES = 1 << 20


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
    if source in {known.source for known in HOST_CODES.values()}:
        return [Observation(source, *fault, Assertion.ABSENT, now_ms) for fault in faults]
    why = "the collector is switched off; its last known faults stay"
    return [SourceBlind(source, NODE, now_ms, why)] if faults else []


@dataclass(frozen=True)
class _CollectorState:
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
        waiting = self._unwritten.get(source)
        if waiting is not None:
            return waiting
        try:
            with (self._folder / source).open("rb") as file:
                return file.read(_LARGEST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.error("the saved state of %s cannot be read: %s", source, error)
            return None

    def _write(self, source: str, content: bytes) -> None:
        self._unwritten[source] = content
        self._to_write.set()
