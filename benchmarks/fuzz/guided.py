"""Inputs that reach new code, found by atheris from the recordings on, for every parser.

::

    python -m benchmarks.fuzz.guided [--seconds 480] [--target NAME ...] [--resume] [--keep]

Parsers that strangers reach come first and have ``--seconds`` of a processor, the others three
eighths of it. States how many edges of the parser's modules were reached, and how many of these in
the last third of the time. Corpora and results are in ``dist/fuzz``. ``--resume`` runs only targets
without a result of this or a longer time, or whose files have changed since. ``--keep`` selects the
kept corpora of the tests. Ends with 1 where an input failed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import subprocess
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
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
_INPUT_TIMEOUT_SECONDS = 120
"""Ends an input that hangs. A busy machine may take this long for a slow one."""

_MEMORY_MB = 1536
_SHOWN_LINES = 40
_DIRECTORY = Path("dist/fuzz")
_FILE = re.compile(r"^file: (.+)$")
_COUNTERS = re.compile(r"^edges: (\d+)$")
_SPENT = re.compile(r"^spent: ([\d.]+) s, inputs: (\d+)$")
_PROGRESS = re.compile(r"^#\d+\s.*?cov: (\d+) ")


@dataclass
class Run:
    """What came of one target in ``seconds`` of a processor, as it is kept."""

    target: str
    seconds: float
    inputs: int = 0
    edges: int = 0
    reached: int = 0
    reached_before_last_third: int = 0
    failures: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """The digest of each file of the parser."""

    @property
    def path(self) -> Path:
        """Return the file of the result."""
        return _DIRECTORY / f"{self.target}.json"


def file_digest(file: str) -> str:
    """Return the digest of a file, as a result keeps it; ``none`` where there is no file."""
    path = Path(file)
    return sha256(path.read_bytes()).hexdigest() if path.exists() else "none"


def kept_result(wanted: Run) -> Run | None:
    """Return the kept result of at least as much time, with its inputs, of the same parser.

    A result with a failure does not count.
    """
    if not wanted.path.exists() or not (_DIRECTORY / wanted.target).is_dir():
        return None
    run = Run(**json.loads(wanted.path.read_text(encoding="utf-8")))
    same = all(file_digest(file) == digest for file, digest in run.files.items())
    return run if same and run.seconds >= wanted.seconds and not run.failures else None


def _command(name: str, seconds: float) -> list[str]:
    """Write the good and kept inputs of a target; return the command that fuzzes it."""
    directory = _DIRECTORY / name
    directory.mkdir(parents=True, exist_ok=True)
    longest = 0
    for text in (*TARGETS[name]().seeds, *corpora.kept(name)):
        data = text.encode(encoding_of(name), "replace")
        longest = max(longest, len(data))
        (directory / sha256(data).hexdigest()[:40]).write_bytes(data)
    options = {
        "max_len": max(_MIN_INPUT_BYTES, 2 * longest),
        "timeout": _INPUT_TIMEOUT_SECONDS,
        "rss_limit_mb": _MEMORY_MB,
        "artifact_prefix": f"{_DIRECTORY}/{name}-",
    }
    module = [sys.executable, "-m", "benchmarks.fuzz.instrumented", name, str(seconds)]
    return [*module, str(directory), *(f"-{option}={value}" for option, value in options.items())]


def _guided(run: Run, command: list[str]) -> Run:
    """Fuzz the target by ``command``, read its progress and return the run."""
    lines: deque[str] = deque(maxlen=_SHOWN_LINES)
    spent = 0.0
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if (file := _FILE.match(line)) is not None:
                run.files[file[1]] = file_digest(file[1])
            elif (counters := _COUNTERS.match(line)) is not None:
                run.edges = int(counters[1])
            elif (progress := _SPENT.match(line)) is not None:
                spent, run.inputs = float(progress[1]), int(progress[2])
            elif (progress := _PROGRESS.match(line)) is not None:
                run.reached = int(progress[1])
                if spent <= run.seconds * 2 / 3:
                    run.reached_before_last_third = run.reached
            else:
                lines.append(line)
    if process.returncode:
        run.failures.append("".join(lines))
    return run


def _judge(run: Run) -> None:
    """Feed what has grown without atheris, and keep the result.

    The duration of an instrumented parser is not that of the product.
    """
    outcome = played(TARGETS[run.target](), _grown(run.target))
    run.failures += [f"{failure.what}: {failure.text!r}" for failure in outcome.failures]
    run.path.write_text(json.dumps(asdict(run), indent=1), encoding="utf-8")


def _grown(name: str) -> list[str]:
    """Return the inputs that atheris has kept."""
    files = sorted((_DIRECTORY / name).iterdir())
    return [file.read_bytes().decode(encoding_of(name), "replace") for file in files]


def table(runs: list[Run]) -> Table:
    """Return the table of the runs."""
    shown = Table(title="inputs guided by coverage")
    shown.add_column("target")
    for heading in ("seconds", "inputs", "edges", "of", "share", "in the last third", "failures"):
        shown.add_column(heading, justify="right")
    for run in runs:
        share = f"{100 * run.reached / run.edges:.0f} %" if run.edges else "-"
        shown.add_row(
            *(run.target, f"{run.seconds:.0f}", f"{run.inputs:,}", f"{run.reached:,}"),
            *(f"{run.edges:,}", share, str(run.reached - run.reached_before_last_third)),
            str(len(run.failures)),
        )
    return shown


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Inputs guided by coverage.")
    parser.add_argument(
        "--seconds", type=float, default=480.0, help="of a processor, of a parser for strangers"
    )
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets at once")
    parser.add_argument("--resume", action="store_true", help="only targets that are not done")
    parser.add_argument("--keep", action="store_true", help="select the corpora of the tests")
    arguments = parser.parse_args()
    logging.disable()
    names = sorted(arguments.target or TARGETS, key=lambda name: name not in STRANGERS)
    runs = []
    for name in names:
        share = 1 if name in STRANGERS else _SHARE_OF_OTHERS
        runs.append(Run(name, arguments.seconds * share))
    done = {run.target: kept for run in runs if arguments.resume and (kept := kept_result(run))}
    wanted = [run for run in runs if run.target not in done]
    # Here, because some targets share an event loop.
    commands = [_command(run.target, run.seconds) for run in wanted]
    with ThreadPoolExecutor(arguments.jobs) as threads:
        pairs = zip(wanted, commands, strict=True)
        futures = [threads.submit(_guided, run, command) for run, command in pairs]
        # Each result is kept as soon as it is there, or an end of the run would lose it.
        for future in as_completed(futures):
            run = future.result()
            _judge(run)
            for text in run.failures:
                print(f"{run.target}: {text}", flush=True)
    runs = [done.get(run.target, run) for run in runs]
    for run in runs:
        if arguments.keep and not run.failures:
            corpora.keep(TARGETS[run.target](), _grown(run.target))
    Console(width=110).print(table(runs))
    sys.exit(any(run.failures for run in runs))


if __name__ == "__main__":
    main()
