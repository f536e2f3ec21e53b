"""Messages of the fault service as plain values: those of ``clusterd#5.3`` without uuid.

Two messages with the same content are equal. Source: ``docs/spec/clusterd.md#5.3`` and 5.4.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

CLUSTER = "-1"
"""The job of the message about the whole cluster."""

FAULT = "fault"
NORMAL = "normal"


class Health(IntEnum):
    """How well something is, in the words of these messages; the greater is the worse."""

    HEALTHY = 0
    SUB_HEALTHY = 1
    UNHEALTHY = 2

    @property
    def word(self) -> str:
        """As on the wire."""
        return _WORDS[self]


_WORDS = {
    Health.HEALTHY: "Healthy",
    Health.SUB_HEALTHY: "SubHealthy",
    Health.UNHEALTHY: "UnHealthy",
}

_BY_LEVEL = {
    "SubHealthFault": Health.SUB_HEALTHY,
    "SubHealth": Health.SUB_HEALTHY,
    "PreSeparateFault": Health.SUB_HEALTHY,
    "PreSeparate": Health.SUB_HEALTHY,
    "PreSeparateNPU": Health.SUB_HEALTHY,
    "RestartRequest": Health.UNHEALTHY,
    "RestartBusiness": Health.UNHEALTHY,
    "RestartNPU": Health.UNHEALTHY,
    "FreeRestartNPU": Health.UNHEALTHY,
    "SeparateNPU": Health.UNHEALTHY,
    "ManuallySeparateNPU": Health.UNHEALTHY,
    "SeparateFault": Health.UNHEALTHY,
    "Separate": Health.UNHEALTHY,
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


class SwitchFaultInfo(msgspec.Struct, frozen=True):
    """One event of a switch. ``fault_time`` is as the switch reported it."""

    fault_code: str
    switch_chip_id: str
    switch_port_id: str
    fault_time: str
    fault_level: str


class DeviceFaultInfo(msgspec.Struct, frozen=True):
    """The faults of one chip, switch or part of a server; ``fault_level`` is a health.

    ``fault_levels`` are those of ``fault_codes``. Types and reasons are empty, as upstream's.
    """

    device_id: str
    device_type: str
    fault_codes: tuple[str, ...]
    fault_level: str
    fault_levels: tuple[str, ...] = ()
    switch_faults: tuple[SwitchFaultInfo, ...] = ()
    fault_types: tuple[str, ...] = ()
    fault_reasons: tuple[str, ...] = ()


class NodeFaultInfo(msgspec.Struct, frozen=True):
    """What is wrong on one node; ``fault_level`` is the health of its worst device."""

    node_name: str
    node_ip: str
    node_sn: str
    fault_level: str
    devices: tuple[DeviceFaultInfo, ...]


class FaultMsgSignal(msgspec.Struct, frozen=True):
    """What is wrong for a job or in the cluster, sorted by the addresses of nodes."""

    job_id: str
    signal_type: str
    nodes: tuple[NodeFaultInfo, ...] = ()
