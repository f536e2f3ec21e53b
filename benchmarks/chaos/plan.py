"""The plan of an episode: a pure function of platform and seed, in public words.

A plan names faults by node, chip, code and time, and troubles by their name, subject and time. So a
kept plan still plays after a refactoring. Times are seconds since the beginning of the episode.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

NODES = ("node-1", "node-2")
AGGREGATORS = ("aggregator-1", "aggregator-2")
STORE = "store"
CHIPS = 8
CODES = ("80818C05", "80E18402", "80C98001", "80BB8003", "80818C06", "80818201")
"""Codes of chips with different levels; no rule of the shipped configuration counts them twice."""
MIN_SECONDS, MAX_SECONDS = 20.0, 60.0
MAX_FAULTS = 12
MAX_ONE_OFFS = 2
_ONE_OFF_SECONDS = 13.0
"""From a one-off fault until it has been shown long enough: the bound, 5.5 s, and the bound."""
_DEAF_SECONDS = 12.0
"""For so long after a trouble of its node an event may be lost: the driver starts again."""
_SETTLE_SECONDS = 4.0
_MIN_FAULT_SECONDS = 2.0
_MARGIN_SECONDS = 0.5


def aggregators_of(platform: str) -> tuple[str, ...]:
    """Return the aggregators of a platform. A broker has no election, so there is one."""
    return AGGREGATORS[:1] if platform == "mqtt" else AGGREGATORS


class PlannedFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fault that begins ``at`` and ends at ``until``; ``None``: it holds at the end.

    ``once``: a one-off fault, which is an event and has no end.
    """

    node: str
    chip: int
    code: str
    at: float
    until: float | None = None
    once: bool = False


class PlannedTrouble(msgspec.Struct, frozen=True):
    """A trouble of ``subject`` (a node, an aggregator, or the store) between two times."""

    name: str
    subject: str
    at: float
    until: float


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that happens in an episode, which lasts ``seconds``; ``periods`` are short or shipped."""

    platform: str
    seed: int
    seconds: float
    faults: tuple[PlannedFault, ...]
    troubles: tuple[PlannedTrouble, ...]
    periods: str = "short"

    @property
    def overlap(self) -> bool:
        """Whether two troubles overlap."""
        ordered = sorted(self.troubles, key=lambda trouble: trouble.at)
        return any(later.at < earlier.until for earlier, later in itertools.pairwise(ordered))


def make_plan(
    platform: str,
    seed: int,
    subjects: Mapping[str, tuple[str, ...]],
    lengths: Mapping[str, tuple[float, float]],
    hiding: Set[str] = frozenset(),
    losing: Set[str] = frozenset(),
    periods: str = "short",
) -> Plan:
    """Return the plan of this seed; ``subjects`` are what each trouble of the platform may hit.

    ``lengths`` are the shortest and the longest of each trouble (seconds). A fault begins during
    each of the ``hiding`` ones, and the ``losing`` ones lose the next event, whenever it comes. In
    virtual time there are no one-off faults.
    """
    draw = random.Random(f"{platform} {seed}")
    seconds = round(draw.uniform(MIN_SECONDS, MAX_SECONDS), 2)
    last = seconds - _SETTLE_SECONDS
    faults: list[PlannedFault] = []
    taken: dict[tuple[str, int, str], float] = {}
    for _ in range(draw.randint(3, MAX_FAULTS)):
        node, chip, code = draw.choice(NODES), draw.randrange(CHIPS), draw.choice(CODES)
        free_from = taken.get((node, chip, code), 0.0)
        if free_from > last - _MIN_FAULT_SECONDS:
            continue
        at = round(draw.uniform(free_from, last - _MIN_FAULT_SECONDS), 2)
        until = round(draw.uniform(at + _MIN_FAULT_SECONDS, seconds + _SETTLE_SECONDS), 2)
        # The code of a chip is planned once more only behind what the driver's list still has.
        taken[node, chip, code] = until + 1.0
        faults.append(PlannedFault(node, chip, code, at, until if until < last else None))
    troubles: list[PlannedTrouble] = []
    must_overlap = draw.random() < 0.5
    for number in range(draw.randint(2 if must_overlap else 1, 4)):
        # In the end there is time for the shortest length; a short episode has no long trouble.
        names = sorted(name for name in subjects if lengths[name][0] + 3.0 < last)
        name = draw.choice(names)
        shortest, longest = lengths[name]
        end = last - max(3.0, shortest)
        at = draw.uniform(1.0, end)
        if must_overlap and number == 1:
            at = min(draw.uniform(troubles[0].at, troubles[0].until), end)
        until = min(at + draw.uniform(shortest, longest), last)
        trouble = PlannedTrouble(
            *(name, draw.choice(subjects[name]), round(at, 2), round(until, 2))
        )
        # Two troubles of one subject at one time would undo each other.
        if not any(_collide(trouble, other) for other in troubles):
            troubles.append(trouble)
    for trouble in troubles:
        # A fault that begins at random is seldom hidden.
        if trouble.name in hiding and len(faults) < MAX_FAULTS:
            at = round(draw.uniform(trouble.at, trouble.until), 2)
            free = [
                (chip, code)
                for chip in range(CHIPS)
                for code in CODES
                if (trouble.subject, chip, code) not in taken
            ]
            chip, code = draw.choice(free)
            taken[trouble.subject, chip, code] = seconds
            faults.append(PlannedFault(trouble.subject, chip, code, at))
    for _ in range(0 if platform == "simulated" else draw.randint(0, MAX_ONE_OFFS)):
        node, chip, code = draw.choice(NODES), draw.randrange(CHIPS), draw.choice(CODES)
        at = round(draw.uniform(1.0, seconds - _ONE_OFF_SECONDS), 2)
        is_lost = any(
            trouble.subject == node
            and trouble.at - _MARGIN_SECONDS <= at
            and (at < trouble.until + _DEAF_SECONDS or trouble.name in losing)
            for trouble in troubles
        )
        if not is_lost and (node, chip, code) not in taken:
            taken[node, chip, code] = seconds
            faults.append(PlannedFault(node, chip, code, at, once=True))
    return Plan(
        *(platform, seed, seconds),
        tuple(sorted(faults, key=lambda fault: fault.at)),
        tuple(sorted(troubles, key=lambda trouble: trouble.at)),
        periods,
    )


def _collide(trouble: PlannedTrouble, other: PlannedTrouble) -> bool:
    return (
        trouble.subject == other.subject
        and trouble.at < other.until + 1.0
        and other.at < trouble.until + 1.0
    )
