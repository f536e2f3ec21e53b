"""Inputs that reach new code, found by atheris from the recordings on, for every parser.

::

    python -m benchmarks.fuzz.guided [--seconds 480] [--target NAME ...] [--keep]

Parsers that strangers reach have ``--seconds``, the others three eighths of it. States how many
edges of the parser's modules were reached, and how many of these in the last third of the time.
Corpora grow in ``dist/fuzz``; ``--keep`` selects the kept ones of the tests from them. Ends with 1
where an input failed.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.fuzz import corpora
from benchmarks.fuzz.binary import encoding_of
from benchmarks.fuzz.running import played
from benchmarks.fuzz.targets import TARGETS

STRANGERS = (
    *("http-head", "page-parameters", "grpc-request", "mqtt-document", "mqtt-beat"),
    *("device-info", "node-info", "public-fault-document", "cluster-pods", "history-batch"),
)
"""What a client without rights, a tenant or a node that was taken over can send."""

_SHARE_OF_OTHERS = 3 / 8
_MIN_INPUT_BYTES = 4096
_INPUT_TIMEOUT_SECONDS = 20
_MEMORY_MB = 1536
_SHOWN_LINES = 40
_DIRECTORY = Path("dist/fuzz")
_COUNTERS = re.compile(r"edges: (\d+)")
_PROGRESS = re.compile(r"^#(\d+)\s.*?cov: (\d+) ")


@dataclass
class Run:
    """What came of one target. Edges by seconds since the first input."""

    target: str
    inputs: int = 0
    edges: int = 0
    reached: dict[float, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def last(self) -> int:
        """Return the edges at the end."""
        return max(self.reached.values(), default=0)

    def new_in_last_third(self, seconds: float) -> int:
        """Return how many edges were reached in the last third of ``seconds``."""
        before = [edges for at, edges in self.reached.items() if at <= seconds * 2 / 3]
        return self.last() - max(before, default=0)


def _command(name: str, seconds: float) -> list[str]:
    """Return the command that fuzzes a target, behind its good and kept inputs were written."""
    directory = _DIRECTORY / name
    directory.mkdir(parents=True, exist_ok=True)
    longest = 0
    for text in (*TARGETS[name]().seeds, *corpora.kept(name)):
        data = text.encode(encoding_of(name), "replace")
        longest = max(longest, len(data))
        (directory / sha256(data).hexdigest()[:40]).write_bytes(data)
    options = {
        "max_total_time": max(1, round(seconds)),
        "max_len": max(_MIN_INPUT_BYTES, 2 * longest),
        "timeout": _INPUT_TIMEOUT_SECONDS,
        "rss_limit_mb": _MEMORY_MB,
        "artifact_prefix": f"{_DIRECTORY}/{name}-",
    }
    module = [sys.executable, "-m", "benchmarks.fuzz.instrumented", name, str(directory)]
    return [*module, *(f"-{option}={value}" for option, value in options.items())]


def _guided(name: str, command: list[str]) -> Run:
    """Run ``command``, a process for the target, and read its progress."""
    run = Run(name)
    lines: deque[str] = deque(maxlen=_SHOWN_LINES)
    begun = 0.0
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if (counters := _COUNTERS.search(line)) is not None:
                run.edges = int(counters[1])
            if (progress := _PROGRESS.match(line)) is not None:
                begun = begun or time.monotonic()
                run.inputs = int(progress[1])
                run.reached[time.monotonic() - begun] = int(progress[2])
            else:
                lines.append(line)
    if process.returncode:
        run.failures.append("".join(lines))
    return run


def _grown(name: str) -> list[str]:
    """Return the inputs that atheris has kept."""
    files = sorted((_DIRECTORY / name).iterdir())
    return [file.read_bytes().decode(encoding_of(name), "replace") for file in files]


def table(runs: list[tuple[Run, float]]) -> Table:
    """Return the table of the runs, each with its seconds."""
    shown = Table(title="inputs guided by coverage")
    shown.add_column("target")
    for heading in ("seconds", "inputs", "edges", "of", "share", "in the last third", "failures"):
        shown.add_column(heading, justify="right")
    for run, seconds in runs:
        share = f"{100 * run.last() / run.edges:.0f} %" if run.edges else "-"
        shown.add_row(
            *(run.target, f"{seconds:.0f}", f"{run.inputs:,}", f"{run.last():,}"),
            *(f"{run.edges:,}", share, str(run.new_in_last_third(seconds))),
            str(len(run.failures)),
        )
    return shown


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Inputs guided by coverage.")
    parser.add_argument("--seconds", type=float, default=480.0, help="of a parser for strangers")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets at once")
    parser.add_argument("--keep", action="store_true", help="select the corpora of the tests")
    arguments = parser.parse_args()
    logging.disable()
    names = arguments.target or list(TARGETS)
    seconds = [arguments.seconds * (1 if n in STRANGERS else _SHARE_OF_OTHERS) for n in names]
    commands = list(map(_command, names, seconds))
    runs = []
    with ThreadPoolExecutor(arguments.jobs) as threads:
        for run in threads.map(_guided, names, commands):
            runs.append(run)
            target, grown = TARGETS[run.target](), _grown(run.target)
            # Here, because an instrumented parser says nothing about its duration.
            outcome = played(target, grown)
            run.failures += [f"{failure.what}: {failure.text!r}" for failure in outcome.failures]
            for text in run.failures:
                print(f"{run.target}: {text}", flush=True)
            if arguments.keep and not run.failures:
                corpora.keep(target, grown)
    Console(width=110).print(table(list(zip(runs, seconds, strict=True))))
    sys.exit(any(run.failures for run in runs))


if __name__ == "__main__":
    main()
