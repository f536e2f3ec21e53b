"""Runs tests on a copy of the repository in which one file is changed.

A process imports pytest and all packages of others once. Each run is a fork of it, which imports
product and tests anew from the copy, so what takes seconds is done once for all runs.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.parts.tree import ROOT, files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TEST_SECONDS = 30.0
"""The deadline of a test; those of the unit tier take up to two seconds."""

_RUN_SECONDS = 240.0
"""The deadline of all tests for one mutant."""

_POLL_SECONDS = 0.02
_NOT_IMPORTED = " (it could not be imported)"
_NONE_BEGAN = "no test could begin"
_CONTROL = "tests/pacing/test_backoff.py"

_PACKAGES = (
    "aiohttp",
    "aiomqtt",
    "google.protobuf",
    "grpc.aio",
    "hypothesis",
    "kubernetes.client",
    "looptime",
    "msgspec",
    "prometheus_client",
    "psutil",
    "pydantic",
    "pytest_asyncio",
    "pytest_timeout",
    "rich",
    "typer",
    "yaml",
)


class Outcome(NamedTuple):
    """What the tests found."""

    noticed_by: str | None
    """The test that failed, or why no test could run; ``None`` where all passed."""
    tests: int
    """How many were asked for."""
    seconds: float


class RunFailed(Exception):
    """Tests cannot run in a copy, whatever is changed there."""


class Copy:
    """A copy of the repository in ``folder``, in which ``run`` runs tests.

    Raises ``RunFailed`` where a test fails without a change.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changes = 0
        for path in files():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, target, follow_symlinks=False)
        # The commands of the environment, which tests start, are the same.
        (folder / ".venv").symlink_to(Path(sys.prefix))
        failed, text = self._run([_CONTROL])
        if failed is not None:
            log = (folder / "run.log").read_text(encoding="utf-8")
            raise RunFailed(f"without a change: {text}\n{log}")

    def run(self, path: str, source: str, tests: Sequence[str]) -> Outcome:
        """Run the tests in their order, up to the first that notices another ``source``.

        A test that fails without the change as well has noticed nothing, as on a busy machine.
        """
        begin = time.monotonic()
        changed = self._folder / path
        original = changed.read_bytes()
        rest = tests
        while True:
            self._write(changed, source.encode())
            try:
                failed, text = self._run(rest)
            finally:
                self._write(changed, original)
            if failed is None or failed not in rest or self._run([failed])[0] is None:
                return Outcome(text, len(tests), time.monotonic() - begin)
            rest = rest[rest.index(failed) + 1 :]
            if not rest:
                return Outcome(None, len(tests), time.monotonic() - begin)

    def _write(self, path: Path, source: bytes) -> None:
        path.write_bytes(source)
        # The interpreter compares time and size of a source with those of its bytecode.
        self._changes += 1
        os.utime(path, (1e9 + self._changes, 1e9 + self._changes))

    def _run(self, tests: Sequence[str]) -> tuple[str | None, str | None]:
        """Return the test that failed, and how to name it; ``None`` and ``None`` without one."""
        result = self._folder / "result.jsonl"
        result.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            _pytest(self._folder, result, tests)
        give_up = time.monotonic() + _RUN_SECONDS
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > give_up:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                break
            time.sleep(_POLL_SECONDS)
        lines = [json.loads(line) for line in result.read_text().splitlines()]
        failed = [name for event, name in lines if event == "failed"]
        if failed:
            return failed[0].removesuffix(_NOT_IMPORTED), failed[0]
        if pid and os.waitstatus_to_exitcode(status) == 0:
            return None, None
        begun = [name for event, name in lines if event == "begun"]
        return (begun[-1], f"{begun[-1]} (it did not end)") if begun else ("", _NONE_BEGAN)


def import_packages() -> None:
    """Import what all runs share; nothing of the product or of its tests."""
    for name in _PACKAGES:
        importlib.import_module(name)


class _Notes:
    """A pytest plugin that writes down which test began and which failed."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", encoding="utf-8")

    def _note(self, event: str, name: str) -> None:
        self._file.write(json.dumps([event, name]) + "\n")
        self._file.flush()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._note("begun", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._note("failed", report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note("failed", report.nodeid + _NOT_IMPORTED)


def _pytest(folder: Path, result: Path, tests: Sequence[str]) -> None:
    """Run in the forked process; does not return."""
    os.setpgid(0, 0)
    log = os.open(folder / "run.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    sys.path[:] = [str(folder), *(one for one in sys.path if one not in ("", str(ROOT)))]
    for name in list(_ours()):
        del sys.modules[name]
    result.touch()
    options = ["-x", "-q", "-p", "no:cacheprovider", "--timeout", str(_TEST_SECONDS)]
    # The plugins have no asserts of ours; they were imported before.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    status = 3
    try:
        status = int(pytest.main([*options, *tests], plugins=[_Notes(result)]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _ours() -> Iterator[str]:
    packages = {path.partition("/")[0] for path in files("__init__.py")}
    return (name for name in sys.modules if name.partition(".")[0] in packages)
