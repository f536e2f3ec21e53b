"""Nonsense for every parser of faults, configurations, tools, stores and the journal.

::

    python -m benchmarks.fuzz [--count 2000] [--target NAME ...] [--seed N]

Mutates good inputs from recordings of the real programs. Each one may only be refused with an
error of the tree of ``contract/errors.py``, takes at most 50 ms, and leaves the state as it was.
What fails is printed as small as it could be made; ends with 1 then.
"""

from __future__ import annotations

import argparse
import logging
import sys

from rich.console import Console
from rich.table import Table

from benchmarks.fuzz.running import Outcome, fuzz
from benchmarks.fuzz.targets import TARGETS


def table(outcomes: list[Outcome]) -> Table:
    """Return the table of the outcomes."""
    shown = Table(title="nonsense for parsers")
    shown.add_column("target")
    for heading in ("inputs", "refused", "per second", "slowest ms", "failures"):
        shown.add_column(heading, justify="right")
    for one in outcomes:
        shown.add_row(
            one.target,
            *(f"{one.count:,}", f"{one.refused:,}", f"{one.count / (one.seconds or 1):,.0f}"),
            *(f"{one.slowest_seconds * 1000:.1f}", str(len(one.failures))),
        )
    return shown


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Nonsense for every parser.")
    parser.add_argument("--count", type=int, default=2_000, help="inputs of each target")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="default: all")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other inputs")
    arguments = parser.parse_args()
    logging.disable()
    outcomes = []
    for name in arguments.target or TARGETS:
        outcomes.append(fuzz(TARGETS[name](), arguments.count, arguments.seed))
        for failure in outcomes[-1].failures:
            print(f"{name}: {failure.what}\n  {failure.text!r}", flush=True)
    console = Console(width=100)
    console.print(table(outcomes))
    console.print(f"{sum(one.count for one in outcomes):,} inputs, seed {arguments.seed}")
    sys.exit(any(one.failures for one in outcomes))


if __name__ == "__main__":
    main()
