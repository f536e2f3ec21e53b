"""Which processes there are, by the program that they run."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def processes_of(program: Path) -> list[int]:
    """The ids of processes that were started as ``program``; dead ones have no command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if entry.read_bytes().split(b"\0")[0] == os.fsencode(program):
                found.append(int(entry.parent.name))
    return found
