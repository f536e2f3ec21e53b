"""The findings of a replay, as values: for ``vigil replay --json`` and for its table.

Times in epoch milliseconds, durations in seconds, days in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from agent.policy.state import Change

if TYPE_CHECKING:
    from agent.replay.level_history import Sums


class Break(msgspec.Struct, frozen=True):
    """The journal is not complete from ``from_ms`` to ``until_ms``."""

    from_ms: int
    until_ms: int
    what: str


class Deviation(msgspec.Struct, frozen=True):
    """At row ``sequence`` the policy returns ``replayed`` instead of ``recorded``."""

    sequence: int
    at_ms: int
    what: str
    recorded: tuple[Change, ...] = ()
    replayed: tuple[Change, ...] = ()


class DaySums(msgspec.Struct, frozen=True):
    """One chip on one day.

    ``seconds`` are by level; unhealthy means: in that list of the document.
    """

    episodes: int
    upgrades: int
    releases: int
    seconds: Mapping[str, float]
    unhealthy_seconds: float
    network_unhealthy_seconds: float
    isolated_seconds: float


class LevelDifference(msgspec.Struct, frozen=True):
    """A code that would have had another level (``None``: none at all), and why each.

    ``times`` counts how often it began to differ or differed since the day before.
    """

    code: str
    recorded_level: str | None
    replayed_level: str | None
    recorded_because: str
    replayed_because: str
    times: int
    seconds: float


class Day(msgspec.Struct, frozen=True):
    """One subject (``chip 3``) on one day; only chips have sums."""

    day: str
    subject: str
    recorded: DaySums | None = None
    replayed: DaySums | None = None
    differences: tuple[LevelDifference, ...] = ()


class Findings(msgspec.Struct):
    """All findings, added while a journal is replayed.

    ``from_ms`` and ``until_ms`` limit what was replayed, ``None`` without a snapshot.
    ``deviations`` are the first of ``deviation_count``; ``checked`` rows were compared.
    """

    node: str = ""
    versions: list[str] = []
    from_ms: int | None = None
    until_ms: int | None = None
    pruned: bool = False
    rows: int = 0
    inputs: int = 0
    checked: int = 0
    deviation_count: int = 0
    deviations: list[Deviation] = []
    breaks: list[Break] = []
    days: tuple[Day, ...] = ()


def day_sums(sums: Sums) -> DaySums:
    """Return ``sums`` with durations in seconds."""
    return DaySums(
        episodes=sums.episodes,
        upgrades=sums.upgrades,
        releases=sums.releases,
        seconds={level: ms / 1000 for level, ms in sorted(sums.level_ms.items())},
        unhealthy_seconds=sums.unhealthy_ms / 1000,
        network_unhealthy_seconds=sums.network_unhealthy_ms / 1000,
        isolated_seconds=sums.isolated_ms / 1000,
    )
