"""Plays episodes of faults and troubles, and judges what was shown.

::

    python -m benchmarks.chaos --world directory --episodes N --seed S [--keep DIR] [--workers N]
    python -m benchmarks.chaos --replay FILE...
    python -m benchmarks.chaos --world simulated --episodes N --seed S [--workers N] [--mutant NAME]
    python -m benchmarks.chaos --add-up FILE...

The worlds ``directory``, ``kubernetes`` and ``mqtt`` are real parts, ``simulated`` is virtual time.
Prints a line for each episode with something wrong, of real parts for each, and a summary as JSON.
Exit status: 0 nothing wrong, all proved, all episodes played, and no plan that excuses more than
0.3 of its episode, else 1. Kept plans may have a larger share. A plan with something wrong or not
proved is made smaller, kept in DIR, and can be played again. Gaps of real parts may be of any
episode, so all plans are kept as they are, with the logs and journals. A mutant is a wrong product:
the first episode that finds it is the last. ``--mutant all`` plays all of virtual time, one after
the other, prints the first seed of each, and has exit status 0 where each is found. Each worker of
a real world has programs, a store and ports of its own, and plays its part of the seeds. ``--write
FILE`` keeps what each episode came to, and ``--add-up`` makes one summary of several such files.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from benchmarks.chaos.outcome import Kept, Outcome, outcome_of, proved
from benchmarks.chaos.planning import plan_of, read_plan
from benchmarks.chaos.simulated.processes import fix_order_of_sets, mapped
from benchmarks.chaos.summary import Results

if TYPE_CHECKING:
    from benchmarks.chaos.plan import Plan

_SIMULATED = "simulated"
_ALL = "all"
"""Stands for each mutant of virtual time."""


def main() -> int:
    """Play the episodes that are asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--world",
        dest="platform",
        choices=("directory", "kubernetes", "mqtt", _SIMULATED),
        default="directory",
    )
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, nargs="+", help="kept plans of one world")
    parser.add_argument("--keep", type=Path, help="where to keep plans with something wrong")
    parser.add_argument(
        "--mutant", help="a wrong product, in the worlds simulated and mqtt, or all"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes that play episodes")
    parser.add_argument("--write", type=Path, help="a new file for what each episode came to")
    parser.add_argument("--add-up", type=Path, nargs="+", help="such files of one world")
    given = parser.parse_args()
    if given.add_up is not None:
        results = Results([])
        try:
            for file in given.add_up:
                results.add_run(file)
        except ValueError as error:
            parser.error(str(error))
        return _end(results)
    if given.write is not None:
        if given.mutant is not None or given.replay is not None:
            parser.error(
                "--write is for the seeds of the right product: leave the other option out"
            )
        if given.write.exists():
            parser.error(f"{given.write} exists: choose another name")
        given.write.parent.mkdir(parents=True, exist_ok=True)
    plans = _plans(parser, given)
    if given.mutant == _ALL:
        if plans[0].platform != _SIMULATED:
            parser.error(f"--mutant {_ALL} is for the world {_SIMULATED}")
        return 0 if _all_are_found(plans, given.keep, given.workers) else 1
    results, kept = Results(plans), Kept(given.keep, given.mutant)
    if plans[0].platform == _SIMULATED:
        _play_simulated(plans, results, kept, given.workers)
    else:
        from benchmarks.chaos.real import play_real

        play_real(plans, results.add, kept, given.workers)
    # A mutant ends the run, so later plans are not played.
    is_partial = given.mutant is not None
    # A kept plan was made small, so most of it may be excused.
    status = _end(results, is_partial=is_partial, is_small=given.replay is not None)
    if given.write is not None:
        results.write(given.write)
    return status


def _plans(parser: argparse.ArgumentParser, given: argparse.Namespace) -> list[Plan]:
    """Return the kept plans, or else those of the seeds."""
    if given.replay is None:
        seeds = range(given.seed, given.seed + given.episodes)
        return [plan_of(given.platform, seed) for seed in seeds]
    try:
        plans = [read_plan(file) for file in given.replay]
    except ValueError as error:
        parser.error(str(error))
    if len({plan.platform for plan in plans}) > 1:
        parser.error("the plans are of several worlds: play those of each by themselves")
    return plans


def _end(results: Results, *, is_partial: bool = False, is_small: bool = False) -> int:
    """Print the summary; return the exit status."""
    if results.is_empty:
        causes = (f"{number} for {cause}" for cause, number in results.causes.items())
        print("no episode was played", *causes, sep="\n  ", file=sys.stderr)
        return 1
    print(json.dumps(results.summary(), indent=1), flush=True)
    is_complete = results.is_whole or is_partial
    is_within = is_small or not results.seeds_planned_above
    return 0 if results.are_right and is_complete and is_within else 1


def _play_simulated(plans: list[Plan], results: Results, kept: Kept, workers: int) -> None:
    """Play each plan with programs of its own, in so many processes."""
    fix_order_of_sets()
    play = functools.partial(_played, mutant=kept.mutant)
    with mapped(play, plans, workers) as outcomes:
        for outcome in outcomes:
            results.add(outcome)
            if not outcome.is_right:
                kept.add(outcome.plan, lambda plan: not play(plan).is_right)
                if kept.mutant is not None:
                    break


def _all_are_found(plans: list[Plan], keep: Path | None, workers: int) -> bool:
    """Play the plans with each mutant until it is found; print the first seeds as a table."""
    from benchmarks.chaos.simulated.mutants import MUTANTS

    rows = ["| mutant | first seed that finds it | what is wrong |", "|---|---|---|"]
    are_found = True
    for mutant in MUTANTS:
        results = Results(plans)
        _play_simulated(plans, results, Kept(keep, mutant), workers)
        outcome = results.first_wrong
        are_found &= outcome is not None
        if outcome is None:
            rows.append(f"| {mutant} | none | nothing |")
        else:
            wrong = next(iter(outcome.wrong), "an episode is not proved")
            rows.append(f"| {mutant} | {outcome.plan.seed} | {wrong} |")
    print(*rows, sep="\n")
    return are_found


def _played(plan: Plan, mutant: str | None) -> Outcome:
    """Play a plan in virtual time."""
    from benchmarks.chaos.simulated.mutants import MUTANTS
    from benchmarks.chaos.simulated.site import MEMORY, play_in

    began = time.process_time()
    product = contextlib.nullcontext() if mutant is None else MUTANTS[mutant]()
    with tempfile.TemporaryDirectory(prefix="vigil-chaos-", dir=MEMORY) as directory:
        with product:
            episode, state_dirs = play_in(Path(directory), plan)
        outcome = outcome_of(plan, *episode.parts, episode.errors)
        outcome = proved(outcome, state_dirs.values())
    return replace(outcome, processor_seconds=time.process_time() - began)


if __name__ == "__main__":
    sys.exit(main())
