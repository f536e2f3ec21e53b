"""Runs the vendor's command line tools: one at a time, with a deadline, never in a shell.

A tool gets ``PATH``, ``LD_LIBRARY_PATH`` and nothing else of the environment, and the plain locale.
It leads a process group of its own, which is killed when it misses its deadline and when it ends;
no task ever waits for one that cannot be killed. ``Popen`` starts it by vfork, which does not copy
the daemon's page tables. It ends with the daemon (``parent_death``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import stat
import subprocess
from typing import TYPE_CHECKING

from contract.errors import ToolFailed, ToolInvalidOutput, ToolMissing, ToolSilent
from dcmi_shim.library.discovery import ownership_problems
from dcmi_shim.parent_death import ending_with_parent, not_executed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MAX_OUTPUT_BYTES = 1 << 20
"""Bytes on one stream: more than this are no answer of any tool; upstream keeps as many."""

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_READ_SIZE = 1 << 16
_MAX_UNKILLABLE = 4
_FIRST_CHECK_SECONDS = 0.001
_LAST_CHECK_SECONDS = 0.1
_LAST_REAP_SECONDS = 1.0

# Killed processes that are not gone yet; one that hangs inside the kernel may outlive its loop.
_unreaped: set[subprocess.Popen[bytes]] = set()


def tool_environment(
    environment: Mapping[str, str], libraries: Sequence[Path] = ()
) -> dict[str, str]:
    """Return the environment for a tool; ``libraries`` are searched after its own path."""
    search = [environment.get("LD_LIBRARY_PATH", ""), *map(str, libraries)]
    # Messages in one language, whatever the locale of the host is: they are parsed.
    minimal = {"PATH": environment.get("PATH", _DEFAULT_PATH), "LANG": "C"}
    if any(search):
        minimal["LD_LIBRARY_PATH"] = ":".join(filter(None, search))
    return minimal


def check_tool(path: Path, *, trust_driver: bool) -> None:
    """Raise ``ToolMissing`` unless ``path`` is a program that may be run.

    Its file and directories must have the owners that the driver's library must have, unless the
    operator trusts them.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ToolMissing(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise ToolMissing(f"{path} is not a regular file")
    if not os.access(path, os.X_OK):
        raise ToolMissing(f"{path} is not executable (mode {stat.S_IMODE(mode):04o})")
    problems = [] if trust_driver else ownership_problems(path)
    if problems:
        raise ToolMissing(f"{path} is not run: {problems[0]}; see --trust-driver")


class Tool:
    """One command line tool of the host. All methods belong to the event loop's thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._turn = asyncio.Lock()
        self._killed: subprocess.Popen[bytes] | None = None
        self._unkillable: list[subprocess.Popen[bytes]] = []

    async def run(
        self,
        path: Path,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        deadline_seconds: float,
    ) -> str:
        """Run the tool after earlier calls; the deadline counts from its start.

        Returns its standard output; bytes that are no UTF-8 are replaced. Raises ``ToolMissing``
        when it cannot be started, ``ToolFailed`` when it ends with another status than 0,
        ``ToolSilent`` after the deadline or when too many earlier runs cannot be killed,
        ``ToolInvalidOutput`` when it prints more than ``MAX_OUTPUT_BYTES``.
        """
        command = shlex.join([self.name, *arguments])
        async with self._turn:
            # Two runs at once fail, and the one before may not have ended by its signal yet.
            await self._wait_for_killed()
            if len(self._unkillable) >= _MAX_UNKILLABLE:
                pids = ", ".join(str(process.pid) for process in self._unkillable)
                raise ToolSilent(
                    f"{command}: not run, because {len(self._unkillable)} earlier runs "
                    f"(process {pids}) hang in the kernel and cannot be killed; "
                    "the node may need a restart"
                )
            run = _ToolRun(command, [str(path), *arguments], environment)
            try:
                return await run.result(deadline_seconds)
            finally:
                if not run.end():
                    self._killed = run.process

    async def _wait_for_killed(self) -> None:
        """Wait up to 0.2 s for the end of a run that was killed: tools fail when two run at
        once.
        """
        pause = _FIRST_CHECK_SECONDS
        while self._killed is not None and self._killed.poll() is None:
            if pause > _LAST_CHECK_SECONDS:
                self._unkillable.append(self._killed)
                break
            await asyncio.sleep(pause)
            pause *= 2
        self._killed = None
        self._unkillable = [process for process in self._unkillable if process.poll() is None]


class _ToolRun:
    """One process of a tool, until it ended or its result was given up."""

    def __init__(self, command: str, argv: list[str], environment: Mapping[str, str]) -> None:
        self._command = command
        self._path = argv[0]
        self._loop = asyncio.get_running_loop()
        try:
            self.process = subprocess.Popen(
                ending_with_parent(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                # The directory of the agent may be on a file system that is to be unmounted.
                cwd="/",
                # A group of its own, so that what the tool starts is killed with it.
                process_group=0,
            )
        except (OSError, ValueError) as error:
            raise ToolMissing(f"{argv[0]} cannot be run: {error}") from error
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._stdout, self._stderr = bytearray(), bytearray()
        self._open = {
            self.process.stdout.fileno(): self._stdout,
            self.process.stderr.fileno(): self._stderr,
        }
        for stream in self._open:
            # The end of a tool is also looked for without output, and then nothing may block.
            os.set_blocking(stream, False)
            self._loop.add_reader(stream, self._read, stream)
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._check_seconds = _LAST_CHECK_SECONDS
        self._timer = self._loop.call_later(_LAST_CHECK_SECONDS, self._check_end)

    async def result(self, deadline_seconds: float) -> str:
        """Return what it printed; see ``Tool.run``."""
        expiry = self._loop.call_later(deadline_seconds, self._expire, deadline_seconds)
        try:
            await self._done
        finally:
            expiry.cancel()
        stdout = self._stdout.decode(errors="replace")
        stderr = self._stderr.decode(errors="replace")
        status = self.process.returncode
        assert status is not None
        if status != 0:
            reason = not_executed(stderr)
            if reason is not None:
                raise ToolMissing(f"{self._path} cannot be run: {reason}")
            raise ToolFailed(self._command, status, stdout, stderr)
        return stdout

    def _expire(self, deadline_seconds: float) -> None:
        """Fail at the deadline, unless the answer arrived while this program was slow."""
        # Its end may be known to the kernel although this loop was too slow to look.
        self._check_end()
        if not self._done.done():
            self._done.set_exception(
                ToolSilent(f"{self._command}: no answer within {deadline_seconds:g} s; killed")
            )

    def _read(self, stream: int) -> bool:
        """Read available output; return whether there may be more."""
        into = self._open[stream]
        try:
            data = os.read(stream, _READ_SIZE)
        except BlockingIOError:
            return False
        into += data
        if len(into) > MAX_OUTPUT_BYTES:
            # Kept for the error, which quotes the beginning.
            del into[MAX_OUTPUT_BYTES:]
            self._fail(
                ToolInvalidOutput(
                    f"{self._command}: more than {MAX_OUTPUT_BYTES} bytes",
                    into.decode(errors="replace"),
                )
            )
            return False
        if not data:
            self._loop.remove_reader(stream)
            del self._open[stream]
            if not self._open and self.process.returncode is None:
                # Its streams close shortly before its exit status can be read.
                self._timer.cancel()
                self._check_seconds = _FIRST_CHECK_SECONDS
                self._check_end()
        return bool(data)

    def _fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    def _check_end(self) -> None:
        """Finish if the process ended; processes that it left behind may keep its streams open."""
        self._timer.cancel()
        if self._done.done():
            return
        if self._has_ended():
            # Before it is reaped: afterwards the id of its group may be another's.
            self._kill_group()
            self.process.poll()
            for stream in list(self._open):
                while self._read(stream):
                    pass
            if not self._done.done():
                self._done.set_result(None)
            return
        self._timer = self._loop.call_later(self._check_seconds, self._check_end)
        self._check_seconds = min(2 * self._check_seconds, _LAST_CHECK_SECONDS)

    def _has_ended(self) -> bool:
        """Return whether it ended, without reaping it: until then its group's id is not reused."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self.process.pid, flags) is not None
        except ChildProcessError:  # it was reaped elsewhere
            return True

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> bool:
        """Release everything and kill what still runs.

        Returns whether the process is really gone.
        """
        self._timer.cancel()
        if self.process.returncode is None:
            self._kill_group()
        for stream in self._open:
            self._loop.remove_reader(stream)
        self._open.clear()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        self._reap(_FIRST_CHECK_SECONDS)
        return self.process.returncode is not None

    def _reap(self, delay_seconds: float) -> None:
        _unreaped.add(self.process)
        _unreaped.difference_update([dead for dead in _unreaped if dead.poll() is not None])
        if self.process.returncode is None and not self._loop.is_closed():
            later = min(2 * delay_seconds, _LAST_REAP_SECONDS)
            self._loop.call_later(delay_seconds, self._reap, later)
