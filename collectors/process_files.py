"""Reads a file of each process of the host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def process_files(name: str, proc: Path = Path("/proc")) -> Iterator[tuple[int, bytes]]:
    """Yield the id and the content of the file ``name``, such as ``comm``, of each process.

    A process that has ended, or may not be read, is left out. Blocking. Raises ``OSError`` where
    ``proc`` cannot be listed.
    """
    # No ``glob``: it fails where a process ends meanwhile.
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        try:
            content = (process / name).read_bytes()
        except OSError:
            continue
        yield int(process.name), content
