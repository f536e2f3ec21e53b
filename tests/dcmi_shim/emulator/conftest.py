"""Emulated servers, built once, and programs of someone else that use them."""

from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.install import LIBRARY, install
from tests.dcmi_shim.emulator.driver import Driver
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


@dataclass
class Server:
    """One emulated server: its root, its hardware, and its library in this process."""

    root: Path
    emulator_dir: Path
    emulator: Emulator
    driver: Driver

    @property
    def library(self) -> Path:
        """Return the path of its ``libdcmi.so``."""
        return self.root / LIBRARY


def _server(directory: Path, profile: str) -> Iterator[Server]:
    emulator_dir = directory / "emulator"
    install(directory, emulator_dir, profile)
    emulator = Emulator(emulator_dir)
    yield Server(directory, emulator_dir, emulator, Driver(directory / LIBRARY))
    emulator.close()


@pytest.fixture(scope="session")
def built_a2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _server(tmp_path_factory.mktemp("a2"), "a2")


@pytest.fixture(scope="session")
def built_a3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _server(tmp_path_factory.mktemp("a3"), "a3")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIGIL_EMULATOR_DIR", raising=False)


@pytest.fixture
def a2(built_a2: Server) -> Server:
    built_a2.emulator.start("a2")
    assert built_a2.driver.init() == 0
    return built_a2


@pytest.fixture
def a3(built_a3: Server) -> Server:
    built_a3.emulator.start("a3")
    assert built_a3.driver.init() == 0
    return built_a3


@pytest.fixture(params=["a2", "a3"])
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Compile the C programs next to this file; return their paths by name."""
    directory = tmp_path_factory.mktemp("programs")
    built = {}
    for name in ("stranger", "watch"):
        built[name] = directory / name
        command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
        subprocess.run([*command, "-o", built[name], HERE / f"{name}.c", "-ldl"], check=True)
    return built


class Watcher:
    """A process that has subscribed."""

    def __init__(self, program: Path, library: Path, arguments: tuple[str, ...]) -> None:
        self.process = subprocess.Popen(
            [program, library, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",  # its input may be noise
        )
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.return_code = int(self._lines.get(timeout=patience(10)))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def event(self, timeout: float = 5) -> dict[str, Any]:
        """Return the next event; raises ``queue.Empty`` if there is none within ``timeout``."""
        found: dict[str, Any] = json.loads(self._lines.get(timeout=patience(timeout)))
        return found

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._end()

    def _end(self) -> None:
        self.process.wait(patience(10))
        self._reader.join(patience(10))
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Watchers:
    """Starts watchers and ends what is left of them."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._started: list[Watcher] = []

    def start(
        self,
        server: Server,
        card: int = -1,
        device: int = -1,
        flag: int = 0,
        code: str = "0",
        severity: int = 0,
        node_type: int = 0,
        handler_ms: int = 0,
    ) -> Watcher:
        values = (card, device, flag, code, severity, node_type, handler_ms)
        watcher = Watcher(self._program, server.library, tuple(map(str, values)))
        self._started.append(watcher)
        return watcher

    def close(self) -> None:
        for watcher in self._started:
            if watcher.process.returncode is None:
                watcher.close()


@pytest.fixture
def watchers(programs: dict[str, Path]) -> Iterator[Watchers]:
    started = Watchers(programs["watch"])
    yield started
    started.close()
