"""Plays episodes of faults and troubles, and judges what was shown.

::

    python -m benchmarks.chaos --world directory --episodes N --seed S [--keep DIR]
    python -m benchmarks.chaos --replay FILE...
    python -m benchmarks.chaos --world simulated --episodes N --seed S [--workers N] [--mutant NAME]

The worlds ``directory``, ``kubernetes`` and ``mqtt`` are real parts, ``simulated`` is virtual time.
Prints a line for each episode with something wrong, of real parts for each, and a summary as JSON.
Exit status: 0 nothing wrong and all proved, else 1. A plan with something wrong or not proved is
made smaller, kept in DIR, and can be played again. Gaps of real parts may be of any episode, so
all plans are kept as they are. A mutant is a wrong product: the first episode that finds it is the
last. ``--mutant all`` plays all of virtual time, one after the other, prints the first seed of
each, and has exit status 0 where each is found.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from benchmarks.chaos.judge import excused_share
from benchmarks.chaos.plan import Plan, aggregators_of
from benchmarks.chaos.shrink import MAX_SECONDS, shrunk
from benchmarks.chaos.simulated.processes import fix_order_of_sets, mapped
from benchmarks.chaos.stage import judged, settled
from benchmarks.chaos.troubles import plan_of, read_plan
from vigil.prove.gather import Journals
from vigil.prove.match import prove
from vigil.prove.report import report_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.chaos.judge import Excuse, Fault, Sample

_SIMULATED = "simulated"
_ALL = "all"
"""Stands for each mutant of virtual time."""
MAX_EXCUSED = 0.3
"""An episode should have no larger share of its time under excuse."""
_REAL_MUTANTS = {("mqtt", "a deletion assumed at once"): "benchmarks.chaos.hasty_aggregator"}
"""The module that aggregators are started from, by world and name."""


class _Outcome(msgspec.Struct, frozen=True):
    """What an episode came to; ``wrong`` are names of what is wrong, ``texts`` are all of it."""

    plan: Plan
    faults: int
    samples: int
    wrong: list[str]
    texts: list[str]
    share: float
    """Which part of the episode is excused."""
    settled_seconds: float
    proved: int = 0
    gaps: dict[str, int] = {}
    is_proved: bool = True
    processor_seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong, and all is proved."""
        return not self.wrong and self.is_proved


class _Results:
    """What all episodes came to; ``keep`` is where plans go, ``mutant`` the wrong product."""

    def __init__(self, keep: Path | None, mutant: str | None) -> None:
        self.mutant = mutant
        self._outcomes: list[_Outcome] = []
        self._keep = keep
        self._began = time.monotonic()

    @property
    def are_right(self) -> bool:
        """Whether nothing is wrong, and all is proved."""
        return self.first_wrong is None

    @property
    def first_wrong(self) -> _Outcome | None:
        """The first episode with something wrong or not proved."""
        return next((outcome for outcome in self._outcomes if not outcome.is_right), None)

    def add(self, outcome: _Outcome) -> None:
        """Add an episode, and print what is wrong."""
        self._outcomes.append(outcome)
        plan = outcome.plan
        if not outcome.is_right or plan.platform != _SIMULATED:
            names = ", ".join(f"{item.name} of {item.subject}" for item in plan.troubles)
            print(
                f"seed {plan.seed}: {outcome.faults} faults, {names}: {outcome.samples} samples, "
                f"settled after {outcome.settled_seconds:.1f} s, {len(outcome.wrong)} wrong",
                *outcome.texts,
                *(f"gap: {number} {name}" for name, number in outcome.gaps.items()),
                sep="\n  ",
                flush=True,
            )

    def keep(self, plan: Plan, fails: Callable[[Plan], bool]) -> None:
        """Keep a plan with something wrong, as small as it becomes within its time."""
        if self._keep is None:
            return
        end = time.monotonic() + MAX_SECONDS
        small = shrunk(plan, fails, lambda: end - time.monotonic())
        name = f"{plan.platform}-{plan.seed}" if self.mutant is None else self.mutant
        self._keep.mkdir(parents=True, exist_ok=True)
        file = self._keep / f"{name.replace(' ', '-')}.json"
        file.write_bytes(msgspec.json.format(msgspec.json.encode(small)) + b"\n")

    def summary(self) -> dict[str, object]:
        """Return what all episodes came to."""
        outcomes = self._outcomes
        shares = [outcome.share for outcome in outcomes]
        wrong, gaps = Counter[str](), Counter[str]()
        for outcome in outcomes:
            wrong.update(outcome.wrong)
            gaps.update(outcome.gaps)
        used = sum(outcome.processor_seconds for outcome in outcomes)
        return {
            "episodes": len(outcomes),
            "wrong": dict(wrong),
            "settled_seconds": _spread([outcome.settled_seconds for outcome in outcomes]),
            "excused": {
                "mean": round(sum(shares) / len(shares), 2),
                **_spread(shares),
                f"episodes_above_{MAX_EXCUSED}": sum(share > MAX_EXCUSED for share in shares),
            },
            "proof": {
                "proved": sum(outcome.proved for outcome in outcomes),
                "gaps": dict(gaps),
            },
            "seconds": round(time.monotonic() - self._began, 1),
            "processor_seconds_per_episode": round(used / len(outcomes), 2),
        }


def _spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    ranks = {"p50": 0.5, "p95": 0.95, "max": 1.0}
    return {
        name: round(ordered[math.ceil(rank * len(ordered)) - 1], 2) for name, rank in ranks.items()
    }


def _outcome(
    plan: Plan,
    faults: list[Fault],
    samples: list[Sample],
    excuses: list[Excuse],
    errors: Sequence[tuple[str, str]] = (),
) -> _Outcome:
    """Judge an episode; ``errors`` are kinds and texts of what was wrong with its programs."""
    verdicts = judged(plan, faults, samples, excuses)
    kinds = [kind for kind, _ in errors]
    return _Outcome(
        *(plan, len(faults), len(samples)),
        [verdict.wrong.value for verdict in verdicts] + kinds,
        [msgspec.json.encode(verdict).decode() for verdict in verdicts]
        + [f"{kind}: {text}" for kind, text in errors],
        excused_share(excuses, plan.seconds),
        settled(plan, faults, samples),
    )


def _proved(outcome: _Outcome, directories: Iterable[Path]) -> _Outcome:
    """Return the outcome with what ``vigil prove`` makes of the journals of the nodes."""
    journals = Journals()
    journals.add_files(directories, since_ms=None)
    proof = prove(journals.by_node.values(), None, None)
    report = report_of(proof, journals.by_node, journals.not_known, "nothing")
    return replace(
        outcome, proved=report.proved, gaps=report.gaps_by_name, is_proved=report.status == 0
    )


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
    parser.add_argument("--workers", type=int, default=1, help="processes of the world simulated")
    given = parser.parse_args()
    if given.replay is not None:
        try:
            plans = [read_plan(file) for file in given.replay]
        except ValueError as error:
            parser.error(str(error))
        if len({plan.platform for plan in plans}) > 1:
            parser.error("the plans are of several worlds: play those of each by themselves")
    else:
        seeds = range(given.seed, given.seed + given.episodes)
        plans = [plan_of(given.platform, seed) for seed in seeds]
    if given.mutant == _ALL:
        if plans[0].platform != _SIMULATED:
            parser.error(f"--mutant {_ALL} is for the world {_SIMULATED}")
        return 0 if _all_are_found(plans, given.keep, given.workers) else 1
    results = _Results(given.keep, given.mutant)
    if plans[0].platform == _SIMULATED:
        _play_simulated(plans, results, given.workers)
    else:
        _play_real(plans, results)
    print(json.dumps(results.summary(), indent=1))
    return 0 if results.are_right else 1


def _play_simulated(plans: list[Plan], results: _Results, workers: int) -> None:
    """Play each plan with programs of its own, in so many processes."""
    fix_order_of_sets()
    play = functools.partial(_played, mutant=results.mutant)
    with mapped(play, plans, workers) as outcomes:
        for outcome in outcomes:
            results.add(outcome)
            if not outcome.is_right:
                results.keep(outcome.plan, lambda plan: not play(plan).is_right)
                if results.mutant is not None:
                    break


def _all_are_found(plans: list[Plan], keep: Path | None, workers: int) -> bool:
    """Play the plans with each mutant until it is found; print the first seeds as a table."""
    from benchmarks.chaos.simulated.mutants import MUTANTS

    rows = ["| mutant | first seed that finds it | what is wrong |", "|---|---|---|"]
    are_found = True
    for mutant in MUTANTS:
        results = _Results(keep, mutant)
        _play_simulated(plans, results, workers)
        outcome = results.first_wrong
        are_found &= outcome is not None
        if outcome is None:
            rows.append(f"| {mutant} | none | nothing |")
        else:
            wrong = next(iter(outcome.wrong), "an episode is not proved")
            rows.append(f"| {mutant} | {outcome.plan.seed} | {wrong} |")
    print(*rows, sep="\n")
    return are_found


def _played(plan: Plan, mutant: str | None) -> _Outcome:
    """Play a plan in virtual time."""
    from benchmarks.chaos.simulated.mutants import MUTANTS
    from benchmarks.chaos.simulated.site import MEMORY, play_in

    began = time.process_time()
    product = contextlib.nullcontext() if mutant is None else MUTANTS[mutant]()
    with tempfile.TemporaryDirectory(prefix="vigil-chaos-", dir=MEMORY) as directory:
        with product:
            episode, state_dirs = play_in(Path(directory), plan)
        outcome = _outcome(plan, *episode.parts, episode.errors)
        outcome = _proved(outcome, state_dirs.values())
    return replace(outcome, processor_seconds=time.process_time() - began)


def _play_real(plans: list[Plan], results: _Results) -> None:
    """Play all plans with one set of processes."""
    from benchmarks.chaos.site import Site, open_platform
    from dcmi_shim.emulator.install import install

    platform, program = plans[0].platform, "vigil"
    if results.mutant is not None:
        program = _REAL_MUTANTS[platform, results.mutant]
    with tempfile.TemporaryDirectory(prefix="vigil-chaos-") as folder:
        directory = Path(folder)
        install(directory / "driver", directory / "emulator", "a2")
        with contextlib.ExitStack() as stack:
            store = open_platform(platform, directory, stack)
            names = aggregators_of(platform)
            site = Site(directory, directory, store, names, program)
            stack.callback(site.close)
            site.start()
            for number, plan in enumerate(plans, 1):
                outcome = _outcome(plan, *site.play(plan))
                is_last = number == len(plans) or (results.mutant and outcome.wrong)
                if is_last:
                    # The journals of the nodes are those of all episodes.
                    outcome = _proved(outcome, (node.state_dir for node in site.nodes.values()))
                results.add(outcome)
                if outcome.wrong:
                    results.keep(plan, lambda plan: bool(judged(plan, *site.play(plan))))
                elif not outcome.is_proved:
                    # The gap may be of any episode, and stays in the journal: none can be smaller.
                    for played in plans[:number]:
                        results.keep(played, lambda _: False)
                if is_last:
                    break


if __name__ == "__main__":
    sys.exit(main())
