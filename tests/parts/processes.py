"""Real programs for tests: started on free ports, logged to a file, stopped by their process id.

They end with the process that started them, even where that is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.parts.deadlines import TooLate, patience, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_STEP_SECONDS = 0.02
_LOG_TAIL_BYTES = 3000
_MAX_TEMPORARY_BYTES = 20
# Below those that the kernel gives to outgoing connections. Each process of the suite begins
# somewhere else, and none gives out a port twice before it has been round. Processes that start
# together have ids beside each other: so far apart none comes to what another one has given out
# to a program that is to start, or is restarted.
_PORTS = range(10_000, 32_000)
_START = os.getpid() * 1_999 % len(_PORTS)
_ports = itertools.cycle([*_PORTS[_START:], *_PORTS[:_START]])


_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


class PartFailed(Exception):
    """A real program could not be found or did not come up."""


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that are free now, and stay so while the test runs.

    Not the kernel's choice: it would give the port to the next connection of any other test.
    """
    found: list[int] = []
    for port in _ports:
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("ports never end")


def program(name: str, first: Path | None = None, otherwise: Path | None = None) -> Path:
    """Find the program ``name`` in the folder ``first``, else on ``PATH``, else in ``otherwise``.

    Debian has some in ``/usr/sbin``, which is not on everybody's ``PATH``.
    """
    if first is not None and (first / name).is_file():
        return first / name
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if found is not None:
        return Path(found)
    if otherwise is not None and (otherwise / name).is_file():
        return otherwise / name
    raise PartFailed(f"{name} is not on this machine; tests/setup.sh provides it")


def cache_folders() -> tuple[Path, Path]:
    """Return where ``tests/setup.sh`` keeps what it builds: usually, and with a read-only home."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return usual / "npu-vigil", Path(f"/var/tmp/npu-vigil-{os.getuid()}")


def built_program(name: str, sources: Sequence[Path], first: Path | None = None) -> Path:
    """Find the program ``name`` that ``tests/setup.sh`` has built from ``sources``.

    One in the folder ``first`` or on ``PATH`` goes before it. Raises ``PartFailed``.
    """
    return program(name, first, built_folder(name, sources))


def built_folder(name: str, sources: Sequence[Path]) -> Path:
    """Return the folder that ``tests/setup.sh`` has made for ``name`` from ``sources``."""
    key = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    usual, other = (folder / f"{name}-{key}" for folder in cache_folders())
    return usual if usual.is_dir() else other


def temporary_folder() -> Path:
    """Return a folder for temporary files where programs may run and sockets have short paths.

    ``TMPDIR`` where it is one. Sockets lie up to 80 bytes below it, and a socket's path ends after
    107. Raises ``PartFailed``.
    """
    given = Path(os.environ.get("TMPDIR") or "/tmp")
    for folder in (given, Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")):
        if (
            len(os.fsencode(folder.absolute())) <= _MAX_TEMPORARY_BYTES
            and os.access(folder, os.W_OK | os.X_OK)
            and not os.statvfs(folder).f_flag & os.ST_NOEXEC
        ):
            return folder.absolute()
    raise PartFailed(
        f"neither {given}, /tmp, /var/tmp nor /dev/shm has a short path, may be written and may "
        "have programs; set TMPDIR to a folder that has"
    )


def leftovers(folder: Path, seconds: float) -> list[str]:
    """Return a line for each process that works below ``folder``, and for each mount there.

    What is about to end has ``seconds`` to do so. A process works there that has the folder in its
    command line, or as its working directory.
    """
    left: list[str] = []
    # A program that started the tests may name the folder, too.
    others = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}

    def is_clean() -> bool:
        nonlocal left
        left = [f"mount {mount}" for mount in _mounts() if mount.is_relative_to(folder)]
        for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
            words = (*(process.info["cmdline"] or ()), process.info["cwd"] or "")
            if process.info["pid"] not in others and any(str(folder) in word for word in words):
                left.append(f"process {process.info['pid']}: {' '.join(words[:-1])}")
        return not left

    with contextlib.suppress(TooLate):
        wait_until(is_clean, "nothing is left", seconds)
    return left


def _mounts() -> list[Path]:
    lines = Path("/proc/self/mounts").read_bytes().splitlines()
    return [Path(os.fsdecode(line.split(b" ")[1])) for line in lines]


def end_with_the_parent() -> None:
    """Have this process killed when the thread ends that started it; a ``preexec_fn``."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Running:
    """A program that runs until it is stopped, or this process ends."""

    def __init__(
        self,
        arguments: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
        output: int | None = None,
        before_exec: Callable[[], None] | None = None,
        directory: Path | None = None,
    ) -> None:
        """Start a program; its output goes to the descriptor ``output``, or else to ``log``.

        ``before_exec`` is called in the new process; it does not end with this one then. It works
        in ``directory``, or else in that of this process.
        """
        self.log = log
        # The kernel counts the end of the thread that starts it, and only the first one's is that
        # of the process.
        is_first = threading.current_thread() is threading.main_thread()
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [str(argument) for argument in arguments],
                stdin=subprocess.DEVNULL,
                stdout=file if output is None else output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=directory,
                preexec_fn=before_exec or (end_with_the_parent if is_first else None),
            )
        self._name = str(arguments[0])

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Return the exit status, negative for a signal; ``None`` while the process runs."""
        return self._process.poll()

    def wait_until(self, is_up: Callable[[], bool], seconds: float) -> None:
        """Wait until ``is_up``; raise ``PartFailed`` with the end of its log if it does not."""

        def is_decided() -> bool:
            return is_up() or self.status is not None

        try:
            wait_until(is_decided, lambda: f"{self._name} is up:\n{self._log_tail()}", seconds)
        except TooLate as error:
            raise PartFailed(str(error)) from None
        if self.status is not None and not is_up():
            raise PartFailed(f"{self._name} ended with {self.status}:\n{self._log_tail()}")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Stop all its threads where they are; comes back when they stand still."""
        self.signal(signal.SIGSTOP)
        self.wait_until(self._stands_still, 10.0)

    def thaw(self) -> None:
        """Let it go on."""
        self.signal(signal.SIGCONT)

    def _stands_still(self) -> bool:
        threads = Path(f"/proc/{self.pid}/task").glob("*/stat")
        # The state is the first field after the name, which stands in brackets.
        return all(one.read_text().rpartition(") ")[2].startswith("T") for one in threads)

    def wait(self, seconds: float) -> int:
        """Wait for its end; its exit status."""
        return self._process.wait(seconds)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def stop(self, patience_seconds: float = 10.0) -> int:
        """Ask it to end, and end it if it does not in time; its exit status."""
        if self.status is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                return self._process.wait(patience(patience_seconds))
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()

    def _log_tail(self) -> str:
        return self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
