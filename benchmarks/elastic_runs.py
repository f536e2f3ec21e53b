"""Plays elastic training with faults, by seeds, and prints which seeds found something wrong.

::

    python -m benchmarks.elastic_runs [FIRST [COUNT]]
"""

from __future__ import annotations

import logging
import sys
import time

from tests.elastic.seeded_run import run

_COUNT = 500


def main() -> int:
    """Play the runs; 1 where one of them went wrong."""
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    count = int(sys.argv[2]) if len(sys.argv) > 2 else _COUNT
    logging.disable(logging.WARNING)  # Lost answers are part of each run.
    began = time.monotonic()
    wrong, writes, starts, ends, forced = 0, 0, 0, 0, 0
    for seed in range(first, first + count):
        try:
            bench = run(seed)
        except AssertionError as error:
            wrong += 1
            print(error)
        else:
            writes += bench.writes
            starts += bench.starts
            ends += bench.ends
            forced += bench.forced
    seconds = time.monotonic() - began
    made = f"{writes} writes, {starts} starts, {ends} Commands, {forced} forced deletions"
    print(f"{count} runs, {wrong} wrong; {made}; {seconds:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
