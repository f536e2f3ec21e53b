"""Real libraries for the shim: small drivers of our own, compiled once per session."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from dcmi_shim.driver import Driver
from dcmi_shim.library.discovery import FoundLibrary
from dcmi_shim.values import DriverEvent, DriverGap
from dcmi_shim.worker.supervisor import DriverSettings
from tests.parts.deadlines import patience, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SOURCES = Path(__file__).parent / "drivers"
QUICK = DriverSettings(
    call_seconds=0.5,
    longest_call_seconds=0.8,
    open_seconds=3.0,
    subscribe_seconds=0.5,
    probe_seconds=0.3,
    retry_first_seconds=0.05,
    retry_last_seconds=0.2,
    look_seconds=0.1,
)
# No call may miss its deadline on a busy machine, unless it hangs.
SCALED = replace(
    QUICK,
    call_seconds=patience(QUICK.call_seconds),
    longest_call_seconds=patience(QUICK.longest_call_seconds),
    open_seconds=patience(QUICK.open_seconds),
    subscribe_seconds=patience(QUICK.subscribe_seconds),
)
# For tests in which no call may miss its deadline, whatever else the machine does.
PATIENT = replace(SCALED, call_seconds=20.0, longest_call_seconds=20.0)


@dataclass(frozen=True)
class SmallDriver:
    """A library of ``drivers/`` and the directory by which a test steers it."""

    library: FoundLibrary
    directory: Path

    def command(self, what: str) -> None:
        (self.directory / what).touch()

    def take_back(self, what: str) -> None:
        (self.directory / what).unlink()

    def noted(self, what: str) -> list[int]:
        """Return the ids of the processes that noted ``what``."""
        path = self.directory / what
        return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    directory = tmp_path_factory.mktemp("libraries")

    def build(name: str) -> Path:
        path = directory / name / "libdcmi.so"
        if not path.exists():
            path.parent.mkdir()
            source = str(SOURCES / f"{name}.c")
            command = ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O1"]
            subprocess.run([*command, "-o", str(path), source, "-lpthread"], check=True)
        return path

    return build


@pytest.fixture
def small_driver(
    built: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], SmallDriver]:
    def make(name: str) -> SmallDriver:
        directory = tmp_path / "steering"
        directory.mkdir()
        monkeypatch.setenv("VIGIL_TEST_DRIVER", str(directory))
        return SmallDriver(FoundLibrary(built(name), (), ()), directory)

    return make


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


def dropped(gaps: str) -> int:
    """Return how many events are lost by these reasons of gaps."""
    words = itertools.pairwise(gaps.split())
    return sum(int(word) for word, after in words if after == "events" and word.isdigit())


class Running:
    """A running ``Driver``; ``received`` fills with its events and gaps."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.run = asyncio.create_task(driver.run())
        self.received: list[DriverEvent | DriverGap] = []

    @property
    def events(self) -> list[DriverEvent]:
        return [item for item in self.received if isinstance(item, DriverEvent)]

    @property
    def gaps(self) -> str:
        return "\n".join(item.reason for item in self.received if isinstance(item, DriverGap))

    async def until(self, condition: Callable[[], object], seconds: float = 5.0) -> None:
        """Wait until ``condition`` holds; fail with the driver's log otherwise."""
        await until(condition, lambda: f"received so far:\n{self.received[-5:]}", seconds)


@contextlib.asynccontextmanager
async def running(
    library: FoundLibrary,
    settings: DriverSettings = SCALED,
    find: Callable[[], FoundLibrary] | None = None,
) -> AsyncIterator[Running]:
    """Yield a running ``Driver`` and its events; end it afterwards."""
    state = Running(Driver(library, wall_clock, settings, find))

    async def read() -> None:
        async for item in state.driver.events():
            state.received.append(item)

    tasks = [state.run, asyncio.create_task(read())]
    try:
        yield state
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
