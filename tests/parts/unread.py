"""A standard error without a reader: a pipe which is full from the beginning."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading

from tests.parts.deadlines import patience

_SMALL = 4096
_FILLING = b"\n"


class UnreadPipe:
    """A full pipe. ``writer`` is for the program; nothing is read before ``read_on``."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, _SMALL)
        os.set_blocking(self.writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.writer, _FILLING)
        os.set_blocking(self.writer, True)
        self._read = bytearray()
        self._thread: threading.Thread | None = None

    def read_on(self) -> None:
        """Read everything from now on until the last program that has ``writer`` ends."""
        self.close_writer()
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        while data := os.read(self._reader, 1 << 16):
            self._read += data

    def close_writer(self) -> None:
        """Close our writing end, so that the pipe ends with the program, which has its own."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def lines(self) -> list[str]:
        """Return the lines that were read so far, without the filling."""
        return [line for line in self._read.decode().splitlines() if line]

    def all_lines(self) -> list[str]:
        """Return all lines that were written; all programs that have ``writer`` must have ended."""
        assert self._thread is not None
        self._thread.join(patience(10))
        return self.lines()

    def close(self) -> None:
        """Give everything back; the programs have ended."""
        self.close_writer()
        if self._thread is not None:
            self._thread.join(patience(10))
        os.close(self._reader)
