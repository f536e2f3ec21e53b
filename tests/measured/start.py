"""A plugin of coverage.py that lets every process of the product be measured until its end.

coverage.py loads it in each process that it measures. Three things would be lost without it: the
driver's child runs without ``site`` and is started by way of ``isolated.py``; a process that
``kill -9`` ends is asked to save before, by a signal; a process that is forked saves its own data.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coverage

from tests.parts.deadlines import wait_until

if TYPE_CHECKING:
    from coverage.plugin_support import Plugins

_SAVE = signal.SIGRTMAX - 3
"""No program of the product uses it."""

_SAVE_SECONDS = 10.0
_POLL_SECONDS = 0.005
_CONFIG = "COVERAGE_PROCESS_START"
_ISOLATED = Path(__file__).with_name("isolated.py")

# A test may take the variable away later.
_marks = Path(os.environ.get(_CONFIG, ".")).parent / "running"

_kill = os.kill
_begin_process = subprocess.Popen.__init__


def coverage_init(registry: Plugins, options: dict[str, Any]) -> None:
    """Prepare this process, if it is measured; coverage.py calls it."""
    if _CONFIG not in os.environ or os.kill is _save_and_kill:
        return
    _marks.mkdir(exist_ok=True)
    os.kill = _save_and_kill
    subprocess.Popen.__init__ = _begin_measured  # type: ignore[method-assign,assignment]
    os.register_at_fork(after_in_child=measure_anew)
    _save_by_signal()


def measure_anew() -> None:
    """Measure this process by itself after a fork, for the test that the environment names."""
    before = coverage.Coverage.current()
    if before is None:
        return
    # What the parent ran until now is in its own data.
    before._auto_save = False
    before.stop()
    coverage.process_startup(force=True)
    _save_by_signal()


def _save_by_signal() -> None:
    # Not a handler: the main thread may hang in a call of the driver, and never run one.
    signal.pthread_sigmask(signal.SIG_BLOCK, {_SAVE})
    thread = threading.Thread(target=_save_when_asked, name="save coverage", daemon=True)
    thread.start()
    _mark().touch()


def _mark(pid: int | None = None) -> Path:
    """Return the file that is there while a process can be asked to save."""
    return _marks / str(os.getpid() if pid is None else pid)


def _save_when_asked() -> None:
    signal.sigwait({_SAVE})
    measured = coverage.Coverage.current()
    if measured is not None:
        measured.stop()
        measured.save()
    _mark().unlink(missing_ok=True)


def _save_and_kill(pid: int, number: int) -> None:
    """Send a signal; a measured process that it kills has saved what it ran."""
    if number == signal.SIGKILL and pid > 0 and pid != os.getpid() and _runs(pid):
        with contextlib.suppress(ProcessLookupError):
            _kill(pid, _SAVE)
        # What does not save in time loses what it ran, and is killed all the same.
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not _runs(pid), "it saves", _SAVE_SECONDS, _POLL_SECONDS)
        _mark(pid).unlink(missing_ok=True)
    _kill(pid, number)


def _runs(pid: int) -> bool:
    """Return whether a process has a mark and is neither stopped nor gone."""
    if not _mark(pid).exists():
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state not in "TtZX"


def _begin_measured(process: subprocess.Popen[Any], args: Any, *rest: Any, **options: Any) -> None:
    if isinstance(args, list | tuple) and list(args[:3]) == [sys.executable, "-I", "-S"]:
        packages = Path(coverage.__file__).parents[1]
        args = [*args[:3], str(_ISOLATED), str(packages), *args[3:]]
    _begin_process(process, args, *rest, **options)
