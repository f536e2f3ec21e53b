"""The lives of agents and aggregators on one virtual loop, and what is replaced below them.

A life is what ``vigil agent`` and ``vigil aggregator`` run behind their command line. A program is
killed as by SIGKILL: its requests and its files end at that moment, whatever it does later.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import shutil
import signal
from contextvars import ContextVar
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, cast
from unittest import mock

import msgspec
from typing_extensions import override

from agent.collect_status import version
from agent.config import AgentConfiguration
from agent.daemon import Agent
from agent.journal.file import FILE_NAME
from agent.journal.journal import Journal
from aggregator import process as aggregator_process
from aggregator.config import AggregatorConfiguration
from benchmarks.chaos.simulated.driver import DriverProcess, Hardware
from benchmarks.chaos.simulated.virtual_time import PROGRAM, VirtualTimeLoop
from benchmarks.chaos.stage import truncate_journal
from dcmi_shim.driver import Driver
from dcmi_shim.library.discovery import FoundLibrary
from dcmi_shim.worker.supervisor import DriverSettings
from pacing.waiting import SHARED_PERIOD_SECONDS, SharedWakeUps
from service.watchdog import Watchdog
from stores.address import open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path

    from agent.exit_deadline import ExitDeadline
    from benchmarks.chaos.simulated.store import SimulatedApiServer
    from tests.cluster.apiserver import Client

BEGAN_MS = 1_760_000_000_000
"""The wall time at the begin of an episode."""
_COMMIT_SECONDS = 2**-9
_LATE_COMMIT_SECONDS = 2**-6
"""Less than the 20 ms for which a publication waits (decision 2)."""
_SLOW_COMMIT_SECONDS = 1.5
_SYNC_SECONDS = 1.0
_MAX_LOG_BYTES = 1 << 20
_AWAY_SECONDS = 0.5
_RETRY_SECONDS = 0.5


class Disk:
    """The disk of a node: whether it is full or read-only, how long a commit takes, and what was
    synced.
    """

    def __init__(self) -> None:
        self.is_full = False
        self.is_read_only = False
        self.commit_seconds = _COMMIT_SECONDS
        self.synced: dict[str, bytes] | None = None
        """The journal's files by name as they were synced; ``None`` until a trouble needs them."""

    @property
    def is_slow(self) -> bool:
        """Whether a commit takes long."""
        return self.commit_seconds > _COMMIT_SECONDS

    @is_slow.setter
    def is_slow(self, is_slow: bool) -> None:
        self.commit_seconds = _SLOW_COMMIT_SECONDS if is_slow else _COMMIT_SECONDS

    def keep_synced(self, journal: Path) -> None:
        """Take the files as they are for what would be there after a loss of power."""
        files = journal.parent.glob(f"{journal.name}*")
        # The index of the log in shared memory is never on a disk.
        self.synced = {
            file.name: file.read_bytes() for file in files if not file.name.endswith("-shm")
        }


_version = functools.cache(version)

DISK: ContextVar[Disk] = ContextVar("disk")


class InlineJournal(Journal):
    """The journal without threads: their work is done on the loop, a moment later."""

    @override
    def _start_threads(self) -> None:
        self._is_due = self._is_sync_due = False

    @override
    def append(self, entries: Any, at_ms: int) -> int:
        sequence = super().append(entries, at_ms)
        self._work_soon(DISK.get().commit_seconds)
        return sequence

    @override
    def rename(self) -> None:
        super().rename()
        self._work_soon(DISK.get().commit_seconds)

    @override
    async def close(self) -> bool:
        self._slow.close()
        self._closing = True
        self._work()
        self._close_file()
        self._sync()
        return not self._queue

    @override
    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        self._loop.call_soon(function, *arguments)

    @override
    def _write_waiting(self) -> bool:
        disk = DISK.get()
        if disk.is_full or disk.is_read_only:
            reason = "database or disk is full" if disk.is_full else "disk I/O error"
            self._call(self._begin_trouble, reason)
            self._close_file()
            return False
        return super()._write_waiting()

    @override
    def _sync(self) -> None:
        disk, log = DISK.get(), self._path.with_name(f"{self._path.name}-wal")
        # Where no power is lost, a sync only keeps the log short.
        if disk.synced is None and log.exists() and log.stat().st_size < _MAX_LOG_BYTES:
            return
        super()._sync()
        if disk.synced is not None:
            disk.keep_synced(self._path)

    def _work_soon(self, seconds: float) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_later(seconds, self._work)

    def _work(self) -> None:
        self._is_due = False
        if not self._write_waiting():
            self._work_soon(_RETRY_SECONDS)
        elif not self._is_sync_due:
            self._is_sync_due = True
            self._loop.call_later(_SYNC_SECONDS, self._sync_later)

    def _sync_later(self) -> None:
        self._is_sync_due = False
        if self._dirty and not self._closing:
            self._dirty = False
            self._sync()


class Platform(Protocol):
    """What lives share."""

    api: SimulatedApiServer
    programs: dict[str, Program]


class Program:
    """A daemon that is started, stopped, paused and killed; each life has a directory of its own
    after a kill, with the files as they were.
    """

    def __init__(self, name: str, directory: Path, platform: Platform) -> None:
        self.name = name
        self.state_dir = directory / "state-0"
        self.state_dir.mkdir(parents=True)
        self.clock_ahead_ms = 0
        """How far its host's clock is ahead."""
        self.crashes: list[BaseException] = []
        self._platform = platform
        self._loop = cast("VirtualTimeLoop", asyncio.get_running_loop())
        self._lives = self._kills = 0
        self._life: asyncio.Task[object] | None = None
        self._clients: list[Client] = []
        self._stop: Callable[[], object] | None = None
        self._paused: str | None = None
        self._is_ending = False

    @property
    def process(self) -> Program:
        """Itself: signals go there."""
        return self

    @property
    def runs(self) -> bool:
        """Whether it runs, perhaps paused."""
        return self._life is not None and not self._life.done()

    def signal(self, number: signal.Signals) -> None:
        """Pause it or let it go on."""
        if number == signal.SIGSTOP and self.runs:
            self._paused = self._program
            self._loop.pause(self._paused)
        elif self._paused is not None:
            self._loop.go_on(self._paused)
            self._paused = None

    def start(self) -> None:
        """Begin a life, behind the end of the one before where that was stopped."""
        if self.runs and not self._is_ending:
            return
        before, self._is_ending = self._life, False
        self._lives += 1
        token = PROGRAM.set(self._program)
        try:
            self._life = asyncio.create_task(self._live(before), name=self.name)
        finally:
            PROGRAM.reset(token)

    spawn = start

    def stop(self) -> None:
        """Stop it as SIGTERM does; it ends some time later."""
        if not self.runs:
            return
        if self._stop is None:
            # Until a daemon has its handlers, the signal ends the process at once.
            self.kill()
        else:
            self._is_ending = True
            self._stop()

    def kill(self) -> None:
        """Kill it as SIGKILL does."""
        life, self._life = self._life, None
        self._kills += 1
        for client in self._clients:
            client.cut()
        self._clients.clear()
        files = self.state_dir.with_name(f"state-{self._kills}")
        # What it still does, it does with files that nobody reads.
        shutil.copytree(self.state_dir, files, ignore=shutil.ignore_patterns("*.sock", "*-shm"))
        self.state_dir = files
        self._ended()
        self._stop = None
        self.signal(signal.SIGCONT)
        if life is not None:
            life.cancel()

    def connect(self) -> Client:
        """Return a connection to the API server."""
        self._clients.append(self._platform.api.client(self.name))
        return self._clients[-1]

    def take_stop(self, stop: Callable[[], object]) -> None:
        """Keep what a signal calls."""
        self._stop = stop

    @property
    def _program(self) -> str:
        return f"{self.name} {self._lives}"

    async def _live(self, before: asyncio.Task[object] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._stop = None
        try:
            await self._run()
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            # A killed one ends with any error.
            if self._life is asyncio.current_task():
                self.crashes.append(error)

    async def _run(self) -> None:
        raise NotImplementedError

    def _ended(self) -> None:
        """End what is outside of the process."""


class SimulatedNode(Program):
    """An agent and its hardware."""

    def __init__(
        self, name: str, directory: Path, platform: Platform, options: Mapping[str, Any]
    ) -> None:
        super().__init__(name, directory, platform)
        self.document = f"mindx-dl-deviceinfo-{name}"
        self.emulator = Hardware(self.wall_ms)
        self._library = directory / "libdcmi.so"
        self._library.touch()
        self._options = options
        self.agent: Agent | None = None
        self.disk = Disk()
        self._at_write: Callable[[str, str | None], None] | None = None

    def wall_ms(self) -> int:
        """Return the time of its host (epoch ms)."""
        return BEGAN_MS + round(self._loop.time() * 1000) + self.clock_ahead_ms

    def replace_library(self) -> None:
        """Install another driver."""
        new = self._library.with_suffix(".new")
        new.write_bytes(self._library.read_bytes() + b"+")
        new.replace(self._library)

    def hang_task(self, name: str) -> None:
        """Run no step of the task ``name`` until ``release_task``."""
        self._loop.hang(self._program, name)

    def release_task(self) -> None:
        """Let the task go on."""
        self._loop.release(self._program)

    def kill_at_write(self, api: SimulatedApiServer) -> None:
        """Kill it when its next write of the document has its effect; commits are slow."""
        self.disk.commit_seconds = _LATE_COMMIT_SECONDS

        def written(client: str, name: str | None) -> None:
            if client == self.name and name == self.document:
                api.on_write.remove(written)
                self._at_write = None
                self.kill()

        self._at_write = written
        api.on_write.append(written)

    def start_after_write(self, api: SimulatedApiServer) -> None:
        """Start it again where it was killed."""
        self.disk.commit_seconds = _COMMIT_SECONDS
        if self._at_write is not None:
            api.on_write.remove(self._at_write)
            self._at_write = None
        # The driver has a code in its list for a moment after it reported the end of the fault.
        self._loop.call_later(_AWAY_SECONDS, self.start)

    def kill_and_truncate_journal(self) -> None:
        """Kill it, and leave the first half of its journal."""
        self.kill()
        truncate_journal(self.state_dir)

    def begin_losing_power(self) -> None:
        """Keep what the journal syncs from now on; what is there counts as synced."""
        self.disk.keep_synced(self.state_dir / FILE_NAME)

    def lose_power(self) -> None:
        """Kill it; of its journal only what was synced is there, and it starts again."""
        synced, self.disk.synced = self.disk.synced, None
        assert synced is not None
        self.kill()
        for file in self.state_dir.glob(f"{FILE_NAME}*"):
            file.unlink()
        for name, content in synced.items():
            (self.state_dir / name).write_bytes(content)
        self._loop.call_later(_AWAY_SECONDS, self.start)

    @override
    async def _run(self) -> None:
        DISK.set(self.disk)
        options = {"node_name": self.name, "state_dir": self.state_dir, **self._options}
        configuration = msgspec.convert(options, AgentConfiguration)
        library = FoundLibrary(self._library, (), ())
        settings = DriverSettings(
            call_seconds=configuration.driver.call_deadline_seconds,
            probe_seconds=configuration.driver.probe_period_seconds,
        )
        deadline = SimpleNamespace(
            has_begun=True, start_timer=lambda: None, note_complete=lambda: None
        )
        self.agent = Agent(
            configuration,
            open_store("kubernetes:", node=self.name),
            Driver(library, self.wall_ms, settings),
            cast("ExitDeadline", deadline),
            self.wall_ms,
        )
        await self.agent.run()

    @override
    def _ended(self) -> None:
        for process in tuple(self.emulator.processes):
            process.kill()


class SimulatedAggregator(Program):
    """An aggregator."""

    def __init__(
        self, name: str, directory: Path, platform: Platform, options: Mapping[str, Any]
    ) -> None:
        super().__init__(name, directory, platform)
        self._options = options

    @override
    async def _run(self) -> None:
        options = {"state_dir": self.state_dir, **self._options}
        configuration = msgspec.convert(options, AggregatorConfiguration)
        await aggregator_process._run(configuration)


@contextlib.contextmanager
def replaced(platform: Platform, seed: int) -> Iterator[None]:
    """Replace what is below the programs: network, clocks, threads, signals, sockets, processes."""
    loop = asyncio.get_running_loop()
    draw = random.Random(seed)

    owners: dict[str, Program] = {}
    """By life; each look at a clock asks for it."""

    def program() -> Program:
        life = PROGRAM.get()
        owner = owners.get(life)
        if owner is None:
            owner = owners[life] = platform.programs[life.rpartition(" ")[0]]
        return owner

    def time_ns() -> int:
        life = PROGRAM.get()
        owner = owners.get(life) or (program() if life else None)
        ahead_ms = 0 if owner is None else owner.clock_ahead_ms
        return (BEGAN_MS + ahead_ms) * 1_000_000 + round(loop.time() * 1e9)

    def open_process(*_: object, pass_fds: tuple[int], **__: object) -> DriverProcess:
        node = program()
        assert isinstance(node, SimulatedNode)
        return DriverProcess(node.emulator, pass_fds[0])

    replacements: dict[str, object] = {
        "time.monotonic": loop.time,
        "time.monotonic_ns": lambda: round(loop.time() * 1e9),
        "time.time": lambda: time_ns() / 1e9,
        "time.time_ns": time_ns,
        "os.urandom": draw.randbytes,
        "asyncio.to_thread": _at_once,
        "agent.wiring.Journal": InlineJournal,
        # Else drawn when the product is imported, so that a seed would not decide it.
        "pacing.waiting.SHARED_WAKE_UPS": SharedWakeUps(
            random.Random(seed).uniform(0, SHARED_PERIOD_SECONDS)
        ),
        # Its clocks are bound when the product is imported.
        "agent.wiring.Watchdog": lambda: Watchdog(loop.time, loop.time),
        # The product's name of a holder has its directory, and a killed program gets another one.
        "agent.wiring.this_holder": lambda _: f"host_{program().name}",
        "agent.daemon.on_stop": lambda stop: program().take_stop(stop),
        "service.tasks.on_stop": lambda stop: program().take_stop(stop),
        "agent.collect_status.version": _version,
        "agent.daemon.version": _version,
        "agent.daemon.application": lambda *_: None,
        "aggregator.process.application": lambda *_: None,
        "agent.daemon.serving": _no_pages,
        "aggregator.process.serving": _no_pages,
        "dcmi_shim.worker.process.subprocess.Popen": open_process,
        "stores.address.kubeconfig_files": lambda _: None,
        "stores.kubernetes_api.store.ApiConnection": lambda _: program().connect(),
        "socket.gethostname": lambda: PROGRAM.get().rpartition(" ")[0] or "platform",
    }
    with contextlib.ExitStack() as stack:
        for name, replacement in replacements.items():
            stack.enter_context(mock.patch(name, replacement))
        stack.enter_context(mock.patch.dict(os.environ))
        os.environ.pop("NOTIFY_SOCKET", None)
        random.seed(seed)
        yield


async def _at_once(function: Callable[..., object], *arguments: object, **named: object) -> object:
    """Call the function at once, in place of a thread."""
    return function(*arguments, **named)


@contextlib.asynccontextmanager
async def _no_pages(*_: object, **__: object) -> AsyncIterator[None]:
    yield
