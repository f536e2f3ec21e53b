"""``python -m tests.measured [ARGUMENT OF PYTEST...]``: runs tests, measured, and writes the table.

Status 1 where a folder has too few branches, else that of pytest unless tests failed: a process
that is measured takes more time and memory than some tests allow. ``make test`` runs them all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from typing import NamedTuple

import coverage

from tests.measured.places import CONTEXT, DATA, FOLDER, PRODUCT, TIMES
from tests.parts.tree import ROOT

_DOCUMENT = ROOT / "docs" / "tests.md"
_TABLE = re.compile(r"(?<=<!-- coverage -->\n).*(?=<!-- end of coverage -->)", re.DOTALL)
_CONFIG = FOLDER / "coverage.toml"
_LEAST_BRANCHES = 95.0
_GUARDED = ("contract", "agent/policy", "aggregator/merge", "aggregator/processors")
_SPLIT = ("agent", "aggregator")
"""Folders whose folders have rows of their own."""

_TESTS_FAILED = 1


class Counts(NamedTuple):
    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_run: int = 0


def _configuration() -> str:
    folders = ", ".join(f'"{ROOT / name}"' for name in PRODUCT)
    return f"""[tool.coverage.run]
branch = true
parallel = true
data_file = "{DATA}"
source = [{folders}]
omit = ["*_pb2.py"]
patch = ["_exit"]
plugins = ["tests.measured.start"]
context = "${{{CONTEXT}-}}"

[tool.coverage.report]
exclude_also = [
    "if TYPE_CHECKING:",
    "class .*\\\\bProtocol\\\\b.*:",
    "@overload",
]
"""


def _measure(arguments: list[str]) -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    _CONFIG.write_text(_configuration(), encoding="utf-8")
    TIMES.touch()
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "COVERAGE_PROCESS_START": str(_CONFIG),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    command = [sys.executable, "-m", "pytest", "-p", "tests.measured.contexts", *arguments]
    status = subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode
    measured = coverage.Coverage(data_file=str(DATA), config_file=str(_CONFIG), plugins=[])
    measured.combine([str(FOLDER)])
    measured.save()
    return status


def folder_of(path: str) -> str:
    """Return the row of the table for a file of the product."""
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in _SPLIT and len(parts) > 2 else parts[0]


def _counted() -> dict[str, Counts]:
    measured = coverage.Coverage(data_file=str(DATA), config_file=str(_CONFIG), plugins=[])
    measured.load()
    report = FOLDER / "report.json"
    measured.json_report(outfile=str(report))
    found: defaultdict[str, Counts] = defaultdict(Counts)
    for path, file in json.loads(report.read_text(encoding="utf-8"))["files"].items():
        name = os.path.relpath(ROOT / path, ROOT)
        summary = file["summary"]
        of_file = (
            summary["num_statements"],
            summary["covered_lines"],
            summary["num_branches"],
            summary["covered_branches"],
        )
        folder = folder_of(name)
        found[folder] = Counts(*map(sum, zip(found[folder], of_file, strict=True)))
    return dict(sorted(found.items()))


def table(counted: dict[str, Counts]) -> str:
    """Return the table of the document: a row for each folder, and one for all."""
    total = Counts(*map(sum, zip(*counted.values(), strict=True)))
    rows = [*((f"`{name}/`", counts) for name, counts in counted.items()), ("all", total)]
    lines = [
        f"| {name} | {counts.lines} | {_share(counts.lines_run, counts.lines)} "
        f"| {counts.branches} | {_share(counts.branches_run, counts.branches)} |\n"
        for name, counts in rows
    ]
    head = "| folder | lines | run | branches | run |\n|---|---|---|---|---|\n"
    return head + "".join(lines)


def _share(part: int, whole: int) -> str:
    return f"{_percent(part, whole):.1f} %"


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 100.0


def main() -> int:
    """Measure, write the table, and return the status."""
    status = _measure(sys.argv[1:])
    counted = _counted()
    written = table(counted)
    text = _DOCUMENT.read_text(encoding="utf-8")
    _DOCUMENT.write_text(_TABLE.sub(lambda _: written, text), encoding="utf-8")
    print(written)
    too_few = [
        name
        for name in _GUARDED
        if _percent(counted[name].branches_run, counted[name].branches) < _LEAST_BRANCHES
    ]
    for name in too_few:
        print(f"{name}: less than {_LEAST_BRANCHES:g} % of the branches are run")
    if too_few:
        return 1
    return 0 if status == _TESTS_FAILED else status


if __name__ == "__main__":
    sys.exit(main())
