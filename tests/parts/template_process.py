"""The template process: has imported the product, and becomes a command of it for each request.

``tests/parts/template.py`` starts it, under the interpreter of the command, as a program: it uses
nothing of this repository but what the command imports. It has one thread, no event loop and no
gRPC object, so that a copy of it can become anything. For each request it forks twice. The process
between the two ends at once, so that the kernel gives the second one to the process that asked, as
its own child. That one becomes the command: whatever ``exec`` and the start of Python would set is
set anew, then the module or script runs as ``__main__``.

What only a new interpreter can have is not here but in ``template.py``, which then starts one:
another encoding of file names, ``PYTHON...`` and ``LD_...`` variables. All commands of a template
have the same seed of ``hash``.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import fcntl
import gc
import importlib
import io
import locale
import logging
import os
import pickle
import pkgutil
import runpy
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_REQUEST_BYTES = 1 << 17
MAX_DESCRIPTORS = 64

_STANDARD = 3
_FAILED = 255
_PR_SET_PDEATHSIG = 1
_STRAYS = {"__main__", "child"}
"""Modules that are programs: the driver's child is one."""


def main() -> None:
    """Import the product, then answer requests; the commands leave it by ``_become``.

    Arguments: the descriptor of the socket, the packages of the product, and a text that is as long
    as the command lines may become. There is such a text in the environment, too.
    """
    connection = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the tests, and not before them
    sys.path.pop(0)  # the folder of this file
    is_unbuffered = isinstance(sys.stdout.buffer, io.FileIO)
    before = dict(os.environ)
    for package in sys.argv[2:-1]:
        _import_all(package)
    _fill_caches()
    set_by_imports = {name: value for name, value in os.environ.items() if name not in before}
    # What is alive now stays so. The collector would write into each page, and so copy it.
    gc.collect()
    gc.freeze()
    connection.send(pickle.dumps((os.getpid(), None)))
    request = _serve(connection)
    for name, value in set_by_imports.items():
        os.environ.setdefault(name, value)
    _become(request, is_unbuffered)


def _import_all(package: str) -> None:
    folders = importlib.import_module(package).__path__
    for module in pkgutil.walk_packages(folders, f"{package}."):
        if module.name.rpartition(".")[2] not in _STRAYS:
            importlib.import_module(module.name)


def _fill_caches() -> None:
    """Compute what each daemon computes first and keeps, and what no input changes."""
    # By name, as above: the import of a file of tests counts as a need of all tests below it.
    importlib.import_module("contract.codes.catalogue").shipped()
    importlib.import_module("agent.config").check_agent({}, "")
    importlib.import_module("aggregator.config").check_aggregator({}, "")


def _serve(connection: socket.socket) -> dict[str, Any]:
    """Answer requests until the tests end; return one in the process that is to become it."""
    while True:
        message, received, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, MAX_DESCRIPTORS)
        if not message:
            os._exit(0)
        request: dict[str, Any] = pickle.loads(message)
        may_begin, begin = os.pipe()
        between = os.fork()
        if between == 0:
            if os.fork():  # where it fails, the traceback goes to the log, and the status is not 0
                os._exit(0)
            os.close(begin)
            # Only now it is a child of the process that asked.
            if os.read(may_begin, 1):
                _prepare(connection, request, received, may_begin)
                return request
            os._exit(_FAILED)
        for descriptor in (*received, may_begin):
            os.close(descriptor)
        _, status = os.waitpid(between, 0)
        if status == 0:
            os.write(begin, b"!")
        else:
            connection.send(pickle.dumps((0, OSError("the template process cannot fork"))))
        os.close(begin)


def _prepare(
    connection: socket.socket, request: dict[str, Any], received: list[int], may_begin: int
) -> None:
    """Give this process what the request demands of it, and answer with its process id."""
    error: OSError | None = None
    try:
        os.close(may_begin)
        connection = _place(connection, received, request["descriptors"])
        _set_process(request)
        _show(request)
    except OSError as failed:
        error = failed
    connection.send(pickle.dumps((os.getpid(), error)))
    if error is not None:
        os._exit(_FAILED)
    connection.close()


def _place(connection: socket.socket, received: list[int], wanted: list[int]) -> socket.socket:
    """Give each descriptor its number, and close all others but that of the connection."""
    first_free = max(_STANDARD, *wanted) + 1
    above = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, first_free) for one in received]
    moved = socket.socket(
        fileno=fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, first_free)
    )
    connection.detach()
    for descriptor, number in zip(above, wanted, strict=True):
        os.dup2(descriptor, number)
    kept = {*wanted, moved.fileno()}
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number not in kept:
            with contextlib.suppress(OSError):  # the folder itself, which is closed by now
                os.close(number)
    return moved


def _set_process(request: dict[str, Any]) -> None:
    """Set what the kernel knows of a process and ``exec`` keeps."""
    if request["directory"] is not None:
        os.chdir(request["directory"])
    os.umask(request["umask"])
    if request["new_session"]:
        os.setsid()
    if request["group"] >= 0:
        os.setpgid(0, request["group"])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        is_ignored = number in request["ignored"] or number in (signal.SIGPIPE, signal.SIGXFSZ)
        signal.signal(number, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    if signal.SIGINT not in request["ignored"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    if request["ends_with_parent"]:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _show(request: dict[str, Any]) -> None:
    """Write command line and environment where ``/proc`` has them for others.

    The emulated tools read the environment of the process that started them there.
    """
    os.environ.clear()  # the C library has it where it is written now
    words = [sys.executable, *request["words"]]
    environment = [f"{name}={value}" for name, value in request["environment"].items()]
    # proc(5): the addresses of arguments and environment; the name is in brackets before.
    fields = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
    begins, ends, environment_begins, environment_ends = map(int, fields[45:49])
    _write(words, begins, ends - begins)
    _write(environment, environment_begins, environment_ends - environment_begins)
    os.environ.update(request["environment"])


def _write(texts: Sequence[str], address: int, room: int) -> None:
    content = b"".join(os.fsencode(text) + b"\0" for text in texts)
    if len(content) > room:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    ctypes.memset(address, 0, room)
    ctypes.memmove(address, content, len(content))


def _become(request: dict[str, Any], is_unbuffered: bool) -> None:
    """Set what the start of Python sets, and run the command as ``__main__``."""
    time.tzset()
    locale.setlocale(locale.LC_CTYPE, "")
    tempfile.tempdir = None
    logging._startTime = time.time()  # type: ignore[attr-defined]
    _open_standard_streams(is_unbuffered)
    words: list[str] = request["words"]
    sys.orig_argv[:] = [sys.executable, *words]
    sys.argv[:] = words[1:] if words[0] == "-m" else words
    try:
        if words[0] == "-m":
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(words[0]).parent))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        _end_at_once(end.code)
        raise


def _end_at_once(status: object) -> None:
    """End as the interpreter does, but leave its memory to the kernel.

    To free what was imported would write into each page of the template, which takes 0.06 s. Comes
    back where the end is not a plain one.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        return
    if status is None or isinstance(status, int):
        os._exit((status or 0) & 0xFF)


def _open_standard_streams(is_unbuffered: bool) -> None:
    # In these locales Python passes on bytes that are no text.
    is_plain = locale.setlocale(locale.LC_CTYPE) in ("C", "POSIX", "C.UTF-8", "C.utf8", "UTF-8")
    errors = "surrogateescape" if is_plain else "strict"
    streams = (
        ("stdin", "rb", errors),
        ("stdout", "wb", errors),
        ("stderr", "wb", "backslashreplace"),
    )
    for number, (name, mode, handling) in enumerate(streams):
        try:
            file = open(  # noqa: SIM115 (it lives as long as the process)
                number, mode, 0 if is_unbuffered and mode == "wb" else -1, closefd=False
            )
        except OSError:
            stream = None
        else:
            is_by_line = not is_unbuffered and (file.isatty() or name == "stderr")
            stream = io.TextIOWrapper(
                file, "utf-8", handling, line_buffering=is_by_line, write_through=is_unbuffered
            )
            stream.mode = mode[0]  # type: ignore[misc]
            getattr(file, "raw", file).name = f"<{name}>"  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    main()
