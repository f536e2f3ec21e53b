"""Which processes there are, by the program that they run."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def processes_of(program: Path) -> list[int]:
    """Return the ids of processes that were started as ``program``.

    Dead processes have no command line and are left out.
    """
    pids = []
    # No ``glob``: it fails where a process ends meanwhile.
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            is_process = process.name.isdigit()
            command = (process / "cmdline").read_bytes() if is_process else b""
            if command.split(b"\0")[0] == os.fsencode(program):
                pids.append(int(process.name))
    return pids
