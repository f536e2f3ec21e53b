"""What the policy costs: observations that one process judges in a second.

::

    python -m benchmarks.policy [--runs 5] [--batches 300]

A storm on 16 chips in virtual time, in batches of 100, with the tables, the frequency and the
duration rules of this package: faults in and out of the tables that come and go, duplicates,
one-off events, audits that find what no event reported (PRESENT) or miss what one did (ABSENT). A
batch comes every 100 ms and an acknowledgement every second. The journal is left out; the question
behind every batch, when the policy is to be called again, is in.

Every run is the same storm and ends in quiet, so a state that is larger behind a run than behind
the one before has grown. The figure is the median of the runs, in processor time, because other
processes are not a cost of the policy. Ends with 1 when it is below the budget or the state grows.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from agent.policy.state import CHIP_SOURCE, Acknowledged, ChipState, PolicyState
from agent.policy.step import next_deadline_ms, step
from contract.codes.catalogue import shipped
from contract.codes.levels import Severity
from contract.names import device_info_name
from contract.observation import Assertion, Observation, SourceAnswered, chip_subject

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from contract.codes.catalogue import Catalogue

BUDGET_PER_SECOND = 100_000

_NODE = "node"
_CHIPS = 16
_BATCH = 100
_BATCH_MS = 100
_BATCHES_PER_ACKNOWLEDGEMENT = 10
_QUIET_MS = 600_000
_BEGIN_MS = 1_700_000_000_000
_ONE_OFF = 0.04
_DUPLICATE = 0.12
_MISSED_BY_EVENTS = 0.1
_FOUND_BY_AUDITS = 0.1

# A code of each level, codes of the frequency rules (80E01801, 80CF8008, 80E18005), those of links,
# one of them with a duration rule, and two that no table has, one critical and one minor.
_CODES = (
    *("80E01801", "80E3A201", "80818C00", "8118043C", "40F84E00", "41AE4E01", "80E18402"),
    *("80BB8003", "80818C06", "80818200", "80CF8008", "80E18005", "81078603"),
    *("81078607", "80ABCDE1", "80ABCDE2"),
)
_ONE_OFF_CODES = ("80F78000", "80818201", "80ABCDE3")
_SEVERITY = {"80ABCDE1": Severity.CRITICAL, "80ABCDE2": Severity.MINOR}


@dataclass(frozen=True)
class Run:
    """One storm: how much of it, how long it took in seconds, and what it left in the state."""

    observations: int
    changes: int
    seconds: float
    entries: int

    @property
    def per_second(self) -> float:
        """Observations per second of processor time."""
        return self.observations / self.seconds


@dataclass(frozen=True)
class Figures:
    """All runs, in their order."""

    runs: Sequence[Run]

    @property
    def per_second(self) -> float:
        """The median run."""
        return statistics.median(run.per_second for run in self.runs)

    @property
    def grows(self) -> bool:
        """Whether a storm that came before leaves more behind when it comes again."""
        return any(run.entries != self.runs[0].entries for run in self.runs)

    @property
    def is_within_budget(self) -> bool:
        """Whether the policy may cost so much."""
        return self.per_second >= BUDGET_PER_SECOND and not self.grows


def storm(batches: int, begin_ms: int) -> Iterator[list[Observation]]:
    """Yield the batches of one run. They are the same at every ``begin_ms``, and all is over at the
    end.
    """
    rng = Random(0)
    held: list[set[str]] = [set() for _ in range(_CHIPS)]
    serial = 0

    def observation(chip: int, code: str, assertion: Assertion, at_ms: int) -> Observation:
        nonlocal serial
        if assertion in (Assertion.PRESENT, Assertion.ABSENT):
            return Observation(CHIP_SOURCE, chip_subject(chip), code, assertion, at_ms)
        serial += 1
        severity = _SEVERITY.get(code, Severity.MAJOR)
        return Observation(
            CHIP_SOURCE, chip_subject(chip), code, assertion, at_ms, severity, at_ms - 1, serial
        )

    def one(at_ms: int) -> Observation:
        chip, chance = rng.randrange(_CHIPS), rng.random()
        if chance < _ONE_OFF:
            return observation(chip, rng.choice(_ONE_OFF_CODES), Assertion.ONCE, at_ms)
        code = rng.choice(_CODES)
        if code not in held[chip]:
            held[chip].add(code)
            found = rng.random() < _MISSED_BY_EVENTS
            return observation(chip, code, Assertion.PRESENT if found else Assertion.OCCUR, at_ms)
        if chance < _ONE_OFF + _DUPLICATE:
            return observation(chip, code, Assertion.OCCUR, at_ms)
        held[chip].remove(code)
        missed = rng.random() < _FOUND_BY_AUDITS
        return observation(chip, code, Assertion.ABSENT if missed else Assertion.RECOVER, at_ms)

    for number in range(batches):
        at_ms = begin_ms + number * _BATCH_MS
        yield [one(at_ms) for _ in range(_BATCH)]
    at_ms = begin_ms + batches * _BATCH_MS
    over = [
        observation(chip, code, Assertion.RECOVER, at_ms)
        for chip, codes in enumerate(held)
        for code in sorted(codes)
    ]
    for first in range(0, len(over), _BATCH):
        yield over[first : first + _BATCH]


def healthy(tables: Catalogue) -> PolicyState:
    """Return a node whose chips all answered and have no fault."""
    chips = [SourceAnswered(CHIP_SOURCE, chip_subject(chip), _BEGIN_MS) for chip in range(_CHIPS)]
    return step(PolicyState(_NODE, "boot"), chips, _BEGIN_MS, tables)[0]


def entries(state: PolicyState) -> int:
    """Return how many things the state remembers."""
    count = 0
    for _, known in state.subjects():
        count += len(known.faults) + len(known.ended) + len(known.blind) + len(known.answered)
        if isinstance(known, ChipState):
            count += len(known.upgrades)
            count += sum(1 + len(counter.occurred_ms) for counter in known.counters.values())
    return count


def measured(
    state: PolicyState, batches: Sequence[Sequence[Observation]], tables: Catalogue
) -> tuple[PolicyState, Run]:
    """Play one storm."""
    document = device_info_name(_NODE)
    changed = 0
    gc.collect()
    begun = time.process_time()
    for number, batch in enumerate(batches):
        now_ms = batch[-1].seen_at_ms
        state, changes = step(state, batch, now_ms, tables)
        changed += len(changes)
        next_deadline_ms(state, tables)
        if number % _BATCHES_PER_ACKNOWLEDGEMENT == 0:
            seen = Acknowledged(document, state.revision, now_ms)
            state, changes = step(state, [seen], now_ms, tables)
            changed += len(changes)
            next_deadline_ms(state, tables)
    seconds = time.process_time() - begun
    last_ms = batches[-1][-1].seen_at_ms
    seen = Acknowledged(document, state.revision, last_ms)
    state, _ = step(state, [seen], last_ms + _QUIET_MS, tables)
    return state, Run(sum(map(len, batches)), changed, seconds, entries(state))


def figures(runs: int, batches: int) -> Figures:
    """Measure ``runs`` storms behind one that is not counted."""
    tables = shipped()
    state = healthy(tables)
    done = []
    for number in range(runs + 1):
        begin_ms = _BEGIN_MS + number * (batches * _BATCH_MS + 2 * _QUIET_MS)
        state, run = measured(state, list(storm(batches, begin_ms)), tables)
        done.append(run)
    return Figures(done[1:])


def table(found: Figures) -> Table:
    """Return the figures as text for people."""
    shown = Table(title=f"policy, batches of {_BATCH} on {_CHIPS} chips")
    for heading in ("run", "observations", "changes", "CPU s", "per second", "of 100,000", "left"):
        shown.add_column(heading, justify="right")
    for number, run in enumerate(found.runs, 1):
        shown.add_row(
            *(str(number), f"{run.observations:,}", f"{run.changes:,}", f"{run.seconds:.2f}"),
            *(f"{run.per_second:,.0f}", f"{run.per_second / BUDGET_PER_SECOND:.2f}"),
            str(run.entries),
        )
    shown.add_section()
    ratio = found.per_second / BUDGET_PER_SECOND
    shown.add_row("median", "", "", "", f"{found.per_second:,.0f}", f"{ratio:.2f}", "")
    return shown


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Observations that the policy judges in a second.")
    parser.add_argument("--runs", type=int, default=5, help="how often to measure")
    parser.add_argument("--batches", type=int, default=300, help="of 100 observations, in each run")
    arguments = parser.parse_args()
    found = figures(arguments.runs, arguments.batches)
    Console(width=100).print(table(found))
    if found.grows:
        print("the state grows: what is left behind a run is not what was left before it")
    sys.exit(not found.is_within_budget)


if __name__ == "__main__":
    main()
