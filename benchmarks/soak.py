"""Lets an agent and its aggregators run for long, and shows whether anything grows.

::

    python -m benchmarks.soak [--minutes N] [--world kubernetes|mqtt|directory]
    python -m benchmarks.soak --virtual DAYS

All periods are the shipped ones. Prints a line for each part of the time, and a summary as JSON.
Exit status: 0 nothing is above its limit, 1 something is, 2 wrong options.

Without ``--virtual`` real parts run in real time (``benchmarks.soak_hours``), by default for 60
minutes on ``kubernetes``. A line is for each ten minutes. An error is a fault that was not shown, a
line without any, a gap that ``vigil prove`` reports, or a journal above 64 MiB. Growth after the
first line is another one: memory, descriptors, threads, p99 of publication. Below 20 minutes it is
not judged.

In virtual time a fault of a chip begins each minute and ends half a minute later. In the first
tenth of the time four times as many fill what keeps a fixed number, as event streams do. A line is
for each tenth: rows, files, tasks, and objects by type. The limit is growth from the first tenth to
the last one. Rows of a journal and of a history are kept for a month by design, so they are shown
and not judged.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.chaos.plan import CHIPS, CODES, NODES
from benchmarks.chaos.simulated.processes import fix_order_of_sets
from benchmarks.chaos.simulated.site import MEMORY, SimulatedSite, run_site
from benchmarks.soak_hours import run_hours

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SAMPLES = 10
MAX_GROWTH = 1.02
_SLACK = 50
"""So many more of a type are no growth: what is under way at the moment of the count."""
_CURSORS = 200
"""A connection of SQLite keeps so many weak references to cursors that are gone (CPython 3.11)."""
_FAULT_PERIOD_SECONDS = 60.0
_FILLING_FACTOR = 4
"""So many more faults in the first tenth. An event stream keeps 10,000 events; at a fault a minute
it is full after some four days, which is behind the first tenth of a month.
"""
_COLLECT_SECONDS = 600.0
_EVENT_SECONDS = 3600.0
"""An API server keeps an Event for an hour."""
_DAY_SECONDS = 86_400.0
_MINUTES = 60.0
_NUMBER = re.compile(r"\d+")


class Count(msgspec.Struct, frozen=True):
    """What there was at a time (days)."""

    days: float
    rows: dict[str, int]
    """By database and table."""
    file_bytes: int
    files: int
    tasks: dict[str, int]
    """By name without numbers."""
    objects: dict[str, int]
    """By type."""


def grown(first: Count, last: Count) -> list[str]:
    """Return what there is too much of at the end, with both numbers."""
    amounts = [("files", "all", first.files, last.files)]
    amounts += [("tasks", name, first.tasks.get(name, 0), n) for name, n in last.tasks.items()]
    databases = {name.rpartition(" ")[0] for name in last.rows}
    slack = {"ReferenceType": _SLACK + _CURSORS * len(databases)}
    amounts += [
        ("objects", name, first.objects.get(name, 0) + slack.get(name, _SLACK), n)
        for name, n in last.objects.items()
    ]
    return [
        f"{kind} {name}: more than {before}, {after}"
        for kind, name, before, after in sorted(amounts)
        if after > before * MAX_GROWTH
    ]


def count(site: SimulatedSite) -> Count:
    """Count everything now."""
    gc.collect()
    directories = [program.state_dir for program in site.programs.values()]
    files = [file for path in directories for file in path.rglob("*") if file.is_file()]
    return Count(
        round(site.loop.time() / _DAY_SECONDS, 3),
        dict(_rows(files)),
        sum(file.stat().st_size for file in files),
        len(files),
        dict(Counter(_NUMBER.sub("N", task.get_name()) for task in asyncio.all_tasks())),
        dict(Counter(type(item).__qualname__ for item in gc.get_objects())),
    )


def _rows(files: Iterable[Path]) -> Iterator[tuple[str, int]]:
    for file in files:
        if file.suffix != ".sqlite":
            continue
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (table,) in tables.fetchall():
                number = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                yield f"{file.parent.parent.name} {file.name} {table}", number


class Soak:
    """A run of ``days``; ``counts`` has one count for each tenth."""

    def __init__(self, days: float) -> None:
        self.counts: list[Count] = []
        self._seconds = days * _DAY_SECONDS
        self._events: dict[tuple[str, tuple[str, str]], float] = {}

    def play_in(self, directory: Path) -> None:
        """Run one agent and two aggregators until the end; add to ``counts``."""
        run_site(lambda: SimulatedSite(directory, NODES[:1], periods="shipped"), self._run, seed=1)

    async def _run(self, site: SimulatedSite) -> None:
        # What the modules made stays, and each collection would visit it.
        gc.freeze()
        for program in site.programs.values():
            program.start()
        tasks = [
            asyncio.create_task(self._cause_faults(site), name="faults"),
            asyncio.create_task(self._collect(site), name="collect"),
        ]
        for number in range(1, SAMPLES + 1):
            await asyncio.sleep(number * self._seconds / SAMPLES - site.loop.time())
            self.counts.append(count(site))
            _show(self.counts[-1])
        for task in tasks:
            task.cancel()
        await site.close()
        if site.episode.errors:
            cause = next(iter(site.episode.crashes), None)
            raise RuntimeError(f"programs had errors: {site.episode.errors}") from cause

    async def _cause_faults(self, site: SimulatedSite) -> None:
        draw = random.Random(1)
        while True:
            is_filling = site.loop.time() < self._seconds / SAMPLES
            period = _FAULT_PERIOD_SECONDS / (_FILLING_FACTOR if is_filling else 1)
            await asyncio.sleep(period / 2)
            hardware = site.nodes[draw.choice([*site.nodes])].emulator
            chip, code = draw.randrange(CHIPS), draw.choice(CODES)
            hardware.occur(chip, code)
            await asyncio.sleep(period / 2)
            hardware.recover(chip, code)

    async def _collect(self, site: SimulatedSite) -> None:
        """Drop what this process alone would keep for ever: garbage, records of the store."""
        while True:
            await asyncio.sleep(_COLLECT_SECONDS)
            gc.collect()
            site.api.compact()
            now = site.loop.time()
            for resource, objects in site.api.objects.items():
                if resource.rpartition("/")[2] == "events":
                    for key in [*objects]:
                        if now - self._events.setdefault((resource, key), now) > _EVENT_SECONDS:
                            del objects[key], self._events[resource, key]


def _show(counted: Count) -> None:
    print(
        f"day {counted.days}: {sum(counted.rows.values())} rows, {counted.files} files of "
        f"{counted.file_bytes >> 10} KiB, {sum(counted.tasks.values())} tasks, "
        f"{sum(counted.objects.values())} objects, {time.process_time():.0f} processor seconds",
        flush=True,
    )


def main() -> int:
    """Run for as long as is asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--virtual", type=float, metavar="DAYS")
    parser.add_argument("--minutes", type=float, help="of real time, 60 by default")
    parser.add_argument(
        "--world",
        dest="platform",
        choices=("kubernetes", "mqtt", "directory"),
        help="in real time, kubernetes by default",
    )
    given = parser.parse_args()
    if given.virtual is None:
        minutes = _MINUTES if given.minutes is None else given.minutes
        return run_hours(given.platform or "kubernetes", minutes)
    if (given.minutes, given.platform) != (None, None):
        parser.error("--minutes and --world are for real time, without --virtual")
    fix_order_of_sets()
    soak = Soak(given.virtual)
    with tempfile.TemporaryDirectory(prefix="vigil-soak-", dir=MEMORY) as directory:
        soak.play_in(Path(directory))
    first, last = soak.counts[0], soak.counts[-1]
    problems = grown(first, last)
    print(
        json.dumps({"grown": problems, "rows": {"first": first.rows, "last": last.rows}}, indent=1)
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
