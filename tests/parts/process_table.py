"""Which processes there are, by the program that they run."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def processes_of(program: Path) -> list[int]:
    """Return the ids of processes that were started as ``program``.

    Dead processes have no command line and are left out.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if entry.read_bytes().split(b"\0")[0] == os.fsencode(program):
                found.append(int(entry.parent.name))
    return found
