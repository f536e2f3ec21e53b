"""Runs tests in forks of the process that has read them: ``pytest --workers N``.

To read all tests takes a processor 10 s, and more where it has other work. Workers of pytest-xdist
each do it again. A fork has what its parent has read, and shares most of the memory with it.

Each worker has a row of tests that follow each other, so a fixture of a module is seldom made
twice. A worker without tests takes half of what the longest row still has. A worker that ends
amid a test makes this test fail, and another worker does the rest.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import traceback
import warnings
from itertools import pairwise
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pytest
from _pytest._io import TerminalWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_AHEAD = 2
"""So many tests has a worker: one that runs, and the next, whose fixtures are kept."""


def add_option(parser: pytest.Parser) -> None:
    """Add the option ``--workers``; 0 runs the tests in pytest's own process."""
    parser.addoption(
        "--workers", type=int, default=0, metavar="N", help="run the tests in N forked processes"
    )


class Forks:
    """Runs the tests in forks; a plug-in of pytest where ``--workers`` is given."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests; return ``None`` where there is nothing to run, which pytest reports.

        Raises ``UsageError`` where the import of a test has started a thread: a fork has none.
        """
        if session.testsfailed or session.config.option.collectonly or not session.items:
            return None
        if threading.active_count() > 1:
            raise pytest.UsageError(f"the import of a test starts threads: {threading.enumerate()}")
        count = min(session.config.getoption("workers"), len(session.items))
        with _Workers(session, count) as workers:
            workers.run()
        return True


class _Rows:
    """Which tests each worker still has to get, by their numbers."""

    def __init__(self, tests: int, count: int) -> None:
        bounds = [tests * worker // count for worker in range(count + 1)]
        self._rows = [list(range(*pair)) for pair in pairwise(bounds)]

    def take(self, worker: int) -> int | None:
        """Return the next test of a worker; ``None`` where no worker has one left."""
        if not self._rows[worker]:
            longest = max(self._rows, key=len)
            half = len(longest) // 2
            self._rows[worker], longest[half:] = longest[half:], []
        return self._rows[worker].pop(0) if self._rows[worker] else None

    def put_back(self, worker: int, tests: list[int]) -> None:
        """Let a worker get these first; its predecessor has not begun them."""
        self._rows[worker][:0] = tests


class _Workers:
    """The forks of a run, and which tests each of them has."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session, self._count = session, count
        self._rows = _Rows(len(session.items), count)
        self._terminal: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        self._forks = 0
        self._worker: dict[Connection, int] = {}
        self._process: dict[Connection, int] = {}
        self._given: dict[Connection, list[int]] = {}

    def __enter__(self) -> _Workers:
        # Names of files would alternate with each test.
        self._terminal.showfspath = False
        # Made by the first who asks; the folders of the workers lie in it.
        _temporary(self._session.config).getbasetemp()
        for worker in range(self._count):
            self._fork(worker)
        return self

    def __exit__(self, *_: object) -> None:
        for connection, process in self._process.items():
            connection.close()
            # It ends by itself, and ends what its tests have started.
            os.waitpid(process, 0)

    def run(self) -> None:
        """Distribute the tests and report what comes back, until all have ended."""
        while self._process:
            for ready in wait(list(self._process)):
                assert isinstance(ready, Connection)
                try:
                    kind, value = ready.recv()
                except (EOFError, ConnectionResetError):
                    self._ended(ready)
                else:
                    self._take(ready, kind, value)
            if self._session.shouldfail:
                raise self._session.Failed(self._session.shouldfail)

    def _fork(self, worker: int) -> None:
        self._forks += 1
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if not process:
            ours.close()
            # Else a worker would not see that the parent has closed the connection of another.
            for other in self._process:
                other.close()
            _become_worker(self._session, theirs, f"gw{self._forks - 1}")
        theirs.close()
        self._worker[ours], self._process[ours], self._given[ours] = worker, process, []
        for _ in range(_MAX_AHEAD):
            self._give(ours)

    def _give(self, connection: Connection) -> None:
        test = self._rows.take(self._worker[connection])
        if test is not None:
            self._given[connection].append(test)
        # Where it has ended meanwhile, the connection says so, too.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.send(test)

    def _take(self, connection: Connection, kind: str, value: Any) -> None:
        hook, config = self._session.config.hook, self._session.config
        if kind == "done":
            self._given[connection].remove(value)
            self._give(connection)
        elif kind == "warning":
            # Not by the hook, which would repeat it in each later fork.
            self._terminal.pytest_warning_recorded(**value)
        else:
            report = hook.pytest_report_from_serializable(config=config, data=value)
            # pytest writes reports with a node as those of workers, with the line of the cache.
            worker = self._worker[connection]
            report.node = SimpleNamespace(
                gateway=SimpleNamespace(id=worker), _workerinfocache=f"[worker {worker}]"
            )
            hook.pytest_runtest_logreport(report=report)

    def _ended(self, connection: Connection) -> None:
        """Take note of a worker's end; report the test that it ran, and start the next worker."""
        worker, given = self._worker.pop(connection), self._given.pop(connection)
        _, status = os.waitpid(self._process.pop(connection), 0)
        connection.close()
        if given:
            item = self._session.items[given[0]]
            report = pytest.TestReport(
                item.nodeid,
                item.location,
                {},
                "failed",
                f"its worker ended with status {os.waitstatus_to_exitcode(status)}",
                "call",
            )
            item.ihook.pytest_runtest_logreport(report=report)
            self._rows.put_back(worker, given[1:])
            self._fork(worker)
        elif status:
            raise RuntimeError(f"a worker without tests ended with status {status}")


def _become_worker(session: pytest.Session, connection: Connection, name: str) -> None:
    """Run what the connection names; end the process, which is a fork of pytest's."""
    status = 1
    try:
        _prepare(session, connection, name)
        _run(session, connection)
        status = 0
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        # The parent gives up: Ctrl-C, or too many failures.
        session._setupstate.teardown_exact(None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _prepare(session: pytest.Session, connection: Connection, name: str) -> None:
    config = session.config
    # The name by which plug-ins and tests/parts/once.py see that there are other workers.
    os.environ["PYTEST_XDIST_WORKER"] = name
    random.seed()
    manager = config.pluginmanager
    manager.unregister(name="terminalreporter")
    # pytest-timeout writes the stacks there.
    manager.register(SimpleNamespace(_tw=TerminalWriter(sys.stderr)), "terminalreporter")
    manager.register(_Sender(config, connection))
    # The file that takes the output of tests would be the parent's.
    capture: Any = manager.get_plugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    factory = _temporary(config)
    factory._basetemp = factory.getbasetemp() / f"popen-{name}"
    factory._basetemp.mkdir(mode=0o700)


def _temporary(config: Any) -> pytest.TempPathFactory:
    factory: pytest.TempPathFactory = config._tmp_path_factory
    return factory


def _run(session: pytest.Session, connection: Connection) -> None:
    for number, following in _pairs(connection.recv):
        item = session.items[number]
        after = None if following is None else session.items[following]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        connection.send(("done", number))


def _pairs(receive: Callable[[], int | None]) -> Iterator[tuple[int, int | None]]:
    """Yield each number that comes, with the next; the last with ``None``."""
    number = receive()
    while number is not None:
        following = receive()
        yield number, following
        number = following


class _Sender:
    """Sends what a worker reports; a plug-in of pytest."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report of a test."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: Literal["config", "collect", "runtest"],
        nodeid: str,
    ) -> None:
        """Send the text of a warning: what it is about may be something that only a process has."""
        if when != "runtest":  # pytest repeats the others to each new plug-in
            return
        sent = warnings.WarningMessage(
            str(warning_message.message),
            warning_message.category,
            warning_message.filename,
            warning_message.lineno,
        )
        self._connection.send(("warning", {"warning_message": sent, "nodeid": nodeid}))
