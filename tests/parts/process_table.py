"""Which processes there are, by the program that they run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from collectors.process_files import process_files

if TYPE_CHECKING:
    from pathlib import Path


def processes_of(program: Path) -> list[int]:
    """Return the ids of processes that were started as ``program``.

    Dead processes have no command line and are left out.
    """
    return [
        pid
        for pid, command_line in process_files("cmdline")
        if command_line.split(b"\0")[0] == os.fsencode(program)
    ]
