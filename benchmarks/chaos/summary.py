"""Adds up what the episodes of a run came to, or of several runs on parts of the seeds."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from benchmarks.chaos.judge import Wrong
from benchmarks.chaos.outcome import NotPlayed, Outcome
from benchmarks.chaos.planning import MAX_EXCUSED, planned_share

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchmarks.chaos.plan import Plan

_Episode: TypeAlias = tuple[str, int]
"""The platform and the seed of a plan."""


class Run(msgspec.Struct, frozen=True):
    """A run as a file has it: the planned episodes, and by cause those that were not played."""

    planned: list[_Episode]
    seconds: float
    causes: dict[str, list[_Episode]]
    outcomes: list[Outcome]


class Results:
    """What episodes of ``plans`` came to."""

    def __init__(self, plans: Iterable[Plan]) -> None:
        self._planned = Counter(map(_episode, plans))
        self._outcomes: list[Outcome] = []
        self._causes = defaultdict[str, list[_Episode]](list)
        """Which episodes were not played, by the reason why."""
        self._began = time.monotonic()
        self._earlier_seconds = 0.0

    @property
    def are_right(self) -> bool:
        """Whether nothing is wrong, and all is proved."""
        return self.first_wrong is None

    @property
    def first_wrong(self) -> Outcome | None:
        """The first episode with something wrong or not proved."""
        return next((outcome for outcome in self._outcomes if not outcome.is_right), None)

    @property
    def seeds_planned_above(self) -> list[int]:
        """The seeds of plans whose troubles excuse more than ``MAX_EXCUSED`` of their time."""
        plans = (outcome.plan for outcome in self._outcomes)
        return [plan.seed for plan in plans if planned_share(plan) > MAX_EXCUSED]

    @property
    def is_empty(self) -> bool:
        """Whether no episode was played."""
        return not self._outcomes

    @property
    def is_whole(self) -> bool:
        """Whether all planned episodes were played."""
        return not self._not_played

    @property
    def causes(self) -> dict[str, int]:
        """How many episodes were not played, also in no other run, by the reason why."""
        left = self._not_played
        numbers = {
            cause: sum(episode in left for episode in episodes)
            for cause, episodes in self._causes.items()
        }
        return {cause: number for cause, number in numbers.items() if number}

    @property
    def _not_played(self) -> Counter[_Episode]:
        return self._planned - Counter(_episode(outcome.plan) for outcome in self._outcomes)

    def add(self, outcome: Outcome | NotPlayed) -> None:
        """Add an episode, and print what is wrong."""
        if isinstance(outcome, NotPlayed):
            number = len(outcome.plans)
            lines = outcome.cause.strip().splitlines()
            # The last line of a log says more than that its program ended.
            cause = " ".join(dict.fromkeys([lines[0], lines[-1].strip()]))
            self._causes[cause] += map(_episode, outcome.plans)
            print(f"{number} episodes are not played: {outcome.cause}", flush=True)
            return
        self._outcomes.append(outcome)
        plan = outcome.plan
        if not outcome.is_right or plan.platform != "simulated":
            names = ", ".join(f"{item.name} of {item.subject}" for item in plan.troubles)
            print(
                f"seed {plan.seed}: {outcome.faults} faults, {names}: {outcome.samples} samples, "
                f"settled after {outcome.settled_seconds:.1f} s, {len(outcome.wrong)} wrong",
                *outcome.texts,
                *(f"gap: {number} {name}" for name, number in outcome.gaps.items()),
                sep="\n  ",
                flush=True,
            )

    def write(self, file: Path) -> None:
        """Write the run to a file, for ``add_run``."""
        planned = list(self._planned.elements())
        run = Run(planned, self._seconds, self._causes, self._outcomes)
        file.write_bytes(msgspec.json.encode(run) + b"\n")

    def add_run(self, file: Path) -> None:
        """Add a run that was written. Raises ``ValueError`` with the file and a remedy."""
        try:
            run = msgspec.json.decode(file.read_bytes(), type=Run)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{file} is no run of this version: {error}. Play its seeds with --write again"
            ) from error
        played = [_episode(item.plan) for item in (*self._outcomes, *run.outcomes)]
        if len(played) > len(set(played)):
            raise ValueError(f"{file} has a seed of another file: leave one of them out")
        planned = self._planned | Counter(run.planned)
        if len({platform for platform, _ in planned}) > 1:
            raise ValueError(f"{file} is of another world: add up each world by itself")
        self._planned = planned
        self._earlier_seconds += run.seconds
        for cause, episodes in run.causes.items():
            self._causes[cause] += episodes
        self._outcomes += run.outcomes

    @property
    def _seconds(self) -> float:
        return self._earlier_seconds + time.monotonic() - self._began

    def summary(self) -> dict[str, object]:
        """Return what all episodes came to."""
        outcomes = self._outcomes
        shares = [outcome.share for outcome in outcomes]
        wrong, gaps = Counter[str](), Counter[str]()
        for outcome in outcomes:
            wrong.update(outcome.wrong)
            gaps.update(outcome.gaps)
        one_offs = [seconds for outcome in outcomes for seconds in outcome.one_off_seconds]
        used = sum(outcome.processor_seconds for outcome in outcomes)
        return {
            "episodes": len(outcomes),
            "not_played": self._not_played.total(),
            "causes": self.causes,
            "wrong": dict(wrong),
            "settled_seconds": _spread([outcome.settled_seconds for outcome in outcomes]),
            "nodes_lost_wrongly": wrong[Wrong.LOST],
            "one_offs": {"number": len(one_offs), "shortest_seconds": _shortest(one_offs)},
            "excused": {
                "mean": round(sum(shares) / len(shares), 2),
                **_spread(shares),
                f"seeds_above_{MAX_EXCUSED}": [
                    outcome.plan.seed for outcome in outcomes if outcome.share > MAX_EXCUSED
                ],
                f"seeds_planned_above_{MAX_EXCUSED}": self.seeds_planned_above,
            },
            "proof": {
                "proved": sum(outcome.proved for outcome in outcomes),
                "gaps": dict(gaps),
            },
            "seconds": round(self._seconds, 1),
            "processor_seconds_per_episode": round(used / len(outcomes), 2),
        }


def _episode(plan: Plan) -> _Episode:
    return plan.platform, plan.seed


def _shortest(values: list[float]) -> float | None:
    return round(min(values), 2) if values else None


def _spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    ranks = {"p50": 0.5, "p95": 0.95, "max": 1.0}
    return {
        name: round(ordered[math.ceil(rank * len(ordered)) - 1], 2) for name, rank in ranks.items()
    }
