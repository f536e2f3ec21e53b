"""Writes and reads a few bytes in configured directories, each in a process that may hang.

No flag shows that a file system fails all I/O, and the kernel logs it once, perhaps long ago. A
process that hangs in the kernel cannot be killed; a thread of the agent that hangs would keep it
from ending. Directories are probed one after another, and one whose process hangs is not probed
again until that ended: it fails.
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from collectors.file_systems.mounts import device_at
from collectors.file_systems.tracker import ProbeOutcome
from dcmi_shim.parent_death import ending_with_parent
from pacing.abandonable_thread import AbandonableThread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MOUNTS = Path("/proc/self/mountinfo")
_AFTER_KILL_SECONDS = 0.5
_START_SECONDS = 30.0
"""For the start of the process. A machine that is busy is not a fault of the file system."""

_FAULTS = frozenset(
    (
        *(errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.ESHUTDOWN),
        *(errno.EUCLEAN, errno.EBADMSG, errno.ENODATA, errno.EREMOTEIO, errno.ETIMEDOUT),
    )
)
"""Errors of the file system. Others, such as no space or no right, are troubles of the probe."""

_PROGRAM = """
import os, sys
print("begins", flush=True)
name, content = ".npu-vigil-probe", os.urandom(64)
try:
    folder = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    try:
        os.write(file, content)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        if os.pread(file, 99, 0) != content:
            raise OSError(5, "other bytes were read than written")
    finally:
        os.unlink(name, dir_fd=folder)
except OSError as error:
    print(error.errno, error.strerror)
"""
"""Run with the directory as its argument. It prints a line before its first look at the directory,
then the error, or nothing. The bytes are read from the device: they are no longer cached."""


def absolute_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``paths``, normal ones. Raises ``ValueError`` for a relative one."""
    for path in paths:
        if not path.startswith("/"):
            raise ValueError(f"{path!r} is not an absolute path")
    return tuple(map(os.path.normpath, paths))


def _read_mounts() -> str:
    return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")


class ProbeRound(NamedTuple):
    """The results of one round.

    ``devices`` are the numbers of the file systems of all directories, ``unusable`` the reasons why
    a directory could not be probed.
    """

    devices: dict[str, int | None]
    results: tuple[ProbeOutcome, ...]
    unusable: dict[str, str]


class Probes:
    """The probes of ``directories``, each within ``deadline_seconds``."""

    def __init__(self, directories: Sequence[str], deadline_seconds: float) -> None:
        self._directories = directories
        self._deadline_seconds = deadline_seconds
        self._hanging: dict[str, subprocess.Popen[bytes]] = {}
        self._work: AbandonableThread[str] | None = None

    async def run(self, progress: Callable[[], None]) -> ProbeRound:
        """Probe all directories, one after another; calls ``progress`` in between."""
        if not self._directories:
            return ProbeRound({}, (), {})
        results: list[ProbeOutcome] = []
        unusable: dict[str, str] = {}
        mounts = _read_mounts()
        devices = {directory: device_at(mounts, directory) for directory in self._directories}
        for directory, device in devices.items():
            printed = await self._probe(directory)
            progress()
            number, _, text = printed.partition(" ")
            if number and (not number.isdecimal() or int(number) not in _FAULTS):
                unusable[directory] = f"no probe: {text or printed}"
            elif device is not None:
                trouble = f"a write and a read in {directory} fail: {text}" if number else ""
                results.append(ProbeOutcome(device, trouble))
        return ProbeRound(devices, tuple(results), unusable)

    async def _probe(self, directory: str) -> str:
        """Return the number and text of the error, empty where there is none."""
        hanging = self._hanging.get(directory)
        if hanging is not None and hanging.poll() is None:
            return f"{errno.EIO} the process {hanging.pid} still hangs in the kernel"
        self._hanging.pop(directory, None)
        # At most one thread of the agent waits for a start that hangs.
        if self._work is not None and self._work.is_stuck:
            return "? the start of an earlier probe has not returned"
        self._work = AbandonableThread(lambda: self._blocking(directory), "probe")
        try:
            limit = self._deadline_seconds + _AFTER_KILL_SECONDS + _START_SECONDS
            return await self._work.result(limit)
        except (OSError, TimeoutError) as error:
            return f"? the process does not start: {error}"

    def _blocking(self, directory: str) -> str:
        """Run the process, in the thread."""
        process = subprocess.Popen(
            ending_with_parent([sys.executable, "-I", "-S", "-c", _PROGRAM, directory]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            # A process that hangs must not hold another file system that somebody wants to unmount.
            cwd="/",
        )
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
        if not readable or not os.read(process.stdout.fileno(), len("begins\n")):
            process.kill()
            process.communicate()
            return "? the process does not begin"
        try:
            printed, _ = process.communicate(timeout=self._deadline_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            # Not read: a process that hangs in the kernel keeps its end of the pipe open.
            process.stdout.close()
            try:
                process.wait(_AFTER_KILL_SECONDS)
            except subprocess.TimeoutExpired:
                self._hanging[directory] = process
            return f"{errno.EIO} no answer within {self._deadline_seconds:g} s"
        if process.returncode:
            return f"? the process ended with {process.returncode}"
        return printed.decode().strip()
