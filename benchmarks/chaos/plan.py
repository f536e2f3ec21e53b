"""The plan of an episode, in public words.

A plan names faults by node, chip, code and time, and troubles by their name, subject and time. So a
kept plan still plays after a refactoring. Times are seconds since the beginning of the episode.
"""

from __future__ import annotations

import itertools

import msgspec

NODES = ("node-1", "node-2")
AGGREGATORS = ("aggregator-1", "aggregator-2")
STORE = "store"
CHIPS = 8
CODES = ("80818C05", "80E18402", "80C98001", "80BB8003", "80818C06", "80818201")
"""Codes of chips with different levels; no rule of the shipped configuration counts them twice."""


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
