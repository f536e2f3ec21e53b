"""``make unit``, ``make computing``: run tests that hardly wait in copies of one process.

The process imports what the test files import, then forks. Each copy runs pytest with its share of
the files. Workers of pytest-xdist would each import everything, read all tests, and report each
test to another process. Each copy has a cache of its own, by which the next run distributes the
files: each share takes about as long. The status is the highest of all.

``make unit`` has two copies for each processor, because some tests wait. It divides the examples of
properties. ``make computing`` is the part of ``make test`` that fills the processors while other
tests wait: unit tests with all examples, and slow tests (``tests/tiers.py``). It has one copy for
each processor.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import importlib
import os
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.parts.once import RUN_FOLDER
from tests.parts.tree import ROOT, files
from tests.slowest import recorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DIVISOR = "VIGIL_TEST_EXAMPLES"
"""The variable with the number by which the examples of each property are divided."""

_CACHE = ".pytest_cache/{mark}-{copy}"
_COMPUTING_LOCK = ROOT / ".pytest_cache/computing.lock"
"""Locked while ``make computing`` runs."""
_BYTES_A_SECOND = 20_000
"""How long a file takes that was never run; the mean of all is about this."""

_TEST_SECONDS = 0.002
"""What pytest takes for a test besides the test itself."""

_OWN_MARK = re.compile(r"^pytestmark = .*", re.MULTILINE)
_TIER = re.compile(r"\bmark\.(apiserver|server|daemon|slow|alone)\b")
_IMPORT = re.compile(r"^(?:from|import) ([\w.]+)", re.MULTILINE)


class Selection(NamedTuple):
    """Tests that run in the copies of one process."""

    mark: str
    """The mark by which pytest selects them."""
    other_tiers: frozenset[str]
    """A file whose own mark names one of these tiers has none of them."""
    copies_each: int
    """How many copies each processor has."""
    divisor: int
    """The number by which the examples of each property are divided."""

    def may_have(self, path: Path) -> bool:
        """Return whether the own mark of a test file names no other tier."""
        return self.other_tiers.isdisjoint(_own_tiers(path))

    def files(self) -> list[str]:
        """Return the test files that may have tests of this selection."""
        paths = (path for path in files("test_*.py") if path.startswith("tests/"))
        return [path for path in paths if self.may_have(ROOT / path)]

    def recorded_seconds(self) -> dict[str, float]:
        """Return what each file took when this selection was run last."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for test, took in recorded(_CACHE.format(mark=self.mark, copy="*")).items():
            seconds[test.partition("::")[0]] += took + _TEST_SECONDS
        return dict(seconds)


_WITH_PROGRAMS = frozenset({"apiserver", "server", "daemon", "alone"})
UNIT = Selection("unit", _WITH_PROGRAMS | {"slow"}, 2, 8)
COMPUTING = Selection("computing", _WITH_PROGRAMS, 1, 1)


@cache
def _own_tiers(path: Path) -> frozenset[str]:
    marks = _OWN_MARK.findall(path.read_text("utf-8"))
    return frozenset(tier for mark in marks for tier in _TIER.findall(mark))


def shares(paths: Iterable[str], seconds: Mapping[str, float], count: int) -> list[list[str]]:
    """Share out files so that each of ``count`` shares takes about as long."""

    def weight(path: str) -> float:
        return seconds.get(path) or (ROOT / path).stat().st_size / _BYTES_A_SECOND

    shared: list[list[str]] = [[] for _ in range(count)]
    sums = [0.0] * count
    for path in sorted(paths, key=lambda path: (-weight(path), path)):
        smallest = sums.index(min(sums))
        shared[smallest].append(path)
        sums[smallest] += weight(path)
    return [sorted(share) for share in shared]


def lock_computing() -> int:
    """Lock until this process and its copies have ended; return the descriptor of the lock."""
    _COMPUTING_LOCK.parent.mkdir(exist_ok=True)
    lock = os.open(_COMPUTING_LOCK, os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def wait_for_computing() -> None:
    """Return when no ``make computing`` runs in this checkout."""
    with suppress(FileNotFoundError), _COMPUTING_LOCK.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)


class Share:
    """Leaves out the test files of other shares and folders without a file of this one.

    That is quicker than files as arguments: pytest looks up each argument in all folders.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = {str(ROOT / path) for path in paths}
        self._folders = {str(folder) for path in self._paths for folder in Path(path).parents}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Return ``True`` for a file or folder of other shares; ``None`` leaves it to others."""
        path = str(collection_path)
        if collection_path.suffix == ".py":
            is_other = collection_path.name.startswith("test_") and path not in self._paths
        else:
            is_other = path not in self._folders
        return True if is_other else None


def imported(paths: Iterable[str]) -> set[str]:
    """Return the modules that test files import at their top level, in no order."""
    texts = ((ROOT / path).read_text("utf-8") for path in paths)
    return {module for text in texts for module in _IMPORT.findall(text)}


def _prepare_properties() -> None:
    """Let Hypothesis read what it needs for each property, once for all copies.

    These are the constants of all modules and the characters of UTF-8. In a fresh clone they take
    it 11 s.
    """
    from hypothesis.configuration import notice_initialization_restarted
    from hypothesis.internal.charmap import intervals_from_codec
    from hypothesis.internal.conjecture import providers

    providers._get_local_constants()
    intervals_from_codec("utf-8")
    # Otherwise its plug-in would warn that this has been read before the plug-in was loaded.
    notice_initialization_restarted(warn=False)


def _run(share: list[str], mark: str, cache_folder: str, output: Path | None) -> int:
    """Run the tests of a share in this process; return the status of pytest."""
    import pytest

    if output is not None:
        with output.open("wb") as file:
            os.dup2(file.fileno(), sys.stdout.fileno())
    options = ("-q", "-m", mark, "-p", "no:xdist", "-o", f"cache_dir={cache_folder}")
    # The modules of plug-ins were imported before pytest began to look for their asserts.
    ignored = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
    return pytest.main([*options, *ignored], plugins=[Share(share)])


def main() -> int:
    """Run all shares beside each other; print what was not yet printed when all have ended.

    The first copy of ``make unit`` prints at once; beside ``make computing`` other tests print.
    """
    parser = argparse.ArgumentParser(description="Runs tests that hardly wait.")
    parser.add_argument(
        "--computing",
        action="store_true",
        help="slow tests that compute, too; all examples, beside other tests",
    )
    selection = COMPUTING if parser.parse_args().computing else UNIT
    if selection is COMPUTING:
        lock_computing()
    folder = Path(tempfile.mkdtemp(prefix="vigil-unit-"))
    # The same as in ``conftest.py``, which is imported after gRPC here.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    os.environ.update({DIVISOR: str(selection.divisor), RUN_FOLDER: str(folder)})
    paths = selection.files()
    gc.disable()  # what is imported stays, so to look for garbage takes a fifth of the time
    for module in imported(paths):
        with suppress(Exception):  # pytest imports it again and reports why it fails
            importlib.import_module(module)
    _prepare_properties()
    # The garbage collector would write into each page, and so copy it.
    gc.collect()
    gc.freeze()
    gc.enable()
    copies = selection.copies_each * len(os.sched_getaffinity(0))
    outputs = [folder / f"output-{number}" for number in range(copies)]
    running = []
    for number, share in enumerate(shares(paths, selection.recorded_seconds(), copies)):
        if (copy := os.fork()) == 0:
            output = None if number == 0 and selection is UNIT else outputs[number]
            cache_folder = _CACHE.format(mark=selection.mark, copy=number)
            return _run(share, selection.mark, cache_folder, output)
        running.append(copy)
    statuses: list[int] = []
    while len(statuses) < copies:
        # The terminal interrupts them, too; they end what they started.
        with suppress(KeyboardInterrupt):
            statuses.append(os.waitpid(running[len(statuses)], 0)[1])
    for path in filter(Path.is_file, outputs):
        sys.stdout.write(path.read_text("utf-8", errors="replace"))
    shutil.rmtree(folder, ignore_errors=True)
    return max(map(_status, statuses))


def _status(status: int) -> int:
    return abs(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    sys.exit(main())
