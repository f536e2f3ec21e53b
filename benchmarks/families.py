"""How soon a fault is shown on each family of cards, and what an idle agent costs there.

::

    python -m benchmarks.families [--profile 310p ...] [--count 30] [--seconds 60]

Starts a real ``vigil agent`` on an emulated server of each profile, with a directory as its store,
and measures: from a fault (and from its recovery) until device-info shows it, at random moments;
memory and processor time over ``--seconds`` idle, as ``benchmarks.footprint`` has them. Where the
driver has no events the agent reads code lists every second, and the budget is a median of 0.6 s
and at most 1.2 s; where it has, 60 ms. A recovery leaves an emulated list 300 ms later, so without
events it may take so much longer. Ends with 1 when a figure misses its budget.

How long ago the last round of lists was decides nearly all of a latency without events. The
median of 30 independent moments would vary by 90 ms from run to run (one standard deviation), which
is three times as much as lies between the median to expect (half a period, 50 ms until an emulated
list shows a fault, and the agent's own) and the budget. So the moments are spread over the period:
one at random in each of ``--count`` equal parts, in random order.

By default all profiles take 20 minutes. Each row is printed when it is there. A profile that takes
twice its time ends the program with 1, and with what it was waiting for.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.footprint import CPU_BUDGET_PERCENT, MEMORY_BUDGET_MIB, Figures, Subject
from dcmi_shim.emulator.control import PROFILES
from dcmi_shim.emulator.scenario import CHIPS
from tests.parts.processes import PartFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CODE = "80E3A201"
"""One that no rule counts: it may come and go as often as it likes."""
_WITHOUT_EVENTS = ("310p", "310", "duo")
_PERIOD_SECONDS = 1.0
_PAUSE_SECONDS = 0.5
_LOOK_SECONDS = 0.002
_LOST_SECONDS = 10.0
_START_SECONDS = 30.0
_MOST_TIMES = 2.0
_LIST_AFTER_RECOVERY_SECONDS = 0.3
_MEDIAN_SECONDS, _LONGEST_SECONDS = 0.6, 1.2
_EVENT_SECONDS = 0.06


@dataclass(frozen=True)
class Family:
    """What was measured on one profile; times in seconds."""

    profile: str
    faults: tuple[float, ...]
    recoveries: tuple[float, ...]
    idle: Figures

    @property
    def is_within_budget(self) -> bool:
        """Whether every figure is."""
        late = 0.0
        median, longest = _EVENT_SECONDS, _EVENT_SECONDS
        if self.profile in _WITHOUT_EVENTS:
            median, longest, late = _MEDIAN_SECONDS, _LONGEST_SECONDS, _LIST_AFTER_RECOVERY_SECONDS
        return (
            self.idle.is_within_budget
            and statistics.median(self.faults) <= median
            and max(self.faults) <= longest
            and statistics.median(self.recoveries) <= median + late
            and max(self.recoveries) <= longest + late
        )


def measured(profile: str, count: int, seconds: float, directory: Path) -> Family:
    """Measure one agent on one server of ``profile``."""
    store = directory / "store"
    chips = CHIPS[profile]
    subject = Subject(directory / "node", chips, ["--store", f"directory:{store}"], profile)
    with contextlib.closing(subject):
        subject.settle()
        idle = subject.measure("directory", "idle", seconds, lambda: time.sleep(0.5))
        faults, recoveries = [], []
        pauses = zip(spread(count), spread(count), strict=True)
        for number, (before_fault, before_recovery) in enumerate(pauses):
            chip = number % chips
            time.sleep(before_fault)
            subject.emulator.occur(chip, _CODE)
            faults.append(_until(lambda: chip in _faulty(store), profile))  # noqa: B023
            time.sleep(before_recovery)
            subject.emulator.recover(chip, _CODE)
            recoveries.append(_until(lambda: chip not in _faulty(store), profile))  # noqa: B023
    return Family(profile, tuple(faults), tuple(recoveries), idle)


def spread(count: int) -> list[float]:
    """Return how long to wait before each change: from when the last one was shown, which is the
    end of a round, one random moment in each of ``count`` equal parts of a period.
    """
    parts = random.sample(range(count), count)
    return [_PAUSE_SECONDS + _PERIOD_SECONDS * (part + random.random()) / count for part in parts]


def usual_seconds(count: int, seconds: float) -> float:
    """Return how long one profile takes: its start, the idle time, and all changes."""
    change = _PAUSE_SECONDS + _PERIOD_SECONDS / 2 + _MEDIAN_SECONDS
    return _START_SECONDS + seconds + count * (2 * change + _LIST_AFTER_RECOVERY_SECONDS)


def _until(happened: Callable[[], bool], profile: str) -> float:
    begun = time.monotonic()
    while not happened():
        if time.monotonic() - begun > _LOST_SECONDS:
            raise PartFailed(f"{profile}: a change is not shown within {_LOST_SECONDS:g} s")
        time.sleep(_LOOK_SECONDS)
    return time.monotonic() - begun


def _faulty(store: Path) -> set[int]:
    """Return the chips with an entry in the fault list."""
    (file,) = (store / "kube-system").glob("mindx-dl-deviceinfo-*.json")
    outer = json.loads(json.loads(file.read_bytes())["data"]["DeviceInfoCfg"])
    (text,) = (
        text for key, text in outer["DeviceInfo"]["DeviceList"].items() if key.endswith("-Fault")
    )
    return {int(entry["npu_name"].rpartition("-")[2]) for entry in json.loads(text)}


def table(rows: Sequence[Family]) -> Table:
    """Return the table of the figures of all profiles."""
    shown = Table(title="fault to device-info, and an idle agent, by profile")
    shown.add_column("profile")
    for heading in ("chips", "fault p50 ms", "max", "recovery p50 ms", "max"):
        shown.add_column(heading, justify="right")
    for heading in (f"PSS MiB of {MEMORY_BUDGET_MIB:g}", f"CPU % of {CPU_BUDGET_PERCENT:g}"):
        shown.add_column(heading, justify="right")
    for row in rows:
        times = [
            f"{1000 * figure:.0f}"
            for values in (row.faults, row.recoveries)
            for figure in (statistics.median(values), max(values))
        ]
        cost = f"{row.idle.pss_mib:.1f}", f"{row.idle.cpu_percent:.2f}"
        shown.add_row(row.profile, str(CHIPS[row.profile]), *times, *cost)
    return shown


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Latency and footprint by family of cards.")
    parser.add_argument("--profile", action="append", choices=PROFILES, help="default: all")
    parser.add_argument("--count", type=int, default=30, help="faults, and as many recoveries")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure idle")
    arguments = parser.parse_args()
    console = Console(width=110)
    usual = usual_seconds(arguments.count, arguments.seconds)
    rows = []
    with tempfile.TemporaryDirectory(prefix="npu-vigil-") as directory:
        for profile in arguments.profile or PROFILES:
            print(f"{profile}: this takes {usual:.0f} s", flush=True)
            # Not an exception: a call into the emulator's library would not be interrupted by it.
            faulthandler.dump_traceback_later(_MOST_TIMES * usual, exit=True)
            place = Path(directory) / profile
            place.mkdir()
            rows.append(measured(profile, arguments.count, arguments.seconds, place))
            console.print(table(rows[-1:]))
    faulthandler.cancel_dump_traceback_later()
    console.print(table(rows))
    sys.exit(not all(row.is_within_budget for row in rows))


if __name__ == "__main__":
    main()
