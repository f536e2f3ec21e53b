"""The device with the kernel's log: what may be in its place, and why it cannot be read.

A container runtime may put another device at ``/dev/kmsg``: kind and k3s link it to the console.
Reading that waits for ever, and would look like a kernel without faults.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from contract.file_kinds import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_DEVICE = "/dev/kmsg"
_KERNEL_LOG = (1, 11)
"""Major and minor number of the kernel's log (``Documentation/admin-guide/devices.txt``)."""


class OpenLog(NamedTuple):
    """The open log: its descriptor, and whether it is a pipe in place of the kernel's device."""

    descriptor: int
    is_pipe: bool


@contextlib.contextmanager
def opened(device: str) -> Iterator[OpenLog]:
    """Open the log for reading without waiting. Raises ``OSError`` for what is not the log.

    A pipe is allowed only where the setting names it: at the default place it hides the log.
    """
    is_pipe = _is_pipe(device, Path(device).stat())
    # A pipe that is open for both has no end when a writer goes.
    access = os.O_RDWR if is_pipe else os.O_RDONLY
    log = os.open(device, access | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if _is_pipe(device, os.fstat(log)) != is_pipe:
            raise OSError(errno.EAGAIN, "it was replaced while it was opened")
        yield OpenLog(log, is_pipe)
    finally:
        os.close(log)


def _is_pipe(device: str, status: os.stat_result) -> bool:
    """Return whether ``device`` is a pipe. Raises ``OSError`` for neither a pipe nor the log."""
    number = (os.major(status.st_rdev), os.minor(status.st_rdev))
    if stat.S_ISCHR(status.st_mode) and number == _KERNEL_LOG:
        return False
    if stat.S_ISFIFO(status.st_mode) and device != DEFAULT_DEVICE:
        return True
    raise OSError(
        errno.EINVAL,
        f"it is {kind_of(status)}, not the kernel's log (character device 1:11); give the "
        "container that device, or set kernel_log.device to a pipe with its records",
    )


def explained(device: str, error: OSError) -> str:
    """Return why the log cannot be read, and what to do."""
    reason = f"{device} cannot be read: {error.strerror or error}"
    if error.errno in (errno.EPERM, errno.EACCES):
        return f"{reason}; the agent needs CAP_SYSLOG and, in a container, access to that device"
    if error.errno in (errno.ENOENT, errno.ENXIO):
        return f"{reason}; in a container the host's /dev has to be mounted"
    return reason
