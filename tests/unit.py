"""``make unit``: runs the unit tests in one pytest for each processor, each with its own files.

Workers of pytest-xdist would each read all tests, and report each test to another process. Each
pytest of this program has a cache of its own, by which the next run distributes the files: each
share takes about as long. The status is the highest of all.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tests.parts.once import RUN_FOLDER
from tests.parts.tree import ROOT, files
from tests.slowest import KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SHARE = "VIGIL_TEST_SHARE"
"""The variable with the file that names the test files of one pytest."""

DIVISOR = "VIGIL_TEST_EXAMPLES"
"""The variable with the number by which the examples of each property are divided."""

UNIT_DIVISOR = 4

_CACHE = ".pytest_cache/unit-{}"
_BYTES_A_SECOND = 20_000
"""How long a file takes that was never run; the mean of all is about this."""

_TEST_SECONDS = 0.002
"""What pytest takes for a test besides the test itself."""

_OTHER_TIER = re.compile(
    r"^pytestmark = .*\bmark\.(apiserver|server|daemon|slow|alone)\b", re.MULTILINE
)


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
    """Leaves out the test files of other shares, which is quicker than files as arguments."""

    def __init__(self, listed: Path) -> None:
        self._paths = {str(ROOT / line) for line in listed.read_text("utf-8").splitlines()}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Return ``True`` for a test file of another share; ``None`` leaves it to others."""
        is_test = collection_path.match("test_*.py")
        return True if is_test and str(collection_path) not in self._paths else None


def main() -> int:
    """Run all shares beside each other; print what the others wrote when all have ended."""
    processors = len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vigil-unit-"))
        outputs, running = [], []
        for number, share in enumerate(shares(unit_files(), recorded_seconds(), processors)):
            listed, written = (Path(folder) / f"{name}-{number}" for name in ("share", "output"))
            listed.write_text("\n".join(share), "utf-8")
            command = [str(Path(sys.executable).with_name("pytest")), "-q", "-p", "no:xdist"]
            process = subprocess.Popen(
                [*command, "-o", f"cache_dir={_CACHE.format(number)}", "-m", "unit"],
                cwd=ROOT,
                env={
                    **os.environ,
                    DIVISOR: str(UNIT_DIVISOR),
                    RUN_FOLDER: folder,
                    SHARE: str(listed),
                },
                stdout=stack.enter_context(written.open("wb")) if number else None,
            )
            outputs += [written] if number else []
            running.append(stack.enter_context(process))
        try:
            statuses = [process.wait() for process in running]
        except KeyboardInterrupt:  # the terminal interrupts them, too; they end what they started
            statuses = [process.wait() for process in running]
        for path in outputs:
            sys.stdout.write(path.read_text("utf-8", errors="replace"))
        return max(map(abs, statuses))


if __name__ == "__main__":
    sys.exit(main())
