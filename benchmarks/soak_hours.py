"""Lets an agent of 16 chips and its aggregators run for minutes or hours of real time.

``python -m benchmarks.soak`` without ``--virtual`` runs it. All periods are the shipped ones. Each
20 s a burst of 20 faults begins, and each fault ends 5 to 15 s later. In each ten minutes the store
is away for 60 s. A row of the table is for each ten minutes: memory, descriptors and threads of
each program, size of the journal, and how long faults took from the emulator to device-info. At the
end ``vigil prove`` judges the journal.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import json
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.chaos.plan import CODES, NODES, aggregators_of
from benchmarks.chaos.site import open_platform
from benchmarks.footprint import family, pss_mib
from benchmarks.report import quantile_ms
from dcmi_shim.emulator.install import install
from tests.aggregator.daemon import Daemon
from tests.end_to_end.node import Node, shown
from tests.parts.verbs import run_verb

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.chaos.stage import StorePlatform

CHIPS = 16
ROW_SECONDS = 600.0
OUTAGE_SECONDS = 60.0
MAX_MIB_PER_HOUR = 1.0
MAX_JOURNAL_MIB = 64.0
MAX_P99_RATIO = 1.5
_BURST_SECONDS = 20.0
_BURST_FAULTS = 20
_FAULT_SECONDS = 5.0, 15.0
_LOOK_SECONDS = 0.05
_BEHIND_OUTAGE_SECONDS = 15.0
"""The backoff of a store's client ends by then."""
_SETTLE_SECONDS = 30.0
_COUNTS = 3


class ProgramRow(msgspec.Struct, frozen=True):
    """What a program with its children takes."""

    memory_mib: float
    descriptors: int
    threads: int


class Row(msgspec.Struct, frozen=True):
    """Ten minutes: what each program takes at their end, and the faults outside of outages."""

    minutes: float
    programs: dict[str, ProgramRow]
    journal_mib: float
    faults: int
    not_shown: int
    p50_ms: float | None
    """``None``: no fault was shown."""
    p99_ms: float | None


def exceeded(rows: list[Row]) -> list[str]:
    """Return what is more than it may be; growth is that of the rows behind the first one."""
    first, last = rows[0], rows[-1]
    hours = (last.minutes - first.minutes) / 60
    problems = [
        f"{row.minutes:g} min: {row.not_shown} faults were not shown"
        for row in rows
        if row.not_shown
    ]
    problems += [f"{row.minutes:g} min: no fault was shown" for row in rows if not row.faults]
    if last.journal_mib > MAX_JOURNAL_MIB:
        problems.append(f"journal: {last.journal_mib:.1f} MiB")
    if hours * 3600 < ROW_SECONDS:
        return problems
    before_ms, after_ms = first.p99_ms, last.p99_ms
    if before_ms is not None and after_ms is not None and after_ms > before_ms * MAX_P99_RATIO:
        problems.append(f"publication p99: {before_ms:.0f} ms, then {after_ms:.0f} ms")
    for name, program in last.programs.items():
        grown = program.memory_mib - first.programs[name].memory_mib
        if grown > MAX_MIB_PER_HOUR * hours:
            problems.append(f"{name}: {grown:.1f} MiB more in {hours:.2f} h")
        before = [row.programs[name] for row in rows[:-1]]
        # Some connections come and go, so only what no row had before is growth.
        descriptors = max(program.descriptors for program in before)
        if program.descriptors > descriptors:
            problems.append(f"{name}: {descriptors} descriptors, then {program.descriptors}")
        threads = max(program.threads for program in before)
        if program.threads > threads:
            problems.append(f"{name}: {threads} threads, then {program.threads}")
    return problems


class RealSoak:
    """One run on a store; ``rows`` has one row for each ten minutes."""

    def __init__(self, directory: Path, store: StorePlatform, aggregators: tuple[str, ...]) -> None:
        install(directory / "driver", directory / "emulator", "a3")
        self.rows: list[Row] = []
        self.node = Node(directory / NODES[0], directory, store.place, NODES[0], "a3")
        self._aggregators = {
            name: Daemon(directory / name, *store.place.options) for name in aggregators
        }
        self._store = store
        self._draw = random.Random(1)
        self._steps: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._holding: set[tuple[int, str]] = set()
        self._waiting: dict[tuple[int, str], float] = {}
        """When each fault began that device-info has not shown."""
        self._seconds: list[float] = []
        self._not_shown = 0
        self._away_until = 0.0

    def run(self, seconds: float) -> None:
        """Start everything, and go on for so long."""
        self.node.start()
        for aggregator in self._aggregators.values():
            aggregator.spawn()
        self.node.until(lambda now: len(now.free) == CHIPS, "all chips are free")
        began = time.monotonic()
        end = began + seconds
        self._at(began, lambda: self._burst(end))
        for number in range(int(seconds // ROW_SECONDS) + 1):
            middle = began + (number + 0.5) * ROW_SECONDS
            if middle + OUTAGE_SECONDS + _SETTLE_SECONDS < end:
                self._at(middle, self._take)
                self._at(middle + OUTAGE_SECONDS, self._give)
        next_row = min(began + ROW_SECONDS, end)
        while time.monotonic() < end:
            self._do_due()
            self._look()
            if time.monotonic() >= next_row:
                self._add_row((next_row - began) / 60)
                next_row = min(next_row + ROW_SECONDS, end)
            time.sleep(_LOOK_SECONDS)
        if len(self.rows) * ROW_SECONDS < seconds:
            self._add_row(seconds / 60)

    def close(self) -> None:
        """End everything."""
        for aggregator in self._aggregators.values():
            aggregator.stop()
        self.node.close()

    def _at(self, at: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._steps, (at, next(self._numbers), work))

    def _do_due(self) -> None:
        while self._steps and self._steps[0][0] <= time.monotonic():
            heapq.heappop(self._steps)[2]()

    def _burst(self, end: float) -> None:
        now = time.monotonic()
        if now + _SETTLE_SECONDS > end:
            return
        self._at(now + _BURST_SECONDS, lambda: self._burst(end))
        for _ in range(_BURST_FAULTS):
            fault = self._draw.randrange(CHIPS), self._draw.choice(CODES)
            if fault not in self._holding:
                self._holding.add(fault)
                if now > self._away_until + _BEHIND_OUTAGE_SECONDS:
                    self._waiting[fault] = time.monotonic()
                self.node.emulator.occur(*fault)
                until = now + self._draw.uniform(*_FAULT_SECONDS)
                self._at(until, functools.partial(self._recover, *fault))

    def _recover(self, chip: int, code: str) -> None:
        self.node.emulator.recover(chip, code)
        self._holding.discard((chip, code))
        self._not_shown += self._waiting.pop((chip, code), None) is not None

    def _take(self) -> None:
        # Until it is back the end of the outage is not fixed.
        self._away_until = float("inf")
        self._waiting.clear()
        self._store.take()

    def _give(self) -> None:
        self._store.give()
        self._away_until = time.monotonic()

    def _look(self) -> None:
        if not self._waiting:
            return
        data = self._store.place.read(self.node.document)
        if data is None:
            return
        now, faults = time.monotonic(), shown(data).faults
        for (chip, code), began in [*self._waiting.items()]:
            if code in faults.get(f"Ascend910-{chip}", ()):
                del self._waiting[chip, code]
                self._seconds.append(now - began)

    def _add_row(self, minutes: float) -> None:
        pids = {"agent": self.node.process.pid}
        pids |= {name: daemon.process.pid for name, daemon in self._aggregators.items()}
        files = self.node.state_dir.glob("journal.sqlite*")
        seconds = self._seconds
        row = Row(
            round(minutes, 1),
            {name: _program_row(pid) for name, pid in pids.items()},
            sum(file.stat().st_size for file in files) / (1 << 20),
            len(seconds),
            self._not_shown,
            *(quantile_ms(seconds, rank) if seconds else None for rank in (0.5, 0.99)),
        )
        self.rows.append(row)
        self._seconds, self._not_shown = [], 0
        programs = "; ".join(
            f"{name} {item.memory_mib:.1f} MiB, {item.descriptors} descriptors, "
            f"{item.threads} threads"
            for name, item in row.programs.items()
        )
        print(
            f"{row.minutes:g} min: {programs}; journal {row.journal_mib:.1f} MiB; {row.faults} "
            f"faults, {row.not_shown} not shown, p50 {_ms(row.p50_ms)}, p99 {_ms(row.p99_ms)}",
            flush=True,
        )


def _ms(duration_ms: float | None) -> str:
    return "unknown" if duration_ms is None else f"{duration_ms:.0f} ms"


def _program_row(pid: int) -> ProgramRow:
    # A request that is under way has a descriptor, too.
    counts = []
    for _ in range(_COUNTS):
        counts.append(len([*Path(f"/proc/{pid}/fd").iterdir()]))
        time.sleep(_LOOK_SECONDS)
    threads = len([*Path(f"/proc/{pid}/task").iterdir()])
    return ProgramRow(round(pss_mib(family(pid)), 1), min(counts), threads)


def run_hours(platform: str, minutes: float) -> int:
    """Run for so long; print the table and what is wrong; return the exit status."""
    with (
        tempfile.TemporaryDirectory(prefix="vigil-soak-") as folder,
        contextlib.ExitStack() as stack,
    ):
        directory = Path(folder)
        store = open_platform(platform, directory, stack)
        soak = RealSoak(directory, store, aggregators_of(platform))
        stack.callback(soak.close)
        soak.run(minutes * 60)
        _, output, _ = run_verb("prove", "--json", "--state-dir", str(soak.node.state_dir))
    proof = json.loads(output)
    problems = exceeded(soak.rows)
    problems += [f"prove: {number} {name}" for name, number in proof["gaps_by_name"].items()]
    print(json.dumps({"exceeded": problems, "proved": proof["proved"]}, indent=1))
    return 1 if problems else 0
