"""What ``vigil lint`` costs on many manifests.

::

    python -m benchmarks.lint [--files 1000] [--objects 20] [--runs 3]

Writes files of several objects each, Jobs, AscendJobs, Deployments, StormServices and
InferenceServices with their runtimes in turn, in YAML as people write it. Runs the command on all
of them, and on one, as a process of its own, and prints wall time, CPU and peak memory. Ends with 1
when all take more than 10 s of CPU or 200 MB, or one more than 0.5 s of CPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

_CASES = Path(__file__).parents[1] / "tests" / "vigil" / "lint" / "cases"
_KINDS = (
    "RETRY_VS_BACKOFF",
    "HOST_ARCH",
    "SHARED_PG_WITHOUT_RECOVER_PATH",
    "OME_WHOLE_MACHINE",
    "ELASTIC_POLICY",
    "MIN_AVAILABLE_MISSING",
)
_MOST_SECONDS, _MOST_SECONDS_OF_ONE, _MOST_BYTES = 10.0, 0.5, 200_000_000


class Cost(NamedTuple):
    """What a run took."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    findings: int


def write(folder: Path, files: int, objects: int) -> int:
    """Write the manifests; return how many bytes they have. Every second object has a finding."""
    texts = []
    for name in _KINDS:
        for side in ("right", "wrong"):
            texts += (_CASES / f"{name}.{side}.yaml").read_text().split("---\n")
    endless = cycle(texts)
    total = 0
    for number in range(files):
        text = "---\n".join(islice(endless, objects))
        total += (folder / f"{number:04}.yaml").write_text(text)
    return total


def run(path: Path) -> Cost:
    """Judge what is at ``path``."""
    command = [sys.executable, "-m", "vigil", "lint", "--json", str(path)]
    begin = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        output.seek(0)
        findings = output.read().count(b"\n")
    wall = time.monotonic() - begin
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, findings)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="The cost of vigil lint.")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--objects", type=int, default=20, help="in each file")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    shown = Table(title="vigil lint")
    for heading in ("what", "wall s", "CPU s", "peak MB", "findings"):
        shown.add_column(heading, justify="right")
    is_too_much = False
    with tempfile.TemporaryDirectory() as place:
        size = write(Path(place), arguments.files, arguments.objects)
        named = f"{arguments.files} files of {arguments.objects}, {size / 1e6:.1f} MB"
        for what, path, most in (
            (named, Path(place), _MOST_SECONDS),
            ("one file", Path(place) / "0000.yaml", _MOST_SECONDS_OF_ONE),
        ):
            costs = [run(path) for _ in range(arguments.runs)]
            cost = min(costs, key=lambda one: one.cpu_seconds)
            is_too_much |= cost.cpu_seconds > most or cost.peak_bytes > _MOST_BYTES
            figures = (f"{cost.wall_seconds:.2f}", f"{cost.cpu_seconds:.2f}")
            shown.add_row(what, *figures, f"{cost.peak_bytes / 1e6:.0f}", str(cost.findings))
    Console(width=100).print(shown)
    sys.exit(is_too_much)


if __name__ == "__main__":
    main()
