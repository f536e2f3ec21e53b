"""Whether a chip and its network may be used, by their levels (``device-plugin#2.8``)."""

from __future__ import annotations

from contract.codes.levels import ChipLevel

_HEALTHY = frozenset({ChipLevel.NORMAL_NPU, ChipLevel.NOT_HANDLE_FAULT, ChipLevel.SUB_HEALTH_FAULT})
_NETWORK_HEALTHY = frozenset({ChipLevel.NORMAL_NPU, ChipLevel.NOT_HANDLE_FAULT})


def is_healthy(level: ChipLevel, in_use: bool) -> bool:
    """Whether a chip whose own codes are at ``level`` is; a pre-separated one is while in use."""
    return level in _HEALTHY or (level is ChipLevel.PRE_SEPARATE_NPU and in_use)


def is_network_healthy(level: ChipLevel) -> bool:
    """Whether the network of a chip is whose network codes are at ``level``."""
    return level in _NETWORK_HEALTHY
