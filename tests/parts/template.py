"""Starts commands of the product without the start of Python: from a template process.

To load an agent takes a processor 1.1 s, an aggregator 0.9 s, a verb 0.3 s, and a run of the suite
starts them more than a thousand times. A template process (``template_process.py``) has loaded
everything, and a copy of it becomes the command. For the test nothing differs: it calls
``subprocess`` or asyncio as always, and has a child process of its own with pipes, signals and exit
status. Decision 054 has the reasons and what remains different.

::

    with Templates() as templates:
        subprocess.run([sys.executable, "-m", "vigil", "--version"])

``python -m vigil ...`` comes from a template, and so does ``vigil ...`` of an environment into
which the product was installed. An interpreter is started in tests with the marker ``exec``,
``alone`` or ``unit``, for a ``preexec_fn`` other than that of ``Running``, and where a variable or
a limit is set that only a new process can have. Where the template has ended, a start fails.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, AnyStr

from tests.parts.deadlines import patience
from tests.parts.processes import PartFailed, end_with_the_parent
from tests.parts.template_process import MAX_DESCRIPTORS, MAX_REQUEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

_PROGRAM = Path(__file__).with_name("template_process.py")
_PACKAGES = (
    *("advisor", "agent", "aggregator", "collectors", "contract", "dcmi_shim", "elastic", "pacing"),
    *("service", "stores", "vigil"),
)
_READ_AT_THE_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_")
"""So begin variables that an interpreter or a library reads before the product runs."""
_SPACE = " " * 100_000
"""So long are command line and environment of a command at most."""
_MEASURED = "COVERAGE_PROCESS_START"
"""Set by ``make coverage``, which measures a process from its start on."""
_PLAIN_LOCALES = ("C.UTF-8", "C.utf8")
_ANSWER_SECONDS = 60.0
_PR_SET_CHILD_SUBREAPER = 36

_execute_child = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_PARAMETERS = inspect.signature(_execute_child)
_prctl = ctypes.CDLL(None).prctl


class Templates:
    """The template processes of this process, one for each interpreter, from first use on."""

    def __init__(self) -> None:
        self.are_used = True
        """Whether commands come from a template now."""
        self._environment = dict(os.environ)
        self._limits = _limits()
        self._running: dict[tuple[str, frozenset[str]], _Template] = {}
        self._lock = threading.Lock()
        self._original = subprocess.Popen

    def __enter__(self) -> Self:
        templates = self

        class Popen(subprocess.Popen[AnyStr]):
            """Takes commands of the product from a template."""

            def _execute_child(self, *given: Any) -> None:
                call = _PARAMETERS.bind(self, *given).arguments
                words = _words(call) if templates.are_used else None
                template = None if words is None else templates._for(call["env"], words[0])
                if words is None or template is None:
                    _execute_child(self, *given)
                    return
                sys.audit("subprocess.Popen", call["args"][0], call["args"], None, None)
                template.start(self, call, words[1:])

        subprocess.Popen = Popen  # type: ignore[misc]
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.Popen = self._original  # type: ignore[misc]
        for template in self._running.values():
            template.close()

    def _for(self, environment: Mapping[str, str] | None, interpreter: str) -> _Template | None:
        """Return a template; ``None`` where only a new interpreter has what is demanded."""
        wanted = os.environ if environment is None else environment
        locale = wanted.get("LC_ALL") or wanted.get("LC_CTYPE") or wanted.get("LANG")
        at_start = _at_start(wanted)
        if (
            locale not in _PLAIN_LOCALES
            or not at_start.items() <= self._environment.items()
            or _MEASURED in wanted
            or self._limits != _limits()
        ):
            return None
        with self._lock:  # two threads may start commands at once
            key = interpreter, frozenset(at_start)
            if key not in self._running:
                # What a test sets is not what the template begins with.
                begin = {
                    name: value
                    for name, value in self._environment.items()
                    if not name.startswith(_READ_AT_THE_START)
                }
                self._running[key] = _Template(interpreter, begin | at_start)
            return self._running[key]


def _words(call: Mapping[str, Any]) -> list[str] | None:
    """Return interpreter and arguments of a command that a template has; ``None`` for another."""
    is_usual = (
        isinstance(call["args"], (list, tuple))
        and (call["executable"], call["gid"], call["gids"], call["uid"]) == (None,) * 4
        and call["preexec_fn"] in (None, end_with_the_parent)
        and call["close_fds"]
        and not call["shell"]
    )
    if not is_usual:
        return None
    words = [os.fsdecode(word) for word in call["args"]]
    if words[:3] == [sys.executable, "-m", "vigil"]:
        return words
    command = Path(words[0])
    interpreter = command.with_name("python")
    if command.is_absolute() and command.name == "vigil" and interpreter.exists():
        return [str(interpreter), *words]
    return None


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(_READ_AT_THE_START)}


def _limits() -> list[tuple[int, int]]:
    names = (name for name in dir(resource) if name.startswith("RLIMIT_"))
    return [resource.getrlimit(getattr(resource, name)) for name in names]


class _Template:
    """A template process, and the socket on which it takes requests."""

    def __init__(self, interpreter: str, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (``close`` closes it)
        self._connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.settimeout(patience(_ANSWER_SECONDS))
        with other:
            self._process = subprocess.Popen(
                [interpreter, _PROGRAM, str(other.fileno()), *_PACKAGES, _SPACE],
                env={**environment, "SPACE": _SPACE},
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )
        try:
            self._ask(b"", ())
        except PartFailed:
            self.close()
            raise

    def start(self, process: Any, call: Mapping[str, Any], words: list[str]) -> None:
        """Start a command for ``process``, a ``Popen`` whose pipes are made.

        Raises ``OSError`` where the command cannot begin, ``PartFailed`` without a template.
        """
        environment = os.environ if call["env"] is None else call["env"]
        pipes = [call[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        descriptors = [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)]
        umask = call["umask"]
        if umask < 0:
            umask = os.umask(0)
            os.umask(umask)
        request = {
            "words": words,
            "environment": {os.fsdecode(k): os.fsdecode(v) for k, v in environment.items()},
            "directory": os.fspath(call["cwd"] or Path.cwd()),
            "umask": umask,
            "descriptors": [0, 1, 2, *call["pass_fds"]],
            "new_session": call["start_new_session"],
            "group": call["process_group"],
            "ignored": _ignored(),
            "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, []),
            "ends_with_parent": call["preexec_fn"] is not None,
        }
        message = pickle.dumps(request)
        assert len(message) <= MAX_REQUEST_BYTES
        assert len(request["descriptors"]) <= MAX_DESCRIPTORS
        with self._lock:
            # What loses its parent meanwhile becomes a child of this process: the command.
            _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                pid, error = self._ask(message, [*descriptors, *call["pass_fds"]])
            finally:
                _prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if error is not None:
            if pid:
                os.waitpid(pid, 0)
            raise error
        process.pid = pid
        process._child_created = True
        process._close_pipe_fds(
            *(call[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite")),
            *(call[name] for name in ("errread", "errwrite")),
        )

    def _ask(self, message: bytes, descriptors: Sequence[int]) -> tuple[int, OSError | None]:
        """Send a request; return the process id of the command, or of the template for none."""
        try:
            if message:
                socket.send_fds(self._connection, [message], descriptors)
            answer = self._connection.recv(MAX_REQUEST_BYTES)
        except OSError as error:
            raise PartFailed(f"the template process: {error}{self._end()}") from error
        if not answer:
            raise PartFailed(f"the template process has ended{self._end()}")
        pid, failed = pickle.loads(answer)
        return pid, failed

    def _end(self) -> str:
        self._log.seek(0)
        return f" (exit status {self._process.poll()}):\n{self._log.read().decode()}"

    def close(self) -> None:
        """End the template process; commands that run go on."""
        self._connection.close()
        self._process.wait()
        self._log.close()


def _ignored() -> set[int]:
    numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    return {number for number in numbers if signal.getsignal(number) is signal.SIG_IGN}
