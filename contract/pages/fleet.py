"""Answers of ``/api/v1/fleet``: one short row for each node, without ages."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from contract.codes.levels import ChipLevel, NodeLevel, SwitchLevel


class Weight(IntEnum):
    """How much a level takes from jobs; pages show each weight by a sign of its own."""

    NONE = 0
    SUB_HEALTH = 1
    NO_NEW_PODS = 2
    OUT = 3


_WEIGHTS = {
    Weight.OUT: (
        ChipLevel.MANUALLY_SEPARATE_NPU,
        SwitchLevel.SEPARATE,
        NodeLevel.SEPARATE_FAULT,
        ChipLevel.SEPARATE_NPU,
        "SeparateDPU",
        "UnHealthy",
        ChipLevel.RESTART_NPU,
        ChipLevel.RESTART_BUSINESS,
        SwitchLevel.RESTART_REQUEST,
    ),
    Weight.NO_NEW_PODS: (
        SwitchLevel.PRE_SEPARATE,
        NodeLevel.PRE_SEPARATE_FAULT,
        ChipLevel.PRE_SEPARATE_NPU,
        ChipLevel.FREE_RESTART_NPU,
    ),
    Weight.SUB_HEALTH: (ChipLevel.SUB_HEALTH_FAULT, "SubHealthy"),
    Weight.NONE: (SwitchLevel.NOT_HANDLE, ChipLevel.NOT_HANDLE_FAULT, ChipLevel.NORMAL_NPU),
}


class LevelWeight(msgspec.Struct, frozen=True):
    """A level of a chip, a switch or a server, or a status, and what it takes: 3 (pods go) to 0."""

    level: str
    weight: int


LEVEL_WEIGHTS = tuple(
    LevelWeight(str(level), int(weight)) for weight, levels in _WEIGHTS.items() for level in levels
)
"""All levels, most serious first."""
_RANK = {row.level: rank for rank, row in enumerate(LEVEL_WEIGHTS)}
_UNKNOWN_RANK = len([row for row in LEVEL_WEIGHTS if row.weight > Weight.SUB_HEALTH])


def rank(level: str) -> tuple[int, str]:
    """Return what orders levels, most serious first. An unknown level is worse than sub-health."""
    return _RANK.get(level, _UNKNOWN_RANK), level


class FleetNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node. A member that has its default is left out.

    ``level`` is the most serious one of all published faults, empty without any. ``chips`` counts
    all known chips, ``levels`` those with a fault by their most serious level. ``kinds`` and
    ``codes`` are those of the published faults. ``blind`` counts sources without an answer,
    ``null`` where that is not known. ``heartbeat`` is that of ``NodeStatus``; it is left out for
    ``alive``.
    """

    node: str
    level: str = ""
    chips: int = 0
    levels: dict[str, int] = {}
    kinds: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    blind: int | None = 0
    heartbeat: str = "alive"
    super_pod: int | None = None
    rack: int | None = None


class StoreAway(msgspec.Struct, frozen=True):
    """A store from which no changes arrive now, and why."""

    store: str
    reason: str


class FleetPage(msgspec.Struct, frozen=True):
    """All nodes, or those that were asked for.

    ``epoch`` names the process: another one behind the same address has another epoch. ``stream``
    is that of ``FaultsPage``. ``levels`` are all levels, most serious first. ``alarm``: too many
    nodes fell silent at once, so that none of them is published as lost.
    """

    at_ms: int
    epoch: str
    version: str
    stream: str
    role: str
    leads: bool
    holder: str
    alarm: bool
    stores_away: tuple[StoreAway, ...]
    levels: tuple[LevelWeight, ...]
    nodes: tuple[FleetNode, ...]


class FleetRows(msgspec.Struct, frozen=True):
    """New rows of the nodes that are ``asked``; those without a row in ``page`` are gone."""

    asked: tuple[str, ...]
    page: FleetPage
