"""The hosts of real programs: they lose power, their clocks are set, and their disks get full.

Needs no root: a preloaded library keeps what was synced and sets the clock (``host_preload.c``).
A full disk is a limit of the size of files in one process (RLIMIT_FSIZE), so a write fails with
EFBIG and not with ENOSPC.
"""

from __future__ import annotations

import resource
import shutil
import signal
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from dcmi_shim.emulator.install import LIBRARY
from tests.aggregator.daemon import Daemon
from tests.end_to_end.node import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.parts.places import Place

_SOURCE = Path(__file__).with_name("host_preload.c")
_INDEX_SUFFIX = "-shm"
"""The index of a log in shared memory is never on a disk."""
_NOT_SYNCED = ".pending.", ".draft."
"""How names begin of what is not synced whole."""
_UNLIMITED = resource.RLIM_INFINITY


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
        self._clock = directory / "ahead-ms"
        self.ahead_ms = 0
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "HOST_STATE": str(state_dir),
            "HOST_SYNCED": str(self._synced),
            "HOST_AHEAD_MS": str(self._clock),
        }

    @property
    def ahead_ms(self) -> int:
        """How far the clock of the day is ahead of the right time (ms), negative for behind."""
        (ahead,) = struct.unpack("=q", self._clock.read_bytes())
        return int(ahead)

    @ahead_ms.setter
    def ahead_ms(self, ahead: int) -> None:
        # In place: the library has it mapped.
        with self._clock.open("r+b" if self._clock.exists() else "xb") as file:
            file.write(struct.pack("=q", ahead))

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
    """The disk of a program with this process id: while it is full, every write to a file fails."""

    def __init__(self, pid: Callable[[], int]) -> None:
        self._pid = pid

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
        self.disk = Disk(lambda: self.process.pid)
        self.driver_root = directory / "driver"
        shutil.copytree(built / "driver", self.driver_root, symlinks=True)

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


class HostDaemon(Daemon):
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
