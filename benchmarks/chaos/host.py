"""The hosts of real programs: they lose power and memory, and have clocks and disks of their own.

Needs no root: a preloaded library keeps what was synced, sets the clock, and makes the disk slow or
read-only (``host_preload.c``). A full disk is a limit of the size of files in one process
(RLIMIT_FSIZE), so a write fails with EFBIG and not with ENOSPC. Memory is the address space of one
process (RLIMIT_AS).
"""

from __future__ import annotations

import resource
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from typing_extensions import override

from benchmarks.chaos.stage import truncate_journal
from dcmi_shim.emulator.install import LIBRARY
from tests.aggregator.daemon import Daemon as AggregatorDaemon
from tests.end_to_end.node import Node
from tests.parts.daemons import Daemon
from tests.parts.processes import PartFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from http.client import HTTPConnection

    from tests.parts.places import Place

_SOURCE = Path(__file__).with_name("host_preload.c")
_INDEX_SUFFIX = "-shm"
"""The index of a log in shared memory is never on a disk."""
_NOT_SYNCED = ".pending.", ".draft."
"""How names begin of what is not synced whole."""
_UNLIMITED = resource.RLIM_INFINITY
_CONTROL = "=qqq"
"""``struct control`` of the library: clock ahead (ms), pause of each sync (ms), read-only."""
_AHEAD, _SYNC, _READ_ONLY = range(3)
_SPARE_BYTES = 1 << 18
"""What a program with a limit may still map."""
_SLOW_SYNC_MS = 1500


def build_library(directory: Path) -> Path:
    """Compile the library of all hosts into ``directory``; return its path."""
    library = directory / "host_preload.so"
    flags = ("-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
    subprocess.run(["cc", *flags, "-o", library, _SOURCE, "-ldl", "-pthread"], check=True)
    return library


class Host:
    """The disk below ``state_dir`` and the clock of one program, whose ``environment`` it sets."""

    def __init__(self, directory: Path, state_dir: Path, library: Path) -> None:
        self.state_dir = state_dir
        self._synced = directory / "synced"
        self._control = directory / "control"
        self._control.write_bytes(struct.pack(_CONTROL, 0, 0, 0))
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "HOST_STATE": str(state_dir),
            "HOST_SYNCED": str(self._synced),
            "HOST_CONTROL": str(self._control),
        }

    @property
    def ahead_ms(self) -> int:
        """How far the clock of the day is ahead of the right time (ms), negative for behind."""
        return self._controls()[_AHEAD]

    @ahead_ms.setter
    def ahead_ms(self, ahead: int) -> None:
        self._set(_AHEAD, ahead)

    @property
    def is_slow(self) -> bool:
        """Whether each sync takes 1.5 s more."""
        return self._controls()[_SYNC] > 0

    @is_slow.setter
    def is_slow(self, is_slow: bool) -> None:
        self._set(_SYNC, _SLOW_SYNC_MS if is_slow else 0)

    @property
    def is_read_only(self) -> bool:
        """Whether nothing below ``state_dir`` can be written."""
        return self._controls()[_READ_ONLY] > 0

    @is_read_only.setter
    def is_read_only(self, is_read_only: bool) -> None:
        self._set(_READ_ONLY, int(is_read_only))

    def _controls(self) -> list[int]:
        return [*struct.unpack(_CONTROL, self._control.read_bytes())]

    def _set(self, index: int, value: int) -> None:
        controls = self._controls()
        controls[index] = value
        # In place: the library has it mapped.
        with self._control.open("r+b") as file:
            file.write(struct.pack(_CONTROL, *controls))

    def begin_losing_power(self) -> None:
        """Keep what is synced from now on; what is there counts as synced.

        The program must be stopped: between two copies it could write.
        """
        self._synced.mkdir()
        for file in self._files():
            if not file.name.endswith(_INDEX_SUFFIX):
                shutil.copyfile(file, self._synced / file.name)

    def lose_power(self) -> None:
        """Leave of the files what was synced. The program has been killed before."""
        synced = {
            file.name: file
            for file in self._synced.iterdir()
            if not file.name.startswith(_NOT_SYNCED)
        }
        for file in self._files():
            if file.name not in synced:
                file.unlink()
        for name, file in synced.items():
            shutil.copyfile(file, self.state_dir / name)
        shutil.rmtree(self._synced)

    def _files(self) -> list[Path]:
        """Return the files of the program, without sockets and directories."""
        return [file for file in self.state_dir.iterdir() if file.is_file()]


class Disk:
    """The disk of a program with this process id on ``host``; while it is full, every write to a
    file fails.
    """

    def __init__(self, pid: Callable[[], int], host: Host) -> None:
        self._pid = pid
        self._host = host

    @property
    def is_slow(self) -> bool:
        """Whether a commit takes long."""
        return self._host.is_slow

    @is_slow.setter
    def is_slow(self, is_slow: bool) -> None:
        self._host.is_slow = is_slow

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written to the state directory."""
        return self._host.is_read_only

    @is_read_only.setter
    def is_read_only(self, is_read_only: bool) -> None:
        self._host.is_read_only = is_read_only

    @property
    def is_full(self) -> bool:
        """Whether the process may write nothing to a file."""
        return self._process().rlimit(psutil.RLIMIT_FSIZE)[0] == 0

    @is_full.setter
    def is_full(self, is_full: bool) -> None:
        size = 0 if is_full else _UNLIMITED
        self._process().rlimit(psutil.RLIMIT_FSIZE, (size, _UNLIMITED))

    def _process(self) -> psutil.Process:
        return psutil.Process(self._pid())


class HostNode(Node):
    """A node with a host and a driver of its own."""

    def __init__(
        self, directory: Path, built: Path, place: Place, name: str, library: Path
    ) -> None:
        super().__init__(directory, built, place, name)
        self._host = Host(directory, self.state_dir, library)
        self.environment |= self._host.environment
        self.disk = Disk(lambda: self.process.pid, self._host)
        self.driver_root = directory / "driver"
        shutil.copytree(built / "driver", self.driver_root, symlinks=True)
        self._second = _SecondAgent(self)

    @override
    def close(self) -> None:
        self._second.close()
        super().close()

    def begin_losing_power(self) -> None:
        """Keep what is synced from now on."""
        self.process.freeze()
        try:
            self._host.begin_losing_power()
        finally:
            self.process.thaw()

    def lose_power(self) -> None:
        """Kill it; of its files only what was synced is there, and it starts again."""
        self.kill()
        self._host.lose_power()
        self.start()

    def kill_and_truncate_journal(self) -> None:
        """Kill it, and leave the first half of its journal."""
        self.kill()
        truncate_journal(self.state_dir)

    def limit_memory(self) -> None:
        """Let it map hardly more memory than it has."""
        process = psutil.Process(self.process.pid)
        process.rlimit(psutil.RLIMIT_AS, (process.memory_info().vms + _SPARE_BYTES, _UNLIMITED))

    def end_memory_limit(self) -> None:
        """End the limit; start it again where it has ended, as its service would."""
        if self.runs:
            process = psutil.Process(self.process.pid)
            process.rlimit(psutil.RLIMIT_AS, (_UNLIMITED, _UNLIMITED))
        else:
            self.start()

    def start_second(self) -> None:
        """Start another agent with the same node name and hardware, on a host of its own."""
        self._second.environment = {**self.environment, **self._second.host.environment}
        self._second.start()

    def end_second(self) -> None:
        """Kill that agent. Raises ``PartFailed`` where it has ended by itself."""
        if not self._second.runs:
            raise PartFailed(f"the second agent has ended:\n{self._second.logged()[-2000:]}")
        self._second.kill()

    def crash_driver(self) -> None:
        """End the processes that have loaded the driver, as an error in it does."""
        for child in psutil.Process(self.process.pid).children():
            child.send_signal(signal.SIGSEGV)

    def replace_library(self) -> None:
        """Install another driver."""
        library = self.driver_root / LIBRARY
        new = library.with_suffix(".new")
        shutil.copy(library, new)
        new.replace(library)


class _SecondAgent(Daemon):
    """Another agent with the name and the hardware of ``node``, and a state directory of its own.

    Agents of one host are kept apart by the lock of their state directory.
    """

    def __init__(self, node: HostNode) -> None:
        directory = node.directory / "second"
        super().__init__((sys.executable, "-m", "vigil"), "agent", directory, node.place)
        self._node = node
        self.host = Host(directory, self.state_dir, Path(node.environment["LD_PRELOAD"]))

    @override
    def arguments(self) -> list[str]:
        name, root = self._node.name, str(self._node.driver_root)
        node = ["--node-name", name, "--driver-root", root, "--trust-driver"]
        return [*node, *super().arguments()]

    @override
    def connection(self) -> HTTPConnection:
        raise NotImplementedError("its pages are not read")


class HostDaemon(AggregatorDaemon):
    """An aggregator with a host of its own."""

    def __init__(self, directory: Path, library: Path, *options: str) -> None:
        super().__init__(directory, *options)
        self._host = Host(directory, directory, library)
        self.environment |= self._host.environment

    @property
    def clock_ahead_ms(self) -> int:
        """How far its clock of the day is ahead of the right time (ms)."""
        return self._host.ahead_ms

    @clock_ahead_ms.setter
    def clock_ahead_ms(self, ahead: int) -> None:
        self._host.ahead_ms = ahead
