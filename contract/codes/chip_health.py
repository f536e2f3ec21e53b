"""Whether a chip and its network may be used, by their levels (``device-plugin#2.8``)."""

from __future__ import annotations

from contract.codes.levels import ChipLevel

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
