"""Descriptors 0 to 2 of a daemon: open, and never waited for.

What a library writes to them itself, past the log, would stop the daemon as a log line would.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from service.log.writer import LogWriter

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2


def open_missing() -> None:
    """Open those of descriptors 0 to 2 that are closed on ``/dev/null``.

    Otherwise the next file or pipe that is opened becomes standard error, and what is printed goes
    into it. Call it before anything is opened.
    """
    for descriptor in (0, STANDARD_OUTPUT, STANDARD_ERROR):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest one that is free: this one.
            nothing = os.open(os.devnull, os.O_RDWR)
            # Python opens descriptors close-on-exec; a child process would begin with the stream
            # closed again.
            os.set_inheritable(nothing, True)
    # Python has no object for what was closed when it began. They stay open.
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(STANDARD_OUTPUT, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(STANDARD_ERROR, "w", closefd=False)  # noqa: SIM115


def never_wait(writer: LogWriter) -> None:
    """Let nothing that is written to standard output or error wait for its reader.

    What Python prints is written by ``writer``, to standard error. What a library in C writes is
    lost while there is no reader.
    """
    for descriptor in (STANDARD_OUTPUT, STANDARD_ERROR):
        _do_not_block(descriptor)
    sys.stdout = sys.stderr = io.TextIOWrapper(
        _Lines(writer), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


def _do_not_block(descriptor: int) -> None:
    """Have writes that would wait fail with ``EAGAIN``.

    Other processes may share the open file, such as the shell of a terminal: a pipe or a terminal
    is opened anew for this process alone. A write to a file never waits.
    """
    mode = os.fstat(descriptor).st_mode
    is_pipe = stat.S_ISFIFO(mode)
    if is_pipe or os.isatty(descriptor):
        # ``O_NOCTTY``: a daemon that opens a terminal must not get it as its controlling one.
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
        try:
            # Opened anew through /proc: ``O_NONBLOCK`` belongs to the open file, which the shell
            # shares.
            own = os.open(f"/proc/self/fd/{descriptor}", flags)
        except OSError:  # it belongs to another user, or has no reader any more
            pass
        else:
            os.dup2(own, descriptor)
            os.close(own)
            return
    # Could not be opened anew: then the shared flag is the lesser evil than a daemon that hangs.
    if is_pipe or stat.S_ISSOCK(mode):
        os.set_blocking(descriptor, False)


class _Lines(io.RawIOBase):
    """What is printed, on its way to the writer."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return STANDARD_ERROR

    def write(self, data: ReadableBuffer) -> int:
        text = bytes(data)
        self._writer.put(text)
        return len(text)
