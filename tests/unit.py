"""``make unit``: runs the unit tests in several copies of one process, each with its own files.

The process imports what the test files import, then forks. Each copy runs pytest with its share of
the files. Workers of pytest-xdist would each import everything, read all tests, and report each
test to another process. There are two copies for each processor, because some tests wait. Each copy
has a cache of its own, by which the next run distributes the files: each share takes about as long.
The status is the highest of all.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.parts.once import RUN_FOLDER
from tests.parts.tree import ROOT, files
from tests.slowest import KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DIVISOR = "VIGIL_TEST_EXAMPLES"
"""The variable with the number by which the examples of each property are divided."""

UNIT_DIVISOR = 8

_CACHE = ".pytest_cache/unit-{}"
_BYTES_A_SECOND = 20_000
"""How long a file takes that was never run; the mean of all is about this."""

_COPIES = 2
"""How many copies each processor has."""

_TEST_SECONDS = 0.002
"""What pytest takes for a test besides the test itself."""

_OTHER_TIER = re.compile(
    r"^pytestmark = .*\bmark\.(apiserver|server|daemon|slow|alone)\b", re.MULTILINE
)

_IMPORT = re.compile(r"^(?:from|import) ([\w.]+)", re.MULTILINE)


def unit_files() -> list[str]:
    """Return the test files that may have unit tests: whose own mark names no other tier."""
    paths = (path for path in files("test_*.py") if path.startswith("tests/"))
    return [path for path in paths if not _OTHER_TIER.search((ROOT / path).read_text("utf-8"))]


def recorded_seconds() -> dict[str, float]:
    """Return what each file took when ``make unit`` ran it last."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: dict[str, float] = {}
    records = ROOT.glob(f"{_CACHE.format('*')}/v/{KEY}")
    for record in sorted(records, key=lambda path: path.stat().st_mtime):
        tests |= json.loads(record.read_text("utf-8"))
    for test, took in tests.items():
        seconds[test.partition("::")[0]] += took + _TEST_SECONDS
    return dict(seconds)


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


def _run(share: list[str], number: int, output: Path | None) -> int:
    """Run the tests of a share in this process; return the status of pytest."""
    import pytest

    if output is not None:
        with output.open("wb") as file:
            os.dup2(file.fileno(), sys.stdout.fileno())
    options = ("-q", "-m", "unit", "-p", "no:xdist", "-o", f"cache_dir={_CACHE.format(number)}")
    # The modules of plug-ins were imported before pytest began to look for their asserts.
    ignored = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
    return pytest.main([*options, *ignored], plugins=[Share(share)])


def main() -> int:
    """Run all shares beside each other; print what the others wrote when all have ended."""
    folder = Path(tempfile.mkdtemp(prefix="vigil-unit-"))
    # The same as in ``conftest.py``, which is imported after gRPC here.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    os.environ.update({DIVISOR: str(UNIT_DIVISOR), RUN_FOLDER: str(folder)})
    paths = unit_files()
    for module in imported(paths):
        with suppress(Exception):  # pytest imports it again and reports why it fails
            importlib.import_module(module)
    # The garbage collector would write into each page, and so copy it.
    gc.collect()
    gc.freeze()
    copies = _COPIES * len(os.sched_getaffinity(0))
    outputs = [folder / f"output-{number}" for number in range(1, copies)]
    running = []
    for number, share in enumerate(shares(paths, recorded_seconds(), copies)):
        if (copy := os.fork()) == 0:
            return _run(share, number, outputs[number - 1] if number else None)
        running.append(copy)
    statuses: list[int] = []
    while len(statuses) < copies:
        # The terminal interrupts them, too; they end what they started.
        with suppress(KeyboardInterrupt):
            statuses.append(os.waitpid(running[len(statuses)], 0)[1])
    for path in outputs:
        sys.stdout.write(path.read_text("utf-8", errors="replace"))
    shutil.rmtree(folder)
    return max(map(_status, statuses))


def _status(status: int) -> int:
    return abs(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    sys.exit(main())
