"""Driver severities, handling levels and their order (``docs/spec/device-plugin.md#2.7``, 2.8)."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Severity(IntEnum):
    """What the driver calls a fault event (``docs/spec/dcmi.md#5.2``)."""

    SUGGESTION = 0
    MINOR = 1
    MAJOR = 2
    CRITICAL = 3

    @property
    def word(self) -> str:
        """The lower-case name that people and metrics read."""
        return self.name.lower()


class ChipLevel(StrEnum):
    """How a chip fault is to be handled, most serious first."""

    MANUALLY_SEPARATE_NPU = "ManuallySeparateNPU"
    SEPARATE_NPU = "SeparateNPU"
    PRE_SEPARATE_NPU = "PreSeparateNPU"
    RESTART_NPU = "RestartNPU"
    FREE_RESTART_NPU = "FreeRestartNPU"
    RESTART_BUSINESS = "RestartBusiness"
    RESTART_REQUEST = "RestartRequest"
    SUB_HEALTH_FAULT = "SubHealthFault"
    NOT_HANDLE_FAULT = "NotHandleFault"
    NORMAL_NPU = "NormalNPU"


# The order of the members is that of seriousness (device-plugin#2.7).
_RANK = {level: rank for rank, level in enumerate(ChipLevel)}


def most_serious(levels: Iterable[ChipLevel]) -> ChipLevel:
    """Return the most serious of ``levels``; ``NormalNPU`` when there is none."""
    return min(levels, key=_RANK.__getitem__, default=ChipLevel.NORMAL_NPU)


class SwitchLevel(StrEnum):
    """How a fault of an on-board switch is to be handled, most serious first.

    Source: docs/spec/device-plugin.md#5.3.
    """

    SEPARATE = "Separate"
    PRE_SEPARATE = "PreSeparate"
    RESTART_REQUEST = "RestartRequest"
    SUB_HEALTH_FAULT = "SubHealthFault"
    NOT_HANDLE = "NotHandle"


class NodeLevel(StrEnum):
    """How a fault of a part of the server is to be handled, most serious first.

    Source: ``docs/spec/noded.md#3.4``.
    """

    SEPARATE_FAULT = "SeparateFault"
    PRE_SEPARATE_FAULT = "PreSeparateFault"
    NOT_HANDLE_FAULT = "NotHandleFault"


_IN_PLACE = frozenset(
    {"", ChipLevel.NORMAL_NPU, ChipLevel.NOT_HANDLE_FAULT, SwitchLevel.NOT_HANDLE, "Healthy"}
)


def takes_out(level: str | None, *, is_network: bool = False) -> bool:
    """Return whether a code at ``level``, or a status of that name, takes a chip, a switch or a
    node out of use, or is to. A network in sub-health is out, a chip is not.

    Source: ``docs/spec/device-plugin.md#2.8`` and 5.3, ``docs/spec/noded.md#3.4``.
    """
    if level is None or level in _IN_PLACE:
        return False
    return is_network or level not in (ChipLevel.SUB_HEALTH_FAULT, "SubHealthy")


def is_device_fault(severity: Severity | None) -> bool:
    """Return whether elastic training counts a chip fault as a device fault: critical or major.

    Source: ``consumers#5.3``. Network faults found by ``hccn_tool`` count too; that is
    decided where they are observed.
    """
    return severity is not None and severity >= Severity.MAJOR


_UNITED: tuple[tuple[str, ...], ...] = (
    (ChipLevel.MANUALLY_SEPARATE_NPU,),
    (ChipLevel.SEPARATE_NPU, SwitchLevel.SEPARATE, NodeLevel.SEPARATE_FAULT),
    (ChipLevel.PRE_SEPARATE_NPU, SwitchLevel.PRE_SEPARATE, NodeLevel.PRE_SEPARATE_FAULT),
    (ChipLevel.RESTART_NPU,),
    (ChipLevel.FREE_RESTART_NPU,),
    (ChipLevel.RESTART_BUSINESS,),
    (ChipLevel.RESTART_REQUEST,),
    (ChipLevel.SUB_HEALTH_FAULT,),
)
"""Levels of chips, switches and servers in one order. All others need nothing to be done."""
_UNITED_RANK = {str(level): rank for rank, levels in enumerate(_UNITED) for level in levels}
UNITED_LEVELS = tuple(_UNITED_RANK)
MAX_RANK = len(_UNITED)
"""Of what needs nothing to be done."""
ENDING_LEVELS = tuple(level for level in UNITED_LEVELS if level != ChipLevel.SUB_HEALTH_FAULT)
"""Levels that end jobs or refuse them."""
SEPARATING_LEVELS = tuple(level for level in UNITED_LEVELS if "Separate" in level)
"""Levels that refuse new jobs."""


def rank_of(level: str) -> int:
    """Return how serious a level of a chip, a switch or a server is, 0 for the most serious."""
    return _UNITED_RANK.get(level, MAX_RANK)


_HEALTHY = frozenset({ChipLevel.NORMAL_NPU, ChipLevel.NOT_HANDLE_FAULT, ChipLevel.SUB_HEALTH_FAULT})
# Unlike a chip, a network in sub-health is unhealthy (device-plugin#2.8).
_NETWORK_HEALTHY = frozenset({ChipLevel.NORMAL_NPU, ChipLevel.NOT_HANDLE_FAULT})


def is_healthy(level: ChipLevel, in_use: bool) -> bool:
    """Return whether a chip is healthy whose own codes are at ``level``.

    A pre-separated one is healthy while it is in use.
    """
    return level in _HEALTHY or (level is ChipLevel.PRE_SEPARATE_NPU and in_use)


def is_network_healthy(level: ChipLevel) -> bool:
    """Return whether the network of a chip is healthy whose network codes are at ``level``."""
    return level in _NETWORK_HEALTHY
