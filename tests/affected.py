"""``make affected``: runs the tests that a change may break, the nearest first, for two minutes.

The change is what differs from where this branch left ``main``, and what is not committed. A test
is as far from it as the fewest imports between them. Processes that a test starts import more than
the test does: the last ``make coverage`` has measured which tests they belong to. For files that
are no modules there is a table. Status 4: some tests were left out; they are named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import defaultdict
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from tests.imports import distances, importers
from tests.measured.lookup import Measured
from tests.measured.places import PRODUCT
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SECONDS = 120.0
_START_SECONDS = 15.0
"""What pytest takes for itself: to collect, and to start its workers."""

_WORKERS = 2
_UNMEASURED_SECONDS = 2.0
"""What a file of tests takes that was never measured."""

_LEFT_OUT = 4
_BY_PROCESS = 1
"""The distance of a test whose processes run what changed."""

TABLE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("contract/data/*.json", ("contract/codes/catalogue.py", "contract/codes/policies.py")),
    ("contract/wire/*", ("tests/aggregator/grpc",)),
    ("contract/py.typed", ("tests/packaging",)),
    ("dcmi_shim/emulator/*", ("tests/dcmi_shim/emulator", "dcmi_shim/emulator/install.py")),
    ("tests/dcmi_shim/drivers/*", ("tests/dcmi_shim",)),
    ("tests/dcmi_shim/emulator/*", ("tests/dcmi_shim/emulator",)),
    ("tests/acceptance/driver/*", ("tests/acceptance",)),
    (
        "service/pages/browser/*",
        (
            "tests/service/pages",
            "tests/end_to_end/test_browser.py",
            "tests/end_to_end/test_browser_troubles.py",
        ),
    ),
    ("tests/parts/*.c", ("tests/collectors/kernel_log", "tests/end_to_end")),
    ("tests/vectors/clusterd/*", ("tests/aggregator", "tests/cluster", "tests/contract")),
    ("tests/vectors/volcano/*", ("tests/advisor", "tests/aggregator")),
    ("tests/vectors/*", ("tests/agent", "tests/replay", "tests/contract", "tests/collectors")),
    ("tests/vigil/lint/cases/*", ("tests/vigil/lint",)),
    ("tests/chaos/*.json", ("tests/benchmarks/chaos",)),
    ("benchmarks/chaos/*.c", ("tests/benchmarks/chaos",)),
    ("tests/kustomize/*", ("tests/packaging",)),
    ("tests/helm/*", ("tests/packaging",)),
    ("tests/operator/*", ("tests/alerts",)),
    ("tests/controlplane/*", ("tests/parts/controlplane.py",)),
    ("tests/mochi/*", ("tests/parts/mochi.py",)),
    ("tests/go_json/*", ("tests/contract/go/test_go_itself.py",)),
    ("tests/node/*", ("tests/packaging",)),
    ("tests/volcano/*", ("tests/parts/volcano.py",)),
    ("tests/brokers/*", ("tests/parts/broker.py",)),
    ("tests/setup.sh", ("tests/test_parts.py",)),
    ("tests/anywhere.sh", ()),  # ``make test-anywhere``
    ("tests/aarch64/*", ()),  # ``make test-aarch64``
    ("tests/mutants/*", ("tests/test_mutants.py",)),
    ("daemonset/*", ("tests/packaging", "tests/intruder")),
    ("systemd/*", ("tests/packaging", "tests/intruder")),
    (
        "monitoring/*",
        (
            *("tests/alerts", "tests/dashboards", "tests/end_to_end/test_metrics.py"),
            "tests/packaging/test_chart.py",
        ),
    ),
    ("vigil/man/*", ("tests/vigil",)),
    ("vigil/locale/*", ("vigil/language.py",)),
    ("docs/examples/*", ("tests/vigil/advise", "tests/test_documents.py")),
    ("docs/site/*", ("tests/test_documents.py", "tests/test_plain_english.py")),
    ("docs/pictures/demo.svg", ("tests/vigil/demo/test_picture.py",)),
    (
        "docs/*",
        (
            *("tests/test_documents.py", "tests/test_plain_english.py", "tests/test_citations.py"),
            "tests/test_documented_commands.py",
        ),
    ),
    (
        "*.md",
        (
            *("tests/test_documents.py", "tests/test_documented_commands.py"),
            *("tests/test_plain_english.py", "tests/packaging"),
        ),
    ),
    ("Makefile", ("tests/test_makefile.py", "tests/test_documents.py")),
    (".ci/*", ("tests/test_makefile.py",)),
    ("pyproject.toml", ("tests/test_architecture.py", "tests/packaging")),
    ("requirements*.lock", ("tests/packaging",)),
    (".pre-commit-config.yaml", ("tests/test_pre_commit.py",)),
    (".gitignore", ("tests/test_architecture.py",)),
    (".dockerignore", ("tests/packaging",)),
    (".git-blame-ignore-revs", ()),
    ("LICENSE", ("tests/packaging",)),
    ("MANIFEST.in", ("tests/release", "tests/packaging")),
    # Only ``make test-release`` runs them.
    ("release/install", ()),
    ("release/scripts/*", ()),
    ("release/advisories.json", ("tests/release",)),
)
"""For each file that is no module, by the first pattern that fits: folders of tests, test files, or
modules that read it. All below a test folder count as changed."""


def rows_of(path: str) -> tuple[str, ...] | None:
    """Return what the table has for a file; ``None`` where it has nothing.

    What lies beside tests, or in a folder below them, belongs to these tests.
    """
    rows = next((rows for pattern, rows in TABLE if fnmatch(path, pattern)), None)
    if rows is None and path.startswith("tests/"):
        folders = [folder for folder in Path(path).parents if len(folder.parts) > 1]
        near = (folder for folder in folders if any((ROOT / folder).glob("test_*.py")))
        return next(((str(folder),) for folder in near), None)
    return rows


def changed_files(base: str) -> list[str]:
    """Return what differs from where this branch left ``base``, and what git does not know."""
    since = _git("merge-base", "HEAD", base)[0]
    new = _git("ls-files", "--others", "--exclude-standard")
    return sorted({*_git("diff", "--name-only", since), *new})


def _git(*arguments: str) -> list[str]:
    command = ["git", *arguments]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return shown.stdout.splitlines()


class Plan:
    """The tests that a change may break, with how far they are from it."""

    def __init__(self, changed: Iterable[str], measured: Measured | None) -> None:
        self.unknown: list[str] = []
        """Changed files without a test that is known."""
        self._measured = measured
        self._importers = importers()
        self._tests_of: defaultdict[str, list[str]] = defaultdict(list)
        for test in () if measured is None else measured.seconds:
            self._tests_of[test.partition("::")[0]].append(test)
        self._distance: dict[str, int] = {}
        for path in changed:
            self._add(path)

    def _add(self, path: str) -> None:
        if path.endswith(".py"):
            self._add_module(path)
            return
        rows = rows_of(path)
        if rows is None:
            self.unknown.append(path)
        for row in rows or ():
            if row.endswith(".py") and not _is_test_file(row):
                self._add_module(row)
            else:
                self._add_tests(row)

    def _add_module(self, path: str) -> None:
        for reached, distance in distances(path, self._importers).items():
            if _is_test_file(reached):
                self._near(reached, distance)
        if self._measured is not None and path.split("/")[0] in PRODUCT:
            for test in self._measured.tests_of_file(path):
                self._near(test, _BY_PROCESS)

    def _add_tests(self, row: str) -> None:
        for path in self._importers:
            if _is_test_file(path) and (path == row or path.startswith(f"{row}/")):
                self._near(path, 0)

    def _near(self, test: str, distance: int) -> None:
        if (ROOT / test.partition("::")[0]).is_file():
            self._distance[test] = min(distance, self._distance.get(test, distance))

    def ordered(self) -> list[str]:
        """Return tests, and files whose tests were not measured: the nearest and quickest first."""
        distance: dict[str, int] = {}
        for found, far in self._distance.items():
            tests = [found] if "::" in found else self._tests_of.get(found, [found])
            for test in tests:
                distance[test] = min(far, distance.get(test, far))
        return sorted(distance, key=lambda test: (distance[test], self.seconds(test), test))

    def seconds(self, test: str) -> float:
        """Return what a test took when it was measured."""
        seconds = {} if self._measured is None else self._measured.seconds
        return seconds.get(test, _UNMEASURED_SECONDS)


def _is_test_file(path: str) -> bool:
    return path.startswith("tests/") and path.rpartition("/")[2].startswith("test_")


def within(tests: Sequence[str], seconds: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Return the tests that two minutes have room for, and those that are left out."""
    room = (_SECONDS - _START_SECONDS) * _WORKERS
    for number, test in enumerate(tests):
        room -= seconds[test]
        if room < 0:
            return list(tests[:number]), list(tests[number:])
    return list(tests), []


def _measured() -> Measured | None:
    try:
        return Measured()
    except FileNotFoundError as error:
        print(f"{error}; tests of processes are chosen by their imports alone")
        return None


def main() -> int:
    """Run the tests; return their status, or 4 where some were left out."""
    parser = argparse.ArgumentParser(prog="python -m tests.affected", description=__doc__)
    parser.add_argument("--base", default="main", help="the branch to compare with")
    parser.add_argument("--list", action="store_true", help="name the tests, run none")
    options = parser.parse_args()
    changed = changed_files(options.base)
    plan = Plan(changed, _measured())
    tests = plan.ordered()
    chosen, left = within(tests, {test: plan.seconds(test) for test in tests})
    print(
        f"{len(changed)} files changed, {len(chosen)} of {len(tests)} tests or files of tests run"
    )
    status = 0
    if options.list:
        print("\n".join(chosen))
    elif chosen:
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(_WORKERS), "--dist", "worksteal"]
        status = subprocess.run([*command, *chosen], cwd=ROOT, check=False).returncode
    by_file: defaultdict[str, int] = defaultdict(int)
    for test in left:
        by_file[test.partition("::")[0]] += 1
    for path, count in by_file.items():
        print(f"left out: {path} ({count})")
    for path in plan.unknown:
        print(f"left out: no test is known for {path}; add it to the table in tests/affected.py")
    return status or (_LEFT_OUT if left or plan.unknown else 0)


if __name__ == "__main__":
    sys.exit(main())
