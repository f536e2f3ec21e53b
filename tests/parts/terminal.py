"""A program on a terminal of its own, with input typed at its prompt."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SECONDS = 60.0
CTRL_C, CTRL_D = b"\x03", b"\x04"


class Ended(NamedTuple):
    """How a program ended, and what its terminal shows."""

    status: int
    shown: str


def typed(
    arguments: Sequence[str], prompt: str, keys: bytes, environment: Mapping[str, str]
) -> Ended:
    """Run a program on a terminal; type ``keys`` once it shows ``prompt``.

    Raises ``AssertionError`` where the prompt does not come or the program does not end.
    """
    own, other = pty.openpty()

    def take() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        arguments,
        stdin=other,
        stdout=other,
        stderr=other,
        env=environment,
        start_new_session=True,
        preexec_fn=take,
    )
    os.close(other)
    os.set_blocking(own, False)
    shown = b""
    give_up = time.monotonic() + patience(_SECONDS)
    try:
        while (read := _read(own)) is not None:
            shown += read
            if keys and prompt.encode() in shown:
                os.write(own, keys)
                keys = b""
            assert time.monotonic() < give_up, shown
        assert not keys, shown
        return Ended(process.wait(_SECONDS), shown.decode().replace("\r\n", "\n"))
    finally:
        process.kill()
        process.wait()
        os.close(own)


def _read(terminal: int) -> bytes | None:
    """Return what came; ``None`` once no process has the terminal open any more."""
    try:
        return os.read(terminal, 4096)
    except BlockingIOError:
        select.select([terminal], [], [], 0.01)
        return b""
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None
