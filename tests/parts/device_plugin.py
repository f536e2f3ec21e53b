"""A program that looks like a Device Plugin in the list of processes, and does nothing."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def device_plugin(*arguments: str) -> Iterator[int]:
    """Run it with these arguments; its process id."""
    command = ["/usr/local/bin/device-plugin", "-c", "read x", *arguments]
    with subprocess.Popen(command, executable="/bin/sh", stdin=subprocess.PIPE) as process:
        try:
            yield process.pid
        finally:
            process.kill()
