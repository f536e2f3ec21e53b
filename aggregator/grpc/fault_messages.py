"""Messages of the fault service as plain values: those of ``clusterd#5.3`` without their uuid.

Two messages with the same content are equal. A uuid is made when a message is sent.
"""

from __future__ import annotations

import msgspec

CLUSTER = "-1"
"""The job of the message about the whole cluster, and of a client that registers without a job
(clusterd#5.4).
"""

FAULT = "fault"
NORMAL = "normal"
"""``signal_type`` of a message that ends a fault: nothing is wrong (any more)."""


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
