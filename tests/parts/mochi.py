"""A real mochi-mqtt, another broker than mosquitto, with limits of its own (``tests/mochi``).

    with Mochi(directory, "-qos=0") as broker:
        store = open_store(broker.url)

What is retained is gone when it ends.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from tests.parts.processes import Running, built_program, free_ports

if TYPE_CHECKING:
    from typing import Self

_MODULE = Path(__file__).parent.parent / "mochi"
_START_SECONDS = 10.0


class Mochi:
    """Runs in a ``with`` block, or between ``start`` and ``stop``."""

    def __init__(self, directory: Path, *flags: str) -> None:
        (self._port,) = free_ports(1)
        self._log = directory / "mochi.log"
        self._flags = flags
        self._running: Running | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Return the URL at which every client has all rights."""
        return f"mqtt://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it; comes back when it takes connections."""
        self._running = Running([_built(), f"-port={self._port}", *self._flags], self._log)
        self._running.wait_until(self._answers, _START_SECONDS)

    def restart(self, *flags: str) -> None:
        """End it, and start it at the same port with these flags."""
        self.stop()
        self._flags = flags
        self.start()

    def stop(self) -> None:
        """End it."""
        if self._running is not None:
            self._running.stop()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 1.0).close()
        except OSError:
            return False
        return True


def _built() -> Path:
    """Return the path of the program that ``tests/setup.sh`` has built."""
    sources = [_MODULE / name for name in ("go.mod", "go.sum", "main.go")]
    return built_program("mochi", sources)
