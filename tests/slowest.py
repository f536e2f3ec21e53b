"""How long each test took when it was run last: ``make slow`` lists the slowest fifty.

Each run records its tests in pytest's cache, with their fixtures; it keeps those of other runs.
Each copy of ``tests/unit.py`` has a cache of its own.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING

from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

_COUNT = 50
_KEY = "vigil/durations"


class Durations:
    """Records the seconds of the tests of a run; a plug-in of pytest."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of a test, or of what it needs; with workers all reports come here."""
        self._seconds[report.nodeid] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        """Write what was recorded, in place of what earlier runs have recorded of these tests."""
        # Without the plug-in of the cache there is none.
        cache: pytest.Cache | None = getattr(self._config, "cache", None)
        # A worker reports to the process that distributes.
        if cache is not None and not hasattr(self._config, "workerinput"):
            rounded = {test: round(seconds, 2) for test, seconds in self._seconds.items()}
            cache.set(_KEY, cache.get(_KEY, {}) | rounded)


def recorded(caches: str, root: Path = ROOT) -> dict[str, float]:
    """Return the seconds of each test in the last of the caches that has it.

    ``caches`` is a pattern of folders below ``root``.
    """
    seconds: dict[str, float] = {}
    records = root.glob(f"{caches}/v/{_KEY}")
    for record in sorted(records, key=lambda path: path.stat().st_mtime):
        seconds |= json.loads(record.read_text("utf-8"))
    return seconds


def slowest(seconds: Mapping[str, float], count: int = _COUNT) -> list[str]:
    """Return a line for each of the slowest tests, and one with the share of all seconds."""
    order = sorted(seconds.items(), key=lambda item: -item[1])[:count]
    lines = [f"{took:7.2f} s  {test}" for test, took in order]
    listed, total = sum(took for _, took in order), sum(seconds.values())
    lines.append(f"{listed:7.2f} s  of {total:.2f} s for all {len(seconds)} tests")
    return lines


def main() -> str | None:
    """Print the slowest tests; return why that is not possible."""
    seconds = recorded(".pytest_cache/**")
    if not seconds:
        return "no run has recorded its tests: run make test or pytest first"
    sys.stdout.write("\n".join(slowest(seconds)) + "\n")
    return None


if __name__ == "__main__":
    sys.exit(main())
