"""A kernel's log for tests: a pipe with records, and a library that makes it fail as a real one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SOURCE = Path(__file__).with_name("kmsg_preload.c")
REFUSED = {"KMSG_REFUSED": "1"}

LOCKUP = "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:1234]"
HUNG = "INFO: task kworker/u8:3:77 blocked for more than 120 seconds."
KILLED = (
    "Out of memory: Killed process 4242 (train.py) total-vm:9000kB, anon-rss:800kB, file-rss:0kB, "
    "shmem-rss:0kB, UID:0 pgtables:72kB oom_score_adj:0"
)
DRIVER = "[ascend] [ERROR] [devmm] [devmm_svm_device_fault 438] <kworker/u16:1:98,98> fault failed."
HARMLESS = "EXT4-fs (vda): mounted filesystem r/w without journal. Quota mode: none."


def line(sequence: int, text: str, level: int = 3, at_us: int = 0, flags: str = "-") -> str:
    """Return one record in the kernel's format."""
    return f"{level},{sequence},{at_us},{flags};{text}\n"


class KernelLogPipe:
    """A log that a test writes; kept open for both sides, so it never ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def write(self, *lines: str) -> None:
        """Write whole records, or nonsense, or ``!overrun`` for the library."""
        os.write(self._end, "".join(lines).encode())

    def close(self) -> None:
        """Give it up."""
        os.close(self._end)


def built_library(directory: Path) -> Path:
    """Compile the library into ``directory``; return its path."""
    library = directory / "kmsg_preload.so"
    flags = ("-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
    subprocess.run(["cc", *flags, "-o", library, _SOURCE, "-ldl"], check=True)
    return library


def preloaded(library: Path, log: Path) -> Mapping[str, str]:
    """Return the environment in which ``log`` fails like a real log, of a kernel without settings.

    With ``REFUSED`` it cannot be opened.
    """
    return {"LD_PRELOAD": str(library), "KMSG": str(log)}
