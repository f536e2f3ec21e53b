"""Makes the plan of an episode, a pure function of platform and seed, and reads kept plans.

What the troubles of a plan excuse takes at most ``MAX_EXCUSED`` of its time. So an episode lasts as
long as was drawn, or longer where its troubles need it.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from benchmarks.chaos.excuses import planned_excuses
from benchmarks.chaos.judge import excused_seconds
from benchmarks.chaos.plan import (
    AGGREGATORS,
    CHIPS,
    CODES,
    NODES,
    Plan,
    PlannedFault,
    PlannedTrouble,
    aggregators_of,
)
from benchmarks.chaos.troubles import TROUBLES, Effect

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

MAX_EXCUSED = 0.3
"""The largest part of an episode in which a document may be late, or a node be lost."""
MIN_SECONDS, MAX_DRAWN_SECONDS, MAX_SECONDS = 20.0, 60.0, 120.0
MAX_FAULTS = 12
MAX_ONE_OFFS = 2
_ONE_OFF_SECONDS = 13.0
"""From a one-off fault until it has been shown long enough: the bound, 5.5 s, and the bound."""
_DEAF_SECONDS = 12.0
"""For so long after a trouble of its node an event may be lost: the driver starts again."""
_SETTLE_SECONDS = 4.0
_MIN_FAULT_SECONDS = 2.0
_MARGIN_SECONDS = 0.5
_TOO_LONG_WITH_SHIPPED_PERIODS = Effect.NEEDS_AUDIT | Effect.SILENCES
_Place: TypeAlias = tuple[str, int, str]
"""Node, chip and code."""


def plan_of(platform: str, seed: int) -> Plan:
    """Return the plan of this seed; each tenth has the shipped periods.

    A fault begins during each trouble that hides events. In virtual time there are no one-off
    faults.
    """
    draw = random.Random(f"{platform} {seed}")
    periods = "shipped" if seed % 10 == 0 else "short"
    drawn = draw.uniform(MIN_SECONDS, MAX_DRAWN_SECONDS)
    troubles = _draw_troubles(draw, platform, periods, drawn - _SETTLE_SECONDS)
    # Up to the next hundredth, so that rounding leaves no larger share.
    seconds = math.floor(max(drawn, _seconds_for(platform, troubles)) * 100 + 1) / 100
    free_from: dict[_Place, float] = {}
    # The troubles are within the seconds that were drawn, so the faults must not be fewer there.
    number = draw.randint(3, MAX_FAULTS)
    faults = _draw_faults(draw, number, 0.0, drawn, seconds, free_from)
    faults += _draw_hidden_faults(draw, troubles, free_from, MAX_FAULTS - len(faults))
    number = min(round(number * (seconds / drawn - 1.0)), MAX_FAULTS - len(faults))
    faults += _draw_faults(draw, number, drawn, seconds, seconds, free_from)
    if platform != "simulated":
        faults += _draw_one_offs(draw, seconds, troubles, free_from)
    return Plan(
        *(platform, seed, seconds),
        tuple(sorted(faults, key=lambda fault: fault.at)),
        tuple(sorted(troubles, key=lambda trouble: trouble.at)),
        periods,
    )


def planned_share(plan: Plan) -> float:
    """Return which part of an episode its troubles excuse at most."""
    return excused_seconds(planned_excuses(plan.platform, plan.troubles), math.inf) / plan.seconds


def troubles_of(platform: str, periods: str = "short") -> dict[str, tuple[str, ...]]:
    """Return the subjects of each trouble of a platform, by name.

    With the shipped periods an audit comes later than the judge waits.
    """
    running = aggregators_of(platform)
    return {
        trouble.name: tuple(
            subject
            for subject in trouble.subjects
            if subject not in AGGREGATORS or subject in running
        )
        for trouble in TROUBLES.values()
        if platform in trouble.bounds
        and not (periods == "shipped" and trouble.effects & _TOO_LONG_WITH_SHIPPED_PERIODS)
    }


def read_plan(file: Path) -> Plan:
    """Return a kept plan. Raises ``ValueError`` with the file and a remedy."""
    try:
        plan = msgspec.json.decode(file.read_bytes(), type=Plan)
        for planned in plan.troubles:
            if planned.subject not in TROUBLES[planned.name].subjects:
                raise ValueError(f"{planned.name} has no subject {planned.subject}")
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{file} is no plan of this version: {error}. Play its seed with --keep to make it anew"
        ) from error
    return plan


def _draw_troubles(
    draw: random.Random, platform: str, periods: str, last: float
) -> list[PlannedTrouble]:
    """Return the troubles of a plan, which end before ``last``."""
    subjects = troubles_of(platform, periods)
    # In the end there is time for the shortest length; a short episode has no long trouble.
    names = sorted(name for name in subjects if TROUBLES[name].length[0] + 3.0 < last)
    troubles: list[PlannedTrouble] = []
    must_overlap = draw.random() < 0.5
    for number in range(draw.randint(2 if must_overlap else 1, 4)):
        name = draw.choice(names)
        shortest, longest = TROUBLES[name].length
        end = last - max(3.0, shortest)
        at = draw.uniform(1.0, end)
        if must_overlap and number == 1:
            at = min(draw.uniform(troubles[0].at, troubles[0].until), end)
        until = min(at + draw.uniform(shortest, longest), last)
        trouble = PlannedTrouble(
            *(name, draw.choice(subjects[name]), round(at, 2), round(until, 2))
        )
        # Two troubles of one subject at one time would undo each other.
        if (
            not any(_collide(trouble, other) for other in troubles)
            and _seconds_for(platform, [*troubles, trouble]) < MAX_SECONDS
        ):
            troubles.append(trouble)
    return troubles


def _seconds_for(platform: str, troubles: Iterable[PlannedTrouble]) -> float:
    """Return how long an episode must last, of which ``troubles`` excuse ``MAX_EXCUSED``."""
    return excused_seconds(planned_excuses(platform, troubles), math.inf) / MAX_EXCUSED


def _draw_faults(
    draw: random.Random,
    number: int,
    begin: float,
    end: float,
    seconds: float,
    free_from: dict[_Place, float],
) -> list[PlannedFault]:
    """Return at most ``number`` faults that begin between ``begin`` and ``end``.

    Each has an end, or holds at the end of the episode, after ``seconds``. Adds from when on each
    place is free.
    """
    last = end - _SETTLE_SECONDS - _MIN_FAULT_SECONDS
    faults: list[PlannedFault] = []
    for _ in range(number):
        place = node, chip, code = _draw_place(draw)
        first = max(begin - _SETTLE_SECONDS - _MIN_FAULT_SECONDS, free_from.get(place, 0.0))
        if first > last:
            continue
        at = round(draw.uniform(first, last), 2)
        until = round(draw.uniform(at + _MIN_FAULT_SECONDS, end + _SETTLE_SECONDS), 2)
        is_over = until < seconds - _SETTLE_SECONDS
        # The code of a chip is planned once more only behind what the driver's list still has.
        free_from[place] = until + 1.0 if is_over else math.inf
        faults.append(PlannedFault(node, chip, code, at, until if is_over else None))
    return faults


def _draw_hidden_faults(
    draw: random.Random,
    troubles: Sequence[PlannedTrouble],
    free_from: dict[_Place, float],
    places: int,
) -> list[PlannedFault]:
    """Return a fault during each trouble that hides events, ``places`` at most.

    A fault that begins at random is seldom hidden.
    """
    faults: list[PlannedFault] = []
    for trouble in troubles:
        if Effect.HIDES_EVENTS in TROUBLES[trouble.name].effects and len(faults) < places:
            at = round(draw.uniform(trouble.at, trouble.until), 2)
            free = [
                (trouble.subject, chip, code)
                for chip in range(CHIPS)
                for code in CODES
                if (trouble.subject, chip, code) not in free_from
            ]
            place = draw.choice(free)
            free_from[place] = math.inf
            faults.append(PlannedFault(*place, at))
    return faults


def _draw_one_offs(
    draw: random.Random,
    seconds: float,
    troubles: Sequence[PlannedTrouble],
    free_from: dict[_Place, float],
) -> list[PlannedFault]:
    """Return one-off faults, each where no trouble of its node can lose the event."""
    faults: list[PlannedFault] = []
    for _ in range(draw.randint(0, MAX_ONE_OFFS)):
        place = node, _, _ = _draw_place(draw)
        at = round(draw.uniform(1.0, seconds - _ONE_OFF_SECONDS), 2)
        is_lost = any(
            trouble.subject == node
            and trouble.at - _MARGIN_SECONDS <= at
            # Some lose the next event, whenever it comes.
            and (
                at < trouble.until + _DEAF_SECONDS
                or Effect.LOSES_NEXT_EVENT in TROUBLES[trouble.name].effects
            )
            for trouble in troubles
        )
        if not is_lost and place not in free_from:
            free_from[place] = math.inf
            faults.append(PlannedFault(*place, at, once=True))
    return faults


def _draw_place(draw: random.Random) -> _Place:
    """Return a node, a chip and a code."""
    return draw.choice(NODES), draw.randrange(CHIPS), draw.choice(CODES)


def _collide(trouble: PlannedTrouble, other: PlannedTrouble) -> bool:
    return (
        trouble.subject == other.subject
        and trouble.at < other.until + 1.0
        and other.at < trouble.until + 1.0
    )
