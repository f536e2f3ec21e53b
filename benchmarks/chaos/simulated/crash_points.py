"""Ends a program before every single step of a script, one after the other, and judges each run.

::

    python -m benchmarks.chaos.simulated.crash_points [--script NAME] [--every N] [--workers N]

A step is a callback of the program on the loop: each await that returns, each timer, each commit.
Seeds find what is likely; this finds what is possible. Prints a line for each script, what is
wrong, and the time of all. Exit status: 0 nothing is wrong, 1 something is.
"""

from __future__ import annotations

import argparse
import functools
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from benchmarks.chaos.judge import BOUND_SECONDS, Excuse, Verdict
from benchmarks.chaos.plan import (
    AGGREGATORS,
    NODES,
    STORE,
    Plan,
    PlannedFault,
    PlannedTrouble,
)
from benchmarks.chaos.simulated.processes import fix_order_of_sets, mapped
from benchmarks.chaos.simulated.site import MEMORY, SimulatedSite, run_site
from benchmarks.chaos.stage import judged
from benchmarks.chaos.troubles import BOTH, CLUSTER_INFO

if TYPE_CHECKING:
    from benchmarks.chaos.simulated.virtual_time import VirtualTimeLoop

NODE, AGGREGATOR = NODES[0], AGGREGATORS[0]
_SEPARATES, _SUB_HEALTH = "80E18402", "80818C06"
_AWAY_SECONDS = 0.5
_EXCUSED_SECONDS = 2.0
"""From its start until a victim's documents must be right again."""
_START_SECONDS = 3.0
"""From the start of all programs until a script begins: the first documents are there by then."""


@dataclass(frozen=True)
class Script:
    """A plan, and the time (``begin``, ``end``) in which ``victim`` is ended at every step."""

    name: str
    victim: str
    begin: float
    end: float
    plan: Plan
    aggregators: tuple[str, ...] = AGGREGATORS[:1]


def _script(
    name: str,
    victim: str,
    window: tuple[float, float],
    *troubles: PlannedTrouble,
    faults: tuple[PlannedFault, ...] = (),
    aggregators: tuple[str, ...] = AGGREGATORS[:1],
) -> Script:
    # What was wrong at the end of the excuse must be right within the bound of the judge.
    seconds = window[1] + _AWAY_SECONDS + _EXCUSED_SECONDS + BOUND_SECONDS + 1.0
    plan = Plan("simulated", 1, seconds, faults, troubles)
    return Script(name, victim, *window, plan, aggregators)


SCRIPTS = (
    _script(
        *("a fault begins", NODE, (1.0, 1.3)),
        faults=(PlannedFault(NODE, 3, _SEPARATES, 1.0),),
    ),
    _script(
        *("a fault ends", NODE, (2.0, 2.5)),
        faults=(
            PlannedFault(NODE, 3, _SEPARATES, 0.5, 2.0),
            PlannedFault(NODE, 4, _SUB_HEALTH, 0.6),
        ),
    ),
    _script(
        *("an agent starts", NODE, (1.5, 4.0)),
        PlannedTrouble("agent-restarted", NODE, 1.5, 1.6),
        faults=(PlannedFault(NODE, 3, _SEPARATES, 0.5), PlannedFault(NODE, 5, _SUB_HEALTH, 1.7)),
    ),
    _script(
        *("a document is repaired", NODE, (1.0, 1.6)),
        PlannedTrouble("document-deleted", NODE, 1.0, 1.1),
        faults=(PlannedFault(NODE, 3, _SEPARATES, 0.5),),
    ),
    _script(
        *("a leader publishes", AGGREGATOR, (1.0, 1.6)),
        faults=(PlannedFault(NODE, 3, _SEPARATES, 1.0), PlannedFault(NODE, 4, _SUB_HEALTH, 0.2)),
    ),
    _script(
        *("a leader takes over", AGGREGATOR, (1.0, 3.0)),
        PlannedTrouble("aggregators-restarted", STORE, 1.0, 1.1),
        faults=(PlannedFault(NODE, 3, _SEPARATES, 0.5), PlannedFault(NODE, 4, _SUB_HEALTH, 1.2)),
        aggregators=AGGREGATORS,
    ),
)


class _Killer:
    """Counts the steps of the victim in the time of the script; the one with the number ``at`` does
    not come.
    """

    def __init__(self, site: SimulatedSite, script: Script, at: int | None) -> None:
        self.count = 0
        self._site, self._script, self._at = site, script, at
        self._loop = cast("VirtualTimeLoop", site.loop)

    def step(self, program: str) -> None:
        """Count a step of ``program``."""
        script = self._script
        is_victim = program.rpartition(" ")[0] == script.victim
        if not is_victim or not script.begin <= self._site.now < script.end:
            return
        self.count += 1
        if self.count - 1 == self._at:
            self._loop.count_step = None
            self._kill()

    def _kill(self) -> None:
        site, victim = self._site, self._site.programs[self._script.victim]
        victim.kill()
        self._loop.call_later(_AWAY_SECONDS, victim.start)
        is_agent = self._script.victim in NODES
        documents = BOTH if is_agent else frozenset({CLUSTER_INFO})
        end = site.now + _AWAY_SECONDS + _EXCUSED_SECONDS
        site.episode.excuses.append(Excuse("killed", site.now, end, frozenset({NODE}), documents))


def run(script: Script, at: int | None) -> tuple[int, list[Verdict]]:
    """Run ``script`` and end its victim at step ``at``; return how many steps there were, and what
    is wrong.
    """
    steps = 0
    with tempfile.TemporaryDirectory(prefix="vigil-chaos-", dir=MEMORY) as directory:

        async def work(site: SimulatedSite) -> None:
            nonlocal steps
            killer = _Killer(site, script, at)
            cast("VirtualTimeLoop", site.loop).count_step = killer.step
            await site.play(script.plan)
            steps = killer.count

        site = run_site(
            lambda: SimulatedSite(Path(directory), (NODE,), script.aggregators, _START_SECONDS),
            work,
            script.plan.seed,
        )
    episode = site.episode
    if episode.errors:
        cause = next(iter(episode.crashes), None)
        raise RuntimeError(f"{script.name}, step {at}: {episode.errors}") from cause
    return steps, judged(script.plan, *episode.parts)


def main() -> int:
    """Run all scripts, or one; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--script", choices=[script.name for script in SCRIPTS])
    parser.add_argument("--every", type=int, default=1, help="only each N-th step")
    parser.add_argument("--workers", type=int, default=1, help="how many processes")
    given = parser.parse_args()
    fix_order_of_sets()
    began, points, wrong = time.monotonic(), 0, 0
    scripts = [script for script in SCRIPTS if given.script in (None, script.name)]
    for script in scripts:
        steps, verdicts = run(script, None)
        runs = range(0, steps, given.every)
        with mapped(functools.partial(_verdicts, script), runs, given.workers) as judged_runs:
            results = [(None, verdicts), *zip(runs, judged_runs, strict=True)]
        for at, verdicts in results:
            for verdict in verdicts:
                print(f"  step {at}: {msgspec.json.encode(verdict).decode()}", flush=True)
        bad = sum(bool(verdicts) for _, verdicts in results)
        print(f"{script.name}: {len(runs)} of {steps} steps, {bad} wrong", flush=True)
        points, wrong = points + len(runs), wrong + bad
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    used = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    seconds = time.monotonic() - began
    print(f"all: {points} steps, {wrong} wrong, {seconds:.0f} s, {used:.0f} processor seconds")
    return 1 if wrong else 0


def _verdicts(script: Script, at: int) -> list[Verdict]:
    return run(script, at)[1]


if __name__ == "__main__":
    sys.exit(main())
