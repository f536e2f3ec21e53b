"""The health that levels and states mean, in the words of fault messages (``clusterd#5.4``)."""

from __future__ import annotations

from enum import IntEnum


class Health(IntEnum):
    """The health of a part, node or job in these words; the greater is the worse."""

    HEALTHY = 0
    SUB_HEALTHY = 1
    UNHEALTHY = 2

    @property
    def word(self) -> str:
        """As on the wire."""
        return _WORDS[self]


_WORDS = ("Healthy", "SubHealthy", "UnHealthy")

_BY_LEVEL = {
    **dict.fromkeys(
        ("SubHealthFault", "SubHealth", "PreSeparateFault", "PreSeparate", "PreSeparateNPU"),
        Health.SUB_HEALTHY,
    ),
    **dict.fromkeys(
        ("RestartRequest", "RestartBusiness", "RestartNPU", "FreeRestartNPU"), Health.UNHEALTHY
    ),
    **dict.fromkeys(
        ("SeparateNPU", "ManuallySeparateNPU", "SeparateFault", "Separate"), Health.UNHEALTHY
    ),
}

_BY_STATUS = {
    "SubHealthy": Health.SUB_HEALTHY,
    "PreSeparate": Health.SUB_HEALTHY,
    "UnHealthy": Health.UNHEALTHY,
}


def health_of_level(level: str) -> Health:
    """Return the health that a level of a chip, switch or part means; healthy for an
    unknown one.
    """
    return _BY_LEVEL.get(level, Health.HEALTHY)


def health_of_status(status: str) -> Health:
    """Return the health that a ``NodeStatus`` means; healthy for an unknown one."""
    return _BY_STATUS.get(status, Health.HEALTHY)
